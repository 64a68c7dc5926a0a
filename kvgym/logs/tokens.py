"""Text becomes token ids by a Hugging Face tokenizer file, or a documented stand-in that needs no download."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from kvgym.errors import MissingDependencyError, WorkloadError
from kvgym.logs.rows import locate

Tokenise = Callable[[list[str]], list[np.ndarray]]
"""Texts -> token ids, int64, one array per text."""

_PIECE = re.compile(r"<\|im_(?:start|end)\|>| ?[A-Za-z]{1,12}|\d{1,3}| ?[^\w\s]{1,2}\n*|\s+(?=\s)|\s+|\w")
_MOST_PIECES = 1 << 18  # remembered; a log full of random strings has ever new ones


class FallbackTokeniser:
    """Counts tokens without a vocabulary: pieces of text, each with a 31-bit checksum as its id.

    A piece is a mark of a chat message (see `chat`), an ASCII word of at most 12 letters with the space before it, up
    to three digits, up to two signs with the line ends after them, a run of white space, or any other single letter.
    Equal texts have equal ids and, as pieces are found from left to right, equal beginnings have equal ids up to the
    last piece or so. On the answers of 1,701 ShareGPT conversations the total is within 1 % of the cl100k tokenizer's,
    single answers are within 12 % (5th to 95th percentile). The ids are no token ids of any model.
    """

    def __init__(self) -> None:
        self._ids = _Checksums()

    def __call__(self, texts: list[str]) -> list[np.ndarray]:
        """Return the ids of each text, int64."""
        if len(self._ids) > _MOST_PIECES:
            self._ids.clear()
        return [np.fromiter(map(self._ids.__getitem__, _PIECE.findall(text)), np.int64) for text in texts]


class _Checksums(dict[str, int]):
    """Piece -> its id, computed on first use."""

    def __missing__(self, piece: str) -> int:
        # surrogatepass: JSON may hold half a surrogate pair
        self[piece] = number = zlib.crc32(piece.encode("utf-8", "surrogatepass")) & 0x7FFFFFFF
        return number


def load_tokeniser(path: str | None) -> Tokenise:
    """Return the tokenizer in a `tokenizer.json` file, or the fallback without a path.

    Raises:
        MissingDependencyError: the package tokenizers is absent.
        WorkloadError: the file is no tokenizer.
    """
    if path is None:
        return FallbackTokeniser()
    try:
        import tokenizers
    except ImportError as error:
        raise MissingDependencyError(
            "a tokenizer file needs the package tokenizers: pip install 'kvgym[data]'; "
            "without `tokenizer` a built-in token counter is used"
        ) from error
    file = locate(path)
    try:
        loaded: Any = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises bare Exception
        raise WorkloadError(f"{file} is no tokenizer.json of the Hugging Face package tokenizers: {error}") from error

    def tokenise(texts: list[str]) -> list[np.ndarray]:
        clean = [text.encode("utf-8", "replace").decode() for text in texts]
        return [np.array(e.ids, np.int64) for e in loaded.encode_batch(clean, add_special_tokens=False)]

    return tokenise
