"""Fits a cost preset to a layer profile: measured times of a model's layers on one GPU, as LLMServingSim has them.

    python scripts/fit_layer_profile.py RTX4090_llama31_8b_tp1 --pool-tokens 41408

Reads calibration/llmservingsim_NAME_{dense,per_sequence,attention}.csv.gz below KVGYM_DATA and prints the coefficients
of `kvgym.costs.linear.Linear` in milliseconds. Nothing that an engine has served takes part.

- Dense layers, by tokens of a step: up to 128 tokens the weights' reading rules (d0, d_seq), from 256 on the computing
  (p0, p_tok); a step takes the larger of both.
- The head and the sampler, by sequences: constant (in d0 and p0) and slope (in d_seq).
- Attention, by decodes and their context (steps of decodes alone: d0, d_seq, d_kvtok), and what a prefill chunk adds
  (p_tok, p_quad, p_kv), and the decodes beside it (mix_kvtok); only what fits into the worker's pool counts.

Coefficients are the non-negative ones with the least squares of relative errors.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

FEW, MANY = 128, 256
"""Tokens of a step up to which, and from which on, the dense layers' time is one line."""
LEAST_US = 20.0
"""Errors of shorter times count as if they were so long: launches are noisy."""

Columns = dict[str, np.ndarray]


def least_squares(terms: list[np.ndarray], times: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Return the non-negative coefficients with the least squares of errors in `unit`, by coordinate descent."""
    rows = np.column_stack(terms) / unit[:, None]
    scale = np.linalg.norm(rows, axis=0)
    rows = rows / scale
    square, target, found = rows.T @ rows, rows.T @ (times / unit), np.zeros(len(terms))
    for _ in range(20_000):
        for j in range(len(found)):
            found[j] = max(0.0, found[j] + (target[j] - square[j] @ found) / square[j, j])
    return found / scale


def read(folder: Path, name: str, part: str) -> Columns:
    """Return the columns of one table of the profile; the layer's name as text, all else as numbers."""
    with gzip.open(folder / f"llmservingsim_{name}_{part}.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    return {key: np.array([row[key] if key == "layer" else float(row[key]) for row in rows]) for key in rows[0]}


def dense_ms(table: Columns, layers: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (tokens, milliseconds) of all dense layers of a step."""
    times = {"embedding": 1, "final_layernorm": 1, "layernorm": 2 * layers}
    tokens = np.unique(table["tokens"])
    total = np.zeros(len(tokens))
    for layer in np.unique(table["layer"]):
        at = table["layer"] == layer
        order = np.argsort(table["tokens"][at])
        total += times.get(str(layer), layers) * table["time_us"][at][order] / 1000.0
    return tokens, total


def head_ms(table: Columns) -> np.ndarray:
    """Return (constant, slope per sequence) of the head and the sampler."""
    sequences = np.unique(table["sequences"])
    total = np.array([table["time_us"][table["sequences"] == n].sum() / 1000.0 for n in sequences])
    return least_squares([np.ones(len(sequences)), sequences], total, total)


def attention_us(table: Columns, pool_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Return per layer (constant, per decode, per token of context) and (mixed context, n, n * (c + n / 2), c + n)."""
    n, c, decodes = (table[key] for key in ("prefill_chunk", "kv_prefill", "n_decode"))
    context, times = decodes * table["kv_decode"], table["time_us"]
    fits = (n + c + context <= pool_tokens) & (decodes > 0)
    alone, mixed = fits & (n == 0), fits & (n > 0)
    unit = np.maximum(times, LEAST_US)
    plain = least_squares([np.ones(alone.sum()), decodes[alone], context[alone]], times[alone], unit[alone])
    rest = times - (plain[0] + plain[1] * decodes + plain[2] * context)
    terms = [part[mixed] for part in (context, n, n * (c + n / 2), c + n)]
    return plain, least_squares(terms, rest[mixed], unit[mixed])


def fit(folder: Path, name: str, pool_tokens: int, layers: int) -> dict[str, float]:
    """Return coefficient -> milliseconds, four significant digits."""
    tokens, dense = dense_ms(read(folder, name, "dense"), layers)
    few, many = tokens <= FEW, tokens >= MANY
    reading = least_squares([np.ones(few.sum()), tokens[few]], dense[few], dense[few])
    computing = least_squares([np.ones(many.sum()), tokens[many]], dense[many], dense[many])
    head = head_ms(read(folder, name, "per_sequence"))
    decode, prefill = (layers / 1000.0 * part for part in attention_us(read(folder, name, "attention"), pool_tokens))
    found = {
        "p0_ms": computing[0] + head[0] + decode[0],
        "p_tok_ms": computing[1] + prefill[1],
        "p_quad_ms": prefill[2],
        "p_kv_ms": prefill[3],
        "d0_ms": reading[0] + head[0] + decode[0],
        "d_seq_ms": reading[1] + head[1] + decode[1],
        "d_kvtok_ms": decode[2],
        "mix_kvtok_ms": prefill[0],
    }
    return {key: float(f"{value:.4g}") for key, value in found.items()}


def main(
    name: Annotated[str, typer.Argument(help="Profile: the part of the files' names between their ends.")],
    pool_tokens: Annotated[int, typer.Option(min=1, help="KV pool of the worker, tokens.")],
    layers: Annotated[int, typer.Option(min=1, help="Transformer layers of the model.")] = 32,
) -> None:
    """Print the coefficients of a layer profile as JSON."""
    folder = Path(os.environ.get("KVGYM_DATA", "../shared/data")) / "calibration"
    print(json.dumps(fit(folder, name, pool_tokens, layers), indent=2))


if __name__ == "__main__":
    typer.run(main)
