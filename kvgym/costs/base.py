"""The cost contract: a model of seconds per engine step, as the nine numbers that the compiled engine takes."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class CostModel(Protocol):
    """What a cost model offers."""

    def write(self, options: np.ndarray) -> None:
        """Write the engine's cost fields (seconds) into the OPTIONS record `options`, shape (1,)."""
        ...
