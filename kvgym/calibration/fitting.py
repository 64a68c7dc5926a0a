"""Fits the coefficients of linear step costs to observations: non-negative, robust, with a bootstrap's uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvgym.calibration.observations import DECODE, FIRST_TOKEN, PREFILL
from kvgym.costs.linear import Linear
from kvgym.errors import ConfigError
from kvgym.seeding import stream

PREFILL_NAMES = ("p0_ms", "p_tok_ms", "p_quad_ms", "p_kv_ms")
DECODE_NAMES = ("d0_ms", "d_seq_ms", "d_kvtok_ms")
NAMES = (*PREFILL_NAMES, *DECODE_NAMES, "request_ms")
"""Order of the coefficients in a fit and in its draws."""
_ROUNDS = 20
_HUBER = 1.5
"""Residuals beyond so many of their scale count linearly."""
_SCALE = 1.4826  # median absolute deviation to standard deviation, normal law


@dataclass(frozen=True)
class Fit:
    """Fitted coefficients in milliseconds, by the names of `NAMES`.

    Attributes:
        values: the coefficients, shape (8,).
        draws: those of each bootstrap resample, shape (resamples, 8).
        relative: fitted over observed, less 1, for each observation.
        most: largest computed tokens, context and batch of an observation: beyond them the fit is extrapolated.
    """

    values: np.ndarray
    draws: np.ndarray
    relative: np.ndarray
    most: dict[str, float]

    @property
    def cost(self) -> Linear:
        """The cost model."""
        return Linear(**dict(zip(NAMES, map(float, self.values), strict=True)))

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the coefficients, ms^2, shape (8, 8)."""
        return np.cov(self.draws, rowvar=False)


def fit(rows: np.ndarray, resamples: int = 200, seed: int = 0) -> Fit:
    """Fit step costs to OBSERVATION rows.

    Prefill steps and first tokens share their coefficients; what first tokens need on top of a step is `request_ms`. Of
    a client's times alone the two constants can't be told apart: then a prefill step's is a decode step's, since both
    read the weights once, and the rest is `request_ms`.

    Raises:
        ConfigError: there are no prefills or no decodes, or they don't vary.
    """
    _check(rows)
    rng = stream(seed, "bootstrap")
    draws = np.array([_solve(rows[_resample(rows, rng)]) for _ in range(resamples)])
    values = _solve(rows)
    most = {
        "computed tokens of a step": float((rows["new"] * rows["batch"]).max()),
        "context of a sequence": float(rows["context"].max()),
        "batch": float(rows["batch"].max()),
    }
    return Fit(values, draws, predicted(rows, values) / rows["ms"] - 1.0, most)


def predicted(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the milliseconds that the coefficients give for each observation."""
    prefill = _prefill_terms(rows) @ values[:4] + np.where(rows["phase"] == FIRST_TOKEN, values[7], 0.0)
    return np.where(rows["phase"] == DECODE, _decode_terms(rows) @ values[4:7], prefill)


def _check(rows: np.ndarray) -> None:
    decode, prefill = rows[rows["phase"] == DECODE], rows[rows["phase"] != DECODE]
    for name, part in (("prefill or first_token", prefill), ("decode", decode)):
        if len(part) < 3:
            raise ConfigError(f"{len(part)} observations of {name} are too few for a fit: measure at least 3")
    if len(np.unique(prefill["new"])) < 3:
        raise ConfigError("the prefills are of fewer than three lengths, so a token's time can't be told from a step's")


def _resample(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return indices drawn with replacement inside each phase, at least as varied as a fit needs."""
    return np.concatenate([rng.choice(at, len(at)) for phase in (PREFILL, DECODE, FIRST_TOKEN)
                           if len(at := np.flatnonzero(rows["phase"] == phase))])  # fmt: skip


def _solve(rows: np.ndarray) -> np.ndarray:
    decode = rows[rows["phase"] == DECODE]
    d = _robust(_decode_terms(decode), decode["ms"])
    prefill = rows[rows["phase"] != DECODE]
    terms = _prefill_terms(prefill)
    client = prefill["phase"] == FIRST_TOKEN
    if client.any() and not client.all():
        *p, request = _robust(np.column_stack((terms, client)), prefill["ms"])
    else:
        p, request = list(_robust(terms, prefill["ms"])), 0.0
        if client.all():
            request = max(0.0, p[0] - d[0])
            p[0] -= request
    return np.array([*p, *d, request])


def _prefill_terms(rows: np.ndarray) -> np.ndarray:
    batch, n, c = (rows[name].astype(np.float64) for name in ("batch", "new", "context"))
    return np.column_stack((np.ones(len(rows)), batch * n, batch * n * (c + 0.5 * n), batch * (c + n)))


def _decode_terms(rows: np.ndarray) -> np.ndarray:
    batch = rows["batch"].astype(np.float64)
    return np.column_stack((np.ones(len(rows)), batch, batch * rows["context"]))


def _robust(terms: np.ndarray, ms: np.ndarray) -> np.ndarray:
    """Return non-negative coefficients by least squares of relative errors, large ones counted linearly (Huber)."""
    from scipy.optimize import nnls

    scaled = terms / ms[:, None]
    size = np.linalg.norm(scaled, axis=0)
    size[size == 0] = 1.0
    weight = np.ones(len(ms))
    found = np.zeros(terms.shape[1])
    for _ in range(_ROUNDS):
        root = np.sqrt(weight)
        found = nnls(scaled / size * root[:, None], root)[0] / size
        error = np.abs(scaled @ found - 1.0)
        limit = max(_HUBER * _SCALE * float(np.median(error)), 1e-6)
        weight = np.minimum(1.0, limit / np.maximum(error, 1e-12))
    return found
