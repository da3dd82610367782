"""Runs `runyard xcresult show` and `figures`: prints results in the chosen format."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from runyard.cli.xcresultinput import Found, bundle, deliver, errors_in_one_line, read, read_in
from runyard.cli.xcresultpaint import json_bytes, plain, shown, text_bytes
from runyard.xcresult.bundle.verifying import verify as verified
from runyard.xcresult.formats.apple import apple_tests
from runyard.xcresult.formats.github import MOST, github
from runyard.xcresult.formats.junit import junit
from runyard.xcresult.formats.lines import Line
from runyard.xcresult.formats.markdown import LIMIT, markdown
from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.formats.tree import tree
from runyard.xcresult.reader.figures import figures as figures_of
from runyard.xcresult.reader.model import Wanted
from runyard.xcresult.reader.report import report
from runyard.xcresult.reader.verdict import verdict


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the format."""

    form: str = "tree"
    sources: Sources = Sources()
    pictures_url: str = ""
    limit: int = LIMIT
    only_failures: bool = False
    details: bool = False
    most: int = MOST


def show(paths: Sequence[str], style: Style, *, output: Path | None, processes: int) -> bool:
    """Print the bundles; whether a test, a runner or the build failed."""
    wanted = Wanted(activities=style.details)
    found = [read(path, wanted=wanted, processes=processes) for path in paths]
    with errors_in_one_line(", ".join(paths)):
        text = rendered(found, style, terminal=output is None)
    deliver([text], output)
    return any(verdict(each.result).bad for each in found)


def figures(path: str, *, processes: int) -> None:
    """Print the numbers of a bundle as JSON."""
    with bundle(path) as directory:
        checked = verified(directory)
        result = read_in(directory, path, processes=processes)
        found = figures_of(result, objects=checked.objects, objects_hash_ok=checked.hash_ok)
    deliver([json_bytes(found)], None)


def rendered(found: Sequence[Found], style: Style, *, terminal: bool) -> bytes:
    """All results as one text. `terminal`: the text goes to standard output and may have colours."""
    return _FORMATS[style.form](found, style, terminal)


def _tree(found: Sequence[Found], style: Style, terminal: bool) -> bytes:
    lines = (line for each in found for line in _lines(each, style))
    return shown(lines) if terminal else plain(lines).encode("utf-8", "replace")


def _lines(found: Found, style: Style) -> Iterator[Line]:
    return tree(
        found.result,
        title=found.name,
        only_failures=style.only_failures,
        details=style.details,
        crashes=found.crashes,
    )


def _markdown(found: Sequence[Found], style: Style, _: bool) -> bytes:
    limit = style.limit // len(found) - 1
    texts = (
        markdown(
            one.result,
            title=one.name,
            sources=style.sources,
            pictures_url=style.pictures_url,
            limit=limit,
        )
        for one in found
    )
    return text_bytes("\n".join(texts))


def _github(found: Sequence[Found], style: Style, _: bool) -> bytes:
    named = [(each.name, each.result) for each in found]
    return text_bytes(
        "".join(f"{line}\n" for line in github(named, sources=style.sources, most=style.most))
    )


def _junit(found: Sequence[Found], style: Style, _: bool) -> bytes:
    lines = junit([each.result for each in found], sources=style.sources)
    return "".join(f"{line}\n" for line in lines).encode()


_FORMATS: dict[str, Callable[[Sequence[Found], Style, bool], bytes]] = {
    "tree": _tree,
    "json": lambda found, _, __: json_bytes(*(report(e.result, crashes=e.crashes) for e in found)),
    "junit": _junit,
    "markdown": _markdown,
    "github": _github,
    "apple": lambda found, _, __: json_bytes(*(apple_tests(each.result) for each in found)),
}
FORMATS = tuple(_FORMATS)
