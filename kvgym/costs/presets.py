"""Named cost models come with sources: linear fits of measured kernel tables, plus constants for the CPU side.

Kernel times: data/calibration/aic_linear_fit.csv (fits of AIConfigurator's measured tables, NVIDIA, Apache-2.0). They
are kernel time only: real inter-token latency is 1.2 to 1.4 times d0, and TTFT carries 20 to 50 ms of CPU, HTTP and
tokenising (data/README.md), so these presets add a quarter of d0 to each step and 20 ms to each request.

The two of Qwen3-32B (calibration/aic_linear_fit_qwen3_32b.csv) take the kernels alone: engines of 2026 add nothing to
a step that a measurement shows (data/README.md). The two RTX presets come from layer profiles (LLMServingSim, MIT;
scripts/fit_layer_profile.py), in which vLLM's own steps were timed: nothing is added to a step. `kvgym validate` shows
how near these come to measured runs.
"""

from __future__ import annotations

from kvgym.costs.linear import Linear

REQUEST_MS = 20.0
"""HTTP and tokenising, the lower end of what was measured."""


def _fit(p0: float, p_tok: float, p_quad: float, p_kv: float, d0: float, d_seq: float, d_kvtok: float) -> Linear:
    return Linear(p0, p_tok, p_quad, p_kv, d0, d_seq, d_kvtok, 0.0, step_ms=round(0.25 * d0, 3), request_ms=REQUEST_MS)


def _kernels(p0: float, p_tok: float, p_quad: float, p_kv: float, d0: float, d_seq: float, d_kvtok: float) -> Linear:
    return Linear(p0, p_tok, p_quad, p_kv, d0, d_seq, d_kvtok, 0.0, step_ms=0.0, request_ms=REQUEST_MS)


L40_LLAMA31_8B = _fit(16.9, 0.12, 4.4e-6, 8e-6, 22.4, 0.04, 1.81e-4)
"""Llama-3.1-8B on one L40, SGLang: an assumption, not a measurement. The L40 has the L40S's memory bandwidth (decode as
the L40S) and about half its dense bf16 speed, so p_tok and p_quad lie between the L40S's .0704 and twice that."""
L40S_LLAMA31_8B = _fit(16.9, 0.0704, 2.58e-6, 8e-6, 22.4, 0.04, 1.81e-4)
"""Llama-3.1-8B in bf16 on one L40S, SGLang."""
A100_LLAMA31_8B = _fit(8.28, 0.0571, 2.58e-6, 4.6e-7, 11.8, 0.029, 1.24e-4)
"""Llama-3.1-8B in bf16 on one A100, SGLang."""
H100_LLAMA31_8B = _fit(4.75, 0.0194, 8.7e-7, 2.3e-6, 6.43, 0.011, 4.22e-5)
"""Llama-3.1-8B in bf16 on one H100, SGLang."""
H200_LLAMA31_8B = _fit(3.57, 0.02, 9.3e-7, 6e-7, 4.72, 0.015, 2.97e-5)
"""Llama-3.1-8B in bf16 on one H200, SGLang."""
H200_TP4_LLAMA31_70B = _fit(8.91, 0.0614, 1.09e-6, 0.0, 11.4, 0.043, 1.87e-5)
"""Llama-3.1-70B in bf16 on four H200 (TP4), SGLang."""
H200_TP4_LLAMA31_70B_FP8 = _fit(7.59, 0.0438, 1.07e-6, 0.0, 8.47, 0.035, 1.89e-5)
"""Llama-3.1-70B in fp8 on four H200 (TP4), SGLang."""
H100_TP4_LLAMA31_70B = _fit(11.9, 0.0601, 1.05e-6, 1.4e-6, 15.1, 0.038, 2.7e-5)
"""Llama-3.1-70B in bf16 on four H100 (TP4), SGLang."""
RTX4090_LLAMA31_8B = Linear(
    6.71, 0.0889, 3.474e-6, 6.664e-4, 16.97, 0.04082, 1.419e-4, 2.197e-4, step_ms=0.0, request_ms=REQUEST_MS
)
"""Llama-3.1-8B in bf16 on one RTX 4090, vLLM, from a layer profile."""
RTXPRO6000_LLAMA31_8B = Linear(
    6.365, 0.03568, 1.643e-6, 4.279e-4, 11.07, 0.01959, 9.242e-5, 5.715e-5, step_ms=0.0, request_ms=REQUEST_MS
)
"""Llama-3.1-8B in bf16 on one RTX PRO 6000, vLLM, from a layer profile."""
H100_TP2_QWEN3_32B = _kernels(11.5499, 0.0474016, 1.75717e-6, 3.95852e-6, 13.6265, 0.0252773, 4.28768e-5)
"""Qwen3-32B in bf16 on two H100 (TP2), SGLang."""
H100_TP2_QWEN3_32B_VLLM = _kernels(12.1455, 0.0457035, 1.67632e-6, 4.49885e-6, 13.5624, 0.0287069, 4.24802e-5)
"""Qwen3-32B in bf16 on two H100 (TP2), vLLM."""
