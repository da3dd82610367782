"""Describes damage as a recipe: a list of small edits that can be generated, applied to any bytes, and stored as text.

The corpus contains recipes and no bytes: the input of a recipe is generated. A position counts from the
start, a negative one from the end, and both wrap around, so a recipe fits any length.
"""

import ast
import os
from pathlib import Path

import pytest
from hypothesis import strategies as st

Edit = tuple[str, int, int, str]
"""The kind of edit, its position, its length, and the bytes to insert (hexadecimal)."""
Recipe = tuple[Edit, ...]

EXAMPLES = int(os.environ.get("RUNYARD_FUZZ_EXAMPLES", "25"))
FEW_AND_MANY = [
    pytest.param(EXAMPLES, id="few"),
    pytest.param(10 * EXAMPLES, id="many", marks=pytest.mark.long),
]
CORPUS = Path(__file__).parent / "corpus"
_INTERESTING = ("00", "ff", "7f", "80", "ffffffff", "00000000", "ffffffffffffffff", "2e2e2f")
_TOKENS = ("5b", "5d", "4b", "56", "53", "54", "3a", "393939393939", "K2:_v", "[S5:Array", "K2:_s[")


def apply(data: bytes, recipe: Recipe) -> bytes:
    """The damaged bytes."""
    out = bytearray(data)
    for what, where, much, text in recipe:
        at = where % (len(out) or 1)
        if what == "flip" and out:
            out[at] ^= 1 << (much % 8)
        elif what == "cut":
            del out[at:]
        elif what == "drop":
            del out[at : at + much]
        elif what == "put":
            piece = _bytes(text)
            out[at : at + len(piece)] = piece
        elif what == "insert":
            out[at:at] = _bytes(text)
        elif what == "repeat":
            out[at:at] = bytes(out[at : at + 64]) * (much % 64)
        elif what == "move":
            piece = out[at : at + 64]
            del out[at : at + 64]
            to = much % (len(out) or 1)
            out[to:to] = piece
    return bytes(out)


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return text.encode()


_where = st.one_of(
    st.integers(0, 64), st.integers(-80, -1), st.integers(0, 4096), st.integers(0, 1 << 22)
)
_text = st.one_of(
    st.sampled_from(_INTERESTING), st.sampled_from(_TOKENS), st.binary(max_size=9).map(bytes.hex)
)


def _edit(what: str) -> st.SearchStrategy[Edit]:
    much = st.integers(0, 300)
    return st.tuples(st.just(what), _where, much, _text)


recipes = st.lists(
    st.sampled_from(("flip", "cut", "drop", "put", "insert", "repeat", "move")).flatmap(_edit),
    min_size=1,
    max_size=4,
).map(tuple)


def corpus(name: str) -> list[tuple[str, Recipe]]:
    """Read the stored corpus: a target and a recipe on each line."""
    path = CORPUS / f"{name}.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [ast.literal_eval(line) for line in lines if line and not line.startswith("#")]
