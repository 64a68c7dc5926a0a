"""A small trained network evicts the leaf that it scores highest among a few on offer.

Source: the file (JSON), which `scripts/train_eviction.py` writes from a policy trained on kvgym/Eviction-v0. It is
named by its path where other policies have a name. What it says, in words:

- at each eviction some leaves are offered, the same as there: the `recent` least recently accessed ones and `random`
  others, and the one with the highest score goes, whole or its last `tail_tokens` tokens; then the next;
- the score of a leaf with the features x (`kvgym.encoding.offers`, all columns but ``open``, which a cache does not
  know) is linear . x + sum over units of out * max(bias + weights . x, 0).

So a trained policy played greedily through the environment and this one evict the same. Nothing is compiled for a new
file: its numbers are the constants of the policy's memory.

Limits. It knows what its training showed it: other workloads, capacities or page sizes want a training of their own. In
an SGLang server a match that finds nothing is no tick, so ages are a little smaller there. Scoring sixteen leaves takes
1.4 microseconds: on the default workload the engine serves less than half as many requests a second as with `rlt`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvgym.encoding.offers import CANDIDATE_FEATURES, MOST_UNITS, write_leaf
from kvgym.engine.cache.leaves import children_seen, enter, leave, offer, take, touch
from kvgym.engine.cache.marks import is_marked
from kvgym.engine.cache.policy import Policy, evict_hook
from kvgym.engine.state import Cache
from kvgym.errors import ConfigError
from kvgym.jit.door import i64, njit

FEATURES = len(CANDIDATE_FEATURES) - 1
COLUMNS = tuple(feature.name for feature in CANDIDATE_FEATURES[:FEATURES])
FORMAT = "kvgym eviction scorer 1"

# A worker's row of c.memory: leaves offered by recency and at random, tokens of a tail (0: all), hidden units; the
# linear weights; per unit its bias, weights and output weight; last the features of the leaf that is scored.
LINEAR = 4
UNITS = LINEAR + FEATURES
PER_UNIT = FEATURES + 2


@njit()
def score(c: Cache, w: int, s: int) -> float:
    """Return the score of leaf s."""
    m, slot, tick = c.memory[w], c.slots[s], c.workers[w].tick
    units = i64(m[3])
    x = m[UNITS + units * PER_UNIT :]
    fanout = i64(c.slots[slot.parent].children)
    age, idle, size = i64(tick - slot.created), i64(tick - slot.access), i64(slot.d1 - slot.d0)
    write_leaf(age, idle, size, i64(slot.d1), i64(slot.hits), children_seen(c, s), fanout, i64(slot.priority), x)
    x[FEATURES - 1] = 1.0 if is_marked(c, w, s) else 0.0
    total = 0.0
    for k in range(FEATURES):
        total += m[LINEAR + k] * x[k]
    for unit in range(units):
        at = UNITS + unit * PER_UNIT
        value = m[at]
        for k in range(FEATURES):
            value += m[at + 1 + k] * x[k]
        total += m[at + 1 + FEATURES] * max(value, 0.0)
    return total


@evict_hook
def evict(c: Cache, w: int, tokens: int) -> int:
    """One offer after the other, highest score first; the first of equals goes."""
    m, freed = c.memory[w], i64(0)
    while freed < tokens and c.workers[w].leaves > 0:
        n = offer(c, w, i64(m[0]), i64(m[1]))
        first = len(c.scratch) // 2
        best, most = i64(c.scratch[first]), score(c, w, i64(c.scratch[first]))
        for i in range(first + 1, first + n):
            s = i64(c.scratch[i])
            value = score(c, w, s)
            if value > most:
                best, most = s, value
        freed += take(c, w, best, i64(m[2]))
    return freed


def make_policy(
    recent: int, random: int, tail_tokens: int, linear: Sequence[float], units: Sequence[Sequence[float]]
) -> Policy:
    """Return the policy of a scorer.

    Args:
        recent: least recently accessed leaves on offer.
        random: others, drawn at random.
        tail_tokens: tokens of the leaf's tail that go; 0: all of it.
        linear: a weight per feature, shape (9,).
        units: per hidden unit its bias, its weights and its output weight, shape (units, 11).
    """
    numbers = (recent, random, tail_tokens, len(units), *linear, *(number for unit in units for number in unit))
    constants = tuple(map(float, numbers))
    return Policy(enter, leave, touch, evict, len(constants) + FEATURES, constants)


def load(path: str | Path) -> Policy:
    """Return the policy in a file.

    Raises:
        ConfigError: there is no such file, or it holds no scorer, or one for other features.
    """
    file = Path(path)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"no eviction policy file {file}; give the .json that scripts/train_eviction.py wrote"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is no eviction policy file: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ConfigError(f"{file} is no eviction policy file: its format must be {FORMAT!r}")
    if data.get("columns") != list(COLUMNS):
        raise ConfigError(f"{file} scores other features ({data.get('columns')}) than this version ({list(COLUMNS)})")
    recent, random, tail = (_count(file, data, name) for name in ("recent", "random", "tail_tokens"))
    if recent + random == 0:
        raise ConfigError(f"{file}: recent and random must not both be 0")
    linear, units = data.get("linear", []), data.get("units")
    if not isinstance(units, list) or len(units) > MOST_UNITS:
        raise ConfigError(f"{file}: units must be a list of at most {MOST_UNITS} hidden units")
    for name, row, length in (("linear", linear, FEATURES), *(("a unit", unit, PER_UNIT) for unit in units)):
        if not isinstance(row, list) or len(row) != length or not all(map(_finite, row)):
            raise ConfigError(f"{file}: {name} must be {length} finite numbers, got {row!r:.80}")
    return make_policy(recent, random, tail, linear, units)


def _count(file: Path, data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ConfigError(f"{file}: {name} must be a whole number from 0 to {2**31 - 1}, got {value!r}")
    return value


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
