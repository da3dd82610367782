"""Validates request bodies for the practice GitHub as GitHub validates them."""

import msgspec

from runyard.embedded.github.identity import Denied
from runyard.wire.names import RUNNER_NAME_LIMIT

_MAX_LABELS = 100
_MAX_LABEL = 256
_MAX_PER_PAGE = 100


class MintBody(msgspec.Struct, frozen=True):
    """The body of `generate-jitconfig`."""

    name: str
    runner_group_id: int
    labels: tuple[str, ...]
    work_folder: str = "_work"


_decoder = msgspec.json.Decoder(MintBody)


def read_mint(body: bytes) -> MintBody:
    """Reads and validates a mint; raises `Denied` with 400 or 422."""
    try:
        mint = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Denied(422, f"Invalid request. {error}"[:200]) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # the last: nested too deeply
        raise Denied(400, "Problems parsing JSON") from None
    if not mint.name.strip() or len(mint.name) > RUNNER_NAME_LIMIT:
        raise Denied(422, f"The runner name must have 1 to {RUNNER_NAME_LIMIT} characters")
    if not 1 <= len(mint.labels) <= _MAX_LABELS:
        raise Denied(422, f"There must be 1 to {_MAX_LABELS} labels")
    if any(not label.strip() or len(label) > _MAX_LABEL for label in mint.labels):
        raise Denied(422, f"A label must have 1 to {_MAX_LABEL} characters")
    if mint.runner_group_id != 1:
        raise Denied(422, "No such runner group")
    return mint


def number(text: str, *, default: int = 0) -> int:
    """A decimal number from a path or a query; the default for anything else."""
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    return default


def per_page(text: str) -> int:
    """A page size: as at GitHub, 30 for invalid text and at most 100."""
    return min(number(text) or 30, _MAX_PER_PAGE)
