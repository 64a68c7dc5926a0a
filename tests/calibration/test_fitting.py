import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgym.calibration.fitting import NAMES, fit, predicted
from kvgym.calibration.observations import DECODE, FIRST_TOKEN, OBSERVATION, PREFILL
from kvgym.errors import ConfigError

TRUE = np.array([8.0, 0.06, 2e-6, 1e-5, 7.0, 0.03, 1e-4, 15.0])


def design(phases, noise=0.0, seed=0):
    """Steps over a grid of sizes, with the times that TRUE gives them."""
    rng = np.random.default_rng(seed)
    rows = []
    for phase in phases:
        for size in (16, 64, 256, 1024, 4096):
            for context in (0, 512, 4096):
                for batch in (1, 4) if phase != FIRST_TOKEN else (1,):
                    rows.append((phase, batch, 1 if phase == DECODE else size, context + size, 0.0))
    found = np.array(rows, OBSERVATION)
    found["ms"] = predicted(found, TRUE) * np.exp(noise * rng.standard_normal(len(found)))
    return found


def test_exact_times__give_the_coefficients_back():
    found = fit(design((PREFILL, DECODE, FIRST_TOKEN)), resamples=5)
    assert found.values == pytest.approx(TRUE, rel=1e-6)
    assert np.abs(found.relative).max() < 1e-9
    assert found.cost.p_tok_ms == pytest.approx(0.06)


def test_noise__true_values_lie_within_the_draws():
    found = fit(design((PREFILL, DECODE, FIRST_TOKEN), noise=0.05, seed=3), resamples=100)
    low, high = np.percentile(found.draws, (0.5, 99.5), axis=0)
    for name, true, least, most in zip(NAMES, TRUE, low, high, strict=True):
        if name in ("p0_ms", "p_tok_ms", "d0_ms", "d_seq_ms", "d_kvtok_ms"):
            assert least <= true <= most, name
    assert found.covariance.shape == (8, 8)


def test_outliers__a_tenth_of_wild_times_moves_little():
    rows = design((PREFILL, DECODE), noise=0.01, seed=1)
    rows["ms"][::10] *= 8.0
    found = fit(rows, resamples=2).values
    assert found[[1, 4]] == pytest.approx(TRUE[[1, 4]], rel=0.1)


def test_client_times_alone__what_exceeds_a_decode_step_is_the_request():
    found = fit(design((DECODE, FIRST_TOKEN)), resamples=2).values
    assert found[0] == pytest.approx(TRUE[4], rel=1e-6)
    assert found[0] + found[7] == pytest.approx(TRUE[0] + TRUE[7], rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_coefficients__are_never_negative(seed):
    rows = design((PREFILL, DECODE), noise=0.5, seed=seed)
    found = fit(rows, resamples=2)
    assert (found.values >= 0).all()
    assert (found.draws >= 0).all()


def test_too_little__is_named():
    rows = design((PREFILL, DECODE))
    with pytest.raises(ConfigError, match="0 observations of decode are too few"):
        fit(rows[rows["phase"] == PREFILL])
    with pytest.raises(ConfigError, match="fewer than three lengths"):
        fit(rows[(rows["phase"] == DECODE) | (rows["new"] == 64)])
