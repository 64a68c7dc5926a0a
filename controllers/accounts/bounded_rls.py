"""Recursive least squares with forgetting fits one model per worker; memory and gain stay bounded for ever."""

from __future__ import annotations

import numpy as np

from kvgym.jit.door import njit


@njit()
def _update(
    thetas: np.ndarray, covariances: np.ndarray, worker: int, row: np.ndarray, phi: np.ndarray, y: float,
    forgetting: float, limit: np.ndarray, lowest: np.ndarray,
) -> None:  # fmt: skip
    """One step for one worker; `row` is scratch. Shapes: (workers, k), covariances (workers, k, k), else (k,)."""
    theta, covariance = thetas[worker], covariances[worker]
    k = len(theta)
    spread, error = forgetting, y
    for i in range(k):
        row[i] = 0.0
        for j in range(k):
            row[i] += covariance[i, j] * phi[j]
        spread += phi[i] * row[i]
        error -= phi[i] * theta[i]
    for i in range(k):
        theta[i] = max(theta[i] + row[i] / spread * error, lowest[i])
        for j in range(k):
            covariance[i, j] = (covariance[i, j] - row[i] * row[j] / spread) / forgetting
    # Shrinking row and column i together keeps the matrix positive definite.
    for i in range(k):
        if covariance[i, i] > limit[i]:
            scale = np.sqrt(limit[i] / covariance[i, i])
            for j in range(k):
                covariance[i, j] *= scale
                covariance[j, i] *= scale


class BoundedRLS:
    """Linear models y = theta . phi, fitted online; a variance never grows above its initial value.

    Plain forgetting divides the covariance by `forgetting` at every step: in directions that the data do not excite it
    grows without limit, until one odd observation throws theta away or the numbers overflow (as they do in the LBGR
    release, see `lbgr_release`). Here each diagonal entry is cut back to its initial value.

    Args:
        workers: number of models.
        start: initial theta, shape (k,).
        variance: initial variances of theta in units of the noise variance, and their upper bounds, shape (k,).
        forgetting: weight of the past per observation, 0..1.
        lowest: lower bounds of theta, shape (k,); none: unbounded.
    """

    def __init__(
        self, workers: int, start: np.ndarray, variance: np.ndarray, forgetting: float, lowest: np.ndarray | None = None
    ) -> None:
        self.theta = np.tile(np.asarray(start, np.float64), (workers, 1))
        self.forgetting = forgetting
        self._limit = np.asarray(variance, np.float64)
        self._lowest = np.full(len(self._limit), -np.inf) if lowest is None else np.asarray(lowest, np.float64)
        self._covariance = np.tile(np.diag(self._limit), (workers, 1, 1))
        self._row = np.zeros(len(self._limit))

    def update(self, worker: int, phi: np.ndarray, y: float) -> None:
        """Learn one observation of `worker`: features `phi`, float64 (k,), and the value `y`."""
        _update(
            self.theta, self._covariance, worker, self._row, phi, y, self.forgetting, self._limit, self._lowest
        )  # fmt: skip
