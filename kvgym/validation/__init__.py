"""Replays measured runs of real engines and fleets and says how far the simulator is from them, run by run."""

from __future__ import annotations

from kvgym.config.registry import Registry

RUNS = Registry(
    "measured run",
    {
        "rtx4090": "kvgym.validation.rtx4090:RUN",
        "vllm_counters": "kvgym.validation.vllm_counters:RUN",
        "llmd_sglang": "kvgym.validation.llmd_fleets:G15",
        "llmd_37": "kvgym.validation.llmd_fleets:R37",
        "llmd_vllm": "kvgym.validation.llmd_fleets:G16",
    },
    group="kvgym.validation",
    check="kvgym.validation.base:not_a_run",
)
"""Name -> a `kvgym.validation.base.MeasuredRun`."""
