"""`runyard xcresult show`: results in the format that was asked for."""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from runyard.cli.xcresultinput import Found
from runyard.cli.xcresultpaint import json_bytes, plain, shown, text_bytes
from runyard.xcresult.formats.apple import apple_tests
from runyard.xcresult.formats.github import MOST, github
from runyard.xcresult.formats.junit import junit
from runyard.xcresult.formats.lines import Line
from runyard.xcresult.formats.markdown import LIMIT, markdown
from runyard.xcresult.formats.tree import tree
from runyard.xcresult.reader.report import report


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of the command say of the format."""

    form: str = "tree"
    root: str = ""
    only_failures: bool = False
    details: bool = False
    most: int = MOST


def rendered(found: Sequence[Found], look: Look, *, terminal: bool) -> bytes:
    """All results as one text. `terminal`: it goes to standard output, which may have colours."""
    return _FORMATS[look.form](found, look, terminal)


def _tree(found: Sequence[Found], look: Look, terminal: bool) -> bytes:
    lines = (line for each in found for line in _lines(each, look))
    return shown(lines) if terminal else plain(lines).encode("utf-8", "replace")


def _lines(found: Found, look: Look) -> Iterator[Line]:
    return tree(
        found.result,
        title=found.name,
        only_failures=look.only_failures,
        details=look.details,
        crashes=found.crashes,
    )


def _markdown(found: Sequence[Found], look: Look, _: bool) -> bytes:
    limit = LIMIT // len(found) - 1
    texts = (markdown(one.result, title=one.name, root=look.root, limit=limit) for one in found)
    return text_bytes("\n".join(texts))


def _github(found: Sequence[Found], look: Look, _: bool) -> bytes:
    named = [(each.name, each.result) for each in found]
    return text_bytes(
        "".join(f"{line}\n" for line in github(named, root=look.root, most=look.most))
    )


def _junit(found: Sequence[Found], look: Look, _: bool) -> bytes:
    lines = junit([each.result for each in found], root=look.root)
    return "".join(f"{line}\n" for line in lines).encode()


_FORMATS: dict[str, Callable[[Sequence[Found], Look, bool], bytes]] = {
    "tree": _tree,
    "json": lambda found, _, __: json_bytes(*(report(e.result, crashes=e.crashes) for e in found)),
    "junit": _junit,
    "markdown": _markdown,
    "github": _github,
    "apple": lambda found, _, __: json_bytes(*(apple_tests(each.result) for each in found)),
}
FORMATS = tuple(_FORMATS)
