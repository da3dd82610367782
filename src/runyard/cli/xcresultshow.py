"""`runyard xcresult show`: results in the format that was asked for."""

from collections.abc import Callable, Sequence

import msgspec

from runyard.cli.harmless import harmless
from runyard.cli.xcresultpaint import plain, shown
from runyard.xcresult.formats.apple import apple_tests
from runyard.xcresult.formats.github import MOST, github
from runyard.xcresult.formats.junit import junit
from runyard.xcresult.formats.markdown import LIMIT, markdown
from runyard.xcresult.formats.tree import tree
from runyard.xcresult.reader.model import Result
from runyard.xcresult.reader.report import report

Named = tuple[str, Result]


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of the command say of the format."""

    form: str = "tree"
    root: str = ""
    only_failures: bool = False
    details: bool = False
    most: int = MOST


def rendered(found: Sequence[Named], look: Look, *, terminal: bool) -> bytes:
    """All results as one text. `terminal`: it goes to standard output, which may have colours."""
    return _FORMATS[look.form](found, look, terminal)


def as_json(values: Sequence[object]) -> bytes:
    """One value, or a list of them when there are several."""
    value = values[0] if len(values) == 1 else values
    return _text(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def _tree(found: Sequence[Named], look: Look, terminal: bool) -> bytes:
    lines = (
        line
        for name, result in found
        for line in tree(result, title=name, only_failures=look.only_failures, details=look.details)
    )
    return shown(lines) if terminal else plain(lines).encode("utf-8", "replace")


def _markdown(found: Sequence[Named], look: Look, _: bool) -> bytes:
    each = LIMIT // len(found) - 1
    return _text(
        "\n".join(markdown(one, title=name, root=look.root, limit=each) for name, one in found)
    )


def _github(found: Sequence[Named], look: Look, _: bool) -> bytes:
    return _text("".join(f"{line}\n" for line in github(found, root=look.root, most=look.most)))


def _junit(found: Sequence[Named], look: Look, _: bool) -> bytes:
    lines = junit([result for _, result in found], root=look.root)
    return "".join(f"{line}\n" for line in lines).encode()


def _text(text: str) -> bytes:
    return harmless(text).encode("utf-8", "replace")


_FORMATS: dict[str, Callable[[Sequence[Named], Look, bool], bytes]] = {
    "tree": _tree,
    "json": lambda found, _, __: as_json([report(result) for _, result in found]),
    "junit": _junit,
    "markdown": _markdown,
    "github": _github,
    "apple": lambda found, _, __: as_json([apple_tests(result) for _, result in found]),
}
FORMATS = tuple(_FORMATS)
