"""Logged texts are cut at the marks of chat messages; each piece is tokenised once as long as it is remembered."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from itertools import accumulate, chain

import numpy as np

from kvgym.logs.forms.chat import last_answer, split
from kvgym.logs.tokens import Tokenise

_KEPT_TOKENS = 1 << 22
_PIECE_TOKENS = 32
"""What an entry takes beside its ids, in tokens: a short log line has pieces of few tokens, and many of them."""


class PieceTokeniser:
    """Tokenises texts piece by piece; later turns of a conversation repeat the pieces of the earlier ones.

    Ids of recent pieces are kept (at most some 4 million, 32 MB), not their texts.

    Attributes:
        chars: characters seen so far, repeated pieces included.
        tokens: their tokens.
    """

    def __init__(self, tokenise: Tokenise) -> None:
        self._tokenise = tokenise
        self._known: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._kept = 0
        self.chars = 0
        self.tokens = 0

    def __call__(self, texts: list[str]) -> list[tuple[np.ndarray, tuple[int, int]]]:
        """Return for each text its ids, int64, and where its last answer lies, in tokens ((-1, -1): there is none)."""
        pieces = [split(text) for text in texts]
        keys = [[_key(piece) for piece in parts] for parts in pieces]
        ids = self._look_up(dict(zip(chain(*keys), chain(*pieces), strict=True)))
        self.chars += sum(map(len, texts))
        out = []
        for parts, names in zip(pieces, keys, strict=True):
            found = [ids[name] for name in names]
            ends = list(accumulate(map(len, found), initial=0))
            answer = last_answer(parts)
            where = (-1, -1) if answer is None else (ends[answer[0]], ends[answer[1]])
            out.append((np.concatenate(found or [np.zeros(0, np.int64)]), where))
            self.tokens += ends[-1]
        return out

    def _look_up(self, wanted: dict[bytes, str]) -> dict[bytes, np.ndarray]:
        new = [key for key in wanted if key not in self._known]
        for key, ids in zip(new, self._tokenise([wanted[key] for key in new]), strict=True):
            self._known[key] = ids
            self._kept += len(ids) + _PIECE_TOKENS
        found = {}
        for key in wanted:
            found[key] = self._known[key]
            self._known.move_to_end(key)
        while self._kept > _KEPT_TOKENS:
            self._kept -= len(self._known.popitem(last=False)[1]) + _PIECE_TOKENS
        return found


def _key(piece: str) -> bytes:
    return blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=16).digest()
