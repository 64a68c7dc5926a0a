"""Each of these policies is `reuse` without one of its parts, for the comparison `eviction_ablation`."""

from __future__ import annotations

from controllers.eviction.reuse import make

WITHOUT_CLASSES = make(classes=False)
"""Leaves that were never reused and others share their counts."""
WITHOUT_AGES = make(ages=False)
"""One count per class, whatever the age."""
WHOLE_LEAVES = make(halves=False)
"""The leaf goes whole."""
