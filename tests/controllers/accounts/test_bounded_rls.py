from __future__ import annotations

import numpy as np

from controllers.accounts.bounded_rls import BoundedRLS


def test_fit__finds_the_model_of_each_worker():
    rng, truth = np.random.default_rng(0), np.array([[0.5, 2.0], [-1.0, 3.0]])
    fit = BoundedRLS(2, np.zeros(2), np.full(2, 100.0), 0.999)
    for step in range(2000):
        phi = np.array([1.0, rng.random()])
        fit.update(step % 2, phi, float(phi @ truth[step % 2] + 0.1 * rng.standard_normal()))
    np.testing.assert_allclose(fit.theta, truth, atol=0.05)


def test_plain_least_squares__without_forgetting_and_with_a_wide_start():
    rng = np.random.default_rng(1)
    phi, y = rng.random((50, 3)), rng.random(50)
    fit = BoundedRLS(1, np.zeros(3), np.full(3, 1e6), 1.0)
    for row, value in zip(phi, y, strict=True):
        fit.update(0, row, float(value))
    np.testing.assert_allclose(fit.theta[0], np.linalg.lstsq(phi, y, rcond=None)[0], rtol=1e-4)


def test_changed_truth__is_followed():
    fit = BoundedRLS(1, np.zeros(1), np.ones(1), 0.95)
    for value in [1.0] * 300 + [5.0] * 300:
        fit.update(0, np.ones(1), value)
    assert abs(fit.theta[0, 0] - 5.0) < 0.01


def test_300000_updates_in_one_direction__variances_stay_bounded_and_definite():
    limit = np.array([1.0, 0.01, 0.01, 1.0])
    fit = BoundedRLS(1, np.zeros(4), limit, 0.992)
    phi = np.array([1.0, 0.0, 2.0, 0.5])
    for _ in range(300_000):
        fit.update(0, phi, 3.0)
    covariance = fit._covariance[0]
    assert (np.diag(covariance) <= limit * (1 + 1e-9)).all()
    assert np.linalg.eigvalsh(covariance).min() > -1e-12
    assert abs(fit.theta[0] @ phi - 3.0) < 1e-6


def test_lowest__bounds_theta():
    fit = BoundedRLS(1, np.ones(1), np.ones(1), 0.9, np.array([0.25]))
    for _ in range(50):
        fit.update(0, np.ones(1), -10.0)
    assert fit.theta[0, 0] == 0.25
