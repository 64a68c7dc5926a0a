"""Joint-v0 for several agents under PettingZoo's names: env, raw_env and parallel_env."""

from __future__ import annotations

from typing import Any

from kvgym.envs.aec import JointAEC
from kvgym.envs.parallel import JointParallel
from kvgym.errors import MissingDependencyError

try:
    from pettingzoo.utils.wrappers import OrderEnforcingWrapper
except ImportError as error:
    raise MissingDependencyError("this needs PettingZoo; pip install 'kvgym[pettingzoo]'") from error

raw_env = JointAEC
"""The AEC environment as it is."""
parallel_env = JointParallel
"""The parallel environment: all agents answer, the one whose decision it is is heard."""


def env(**kwargs: Any) -> OrderEnforcingWrapper:
    """Return the AEC environment, which complains about calls in the wrong order.

    PettingZoo's wrappers against illegal actions are left out: here these have a stated meaning and are counted.
    """
    return OrderEnforcingWrapper(raw_env(**kwargs))
