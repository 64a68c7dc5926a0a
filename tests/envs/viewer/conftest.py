"""A fleet in the middle of an episode, of any size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kvgym.envs.routing import RoutingEnv
from kvgym.envs.viewer.frame import Frame, make_frame


@pytest.fixture(scope="session")
def busy() -> Callable[..., Frame]:
    """Return the frame after `steps` requests have been dealt out in turn; workers in `down` may not be chosen."""

    def play(workers: int, steps: int = 60, down: tuple[int, ...] = ()) -> Frame:
        workload = {"source": "gsp", "groups": 12, "prompts_per_group": 10, "lens": [64, 128], "rate_rps": 30.0}
        env = RoutingEnv(workload, {"workers": workers, "capacity_tokens": 900}, eviction="rlt")
        env.reset(seed=0)
        for i in range(steps):
            env.step(i % workers)
        frame = make_frame(env._backend, env.decision, *env._last)
        frame.down[list(down)] = True
        return frame

    return play


@pytest.fixture(scope="session")
def contains() -> Callable[[np.ndarray, tuple[int, int, int]], bool]:
    """Say whether an image has a pixel of exactly this colour."""
    return lambda image, colour: bool((image == np.array(colour, np.uint8)).all(axis=-1).any())
