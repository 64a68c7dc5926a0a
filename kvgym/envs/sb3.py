"""The vector environment acts as a VecEnv of stable-baselines3, so that its algorithms train on it directly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from kvgym.envs.vector import RoutingVectorEnv, info_of
from kvgym.errors import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv


def as_vec_env(envs: VectorEnv) -> VecEnv:
    """Return `envs` as a stable-baselines3 VecEnv; the observation is a dict, so policies are ``MultiInputPolicy``.

    It may be the native vector environment or any of gymnasium's (``SyncVectorEnv``, ``AsyncVectorEnv``, wrappers
    around them) of whatever autoreset mode: where that is not ``SAME_STEP``, copies whose episode has ended are reset
    here, at once, as stable-baselines3 expects.

    Its infos are those of the scalar environment, with ``terminal_observation`` and ``TimeLimit.truncated`` at the end
    of an episode. ``env_method("action_masks")`` works, so MaskablePPO does. Episode statistics for the log come from
    stable-baselines3's ``VecMonitor`` around it.

    Raises:
        ConfigError: `envs` is no vector environment.
        MissingDependencyError: stable-baselines3 is not installed.
    """
    try:
        from stable_baselines3.common.vec_env import VecEnv
    except ImportError as error:
        raise MissingDependencyError("this needs stable-baselines3; pip install 'kvgym[train]'") from error
    if not isinstance(envs, VectorEnv):
        raise ConfigError(f"as_vec_env takes a vector environment, as gymnasium.make_vec makes, got {envs!r}")

    class GymnasiumVecEnv(VecEnv):
        """Passes every call on to the vector environment."""

        def __init__(self) -> None:
            super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

        def reset(self) -> Any:
            options = self._options[0] if any(self._options) else None
            observation, infos = envs.reset(seed=self._seeds, options=options)
            self.reset_infos = [info_of(infos, i) for i in range(self.num_envs)]
            self._reset_seeds()
            self._reset_options()
            return observation

        def step_async(self, actions: np.ndarray) -> None:
            self._actions = actions

        def step_wait(self) -> Any:
            return step(envs, self._actions)

        def close(self) -> None:
            envs.close()

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            value = None if attr_name == "render_mode" else getattr(envs, attr_name)
            return [value for _ in self._get_indices(indices)]

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            raise AttributeError(f"{attr_name!r} can't be set: the copies of a vector environment are not separate")

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            if method_name != "action_masks":
                raise AttributeError(f"only action_masks can be called, got {method_name!r}")
            masks = _masks(envs)
            return [masks[i] for i in self._get_indices(indices)]

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            return [False for _ in self._get_indices(indices)]

    return GymnasiumVecEnv()


def step(envs: VectorEnv, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
    """Make a step and return it in the form of stable-baselines3: observation, rewards, ends and infos.

    As in DummyVecEnv, the info of an episode's last step says what it saw, and the observation begins the next one.
    """
    observation, reward, terminated, truncated, infos = envs.step(actions)
    ended = terminated | truncated
    each = [info_of(infos, i) for i in range(envs.num_envs)]
    over = np.flatnonzero(ended).tolist()
    if envs.metadata.get("autoreset_mode") is AutoresetMode.SAME_STEP:
        for i in over:
            each[i] = each[i]["final_info"] | {"terminal_observation": infos["final_obs"][i]}
    elif over:
        for i in over:
            each[i]["terminal_observation"] = {name: rows[i].copy() for name, rows in observation.items()}
        # Whoever resets ended copies gets all observations back, those of the others as they were.
        observation, _ = envs.reset(options={"reset_mask": ended})
    for info, cut in zip(each, (truncated & ~terminated).tolist(), strict=True):
        info["TimeLimit.truncated"] = cut
    return observation, reward.astype(np.float32), ended, each


def _masks(envs: VectorEnv) -> Any:
    """Return which actions are allowed, one row for each copy."""
    native = envs.unwrapped
    return native.action_masks() if isinstance(native, RoutingVectorEnv) else native.call("action_masks")  # type: ignore[attr-defined]
