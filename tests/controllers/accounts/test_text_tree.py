from __future__ import annotations

import pytest

from controllers.accounts.text_tree import TextTree


def test_advance__evicts_at_multiples_of_the_period(fleet):
    tree = TextTree(fleet(2), max_chars=900, evict_every_s=60.0)
    tree.insert(0, 2, 1.0)
    tree.insert(0, 3, 2.0)
    tree.advance(59.9)
    assert tree.chars.tolist() == [1200, 0]
    tree.advance(60.0)
    assert tree.chars.tolist() == [800, 0]
    tree.insert(0, 2, 61.0)
    tree.advance(119.0)
    assert tree.chars.tolist() == [1200, 0]
    tree.advance(1000.0)
    assert tree.match_chars(2).tolist() == [800, 0]
    assert tree.chars.tolist() == [800, 0]


def test_matched_fraction__counts_the_whole_prompt(fleet):
    tree = TextTree(fleet(1), 1000, 60.0)
    assert tree.matched_fraction(2, 1000) == pytest.approx(0.8)
    assert tree.matched_fraction(0, 0) == 0.0
