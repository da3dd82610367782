"""Parses another tool's Markdown report: counts, times, failures, runs and activities, coverage."""

import html
import re
from pathlib import Path

import msgspec

_PICTURE = re.compile(r'<img src="[^"]*/([a-z0-9-]+)\.(?:png|svg)"[^>]*>')
_NOISE = re.compile(r' (?:width|align|valign|rowspan|colspan)="[^"]*"')
_SECTIONS = {"Summary", "Test Summary", "Failures", "Code Coverage", "Test Details"}
STATUSES = {
    "passed": "Success",
    "failure": "Failure",
    "skipped": "Skipped",
    "expected-failure": "Expected Failure",
}


class SuiteFacts(msgspec.Struct, frozen=True):
    target: str
    suite: str
    counts: tuple[int, ...]
    """All, passed, failed, skipped, failed as expected."""


class FailureFacts(msgspec.Struct, frozen=True):
    test: str
    place: str
    issue_type: str
    message: str


class RunFacts(msgspec.Struct, frozen=True):
    target: str
    suite: str
    name: str
    status: str
    configuration: str
    activities: tuple[tuple[int, str], ...]


class CoverageFacts(msgspec.Struct, frozen=True):
    name: str
    covered: int
    executable: int


class Facts(msgspec.Struct):
    """All facts about a bundle in one file."""

    scheme: str
    counts: tuple[int, ...]
    seconds: str
    devices: list[tuple[str, str, str]] = msgspec.field(default_factory=list)
    """Target, device, SDK."""
    suites: list[SuiteFacts] = msgspec.field(default_factory=list)
    times: list[tuple[str, str, str]] = msgspec.field(default_factory=list)
    failures: list[FailureFacts] = msgspec.field(default_factory=list)
    runs: list[RunFacts] = msgspec.field(default_factory=list)
    coverage: list[CoverageFacts] = msgspec.field(default_factory=list)


def facts(path: Path) -> Facts:
    """Parse one file; fails on an unknown section."""
    text = _NOISE.sub("", _PICTURE.sub(r"{\1}", path.read_text(encoding="utf-8")))
    scheme = re.match(r"## Testing (?:project|workspace) \S+ with scheme (\S+)\n", text)
    assert scheme is not None
    parts = re.split(r"\n### (?:\{[a-z-]+\} )?", text)
    sections = {part.partition("\n")[0]: part.partition("\n")[2] for part in parts[1:]}
    assert set(sections) <= _SECTIONS
    *counts, seconds = _cells(sections["Summary"].split("<tr>")[2].partition("</table>")[0])
    found = Facts(scheme[1], tuple(map(int, counts)), seconds.removesuffix("s"))
    for part in sections["Test Summary"].split("#### ")[1:]:
        _target(found, part)
    _failures(found, sections["Failures"])
    for part in sections["Test Details"].split("#### ")[1:]:
        _details(found, part)
    for row in sections.get("Code Coverage", "").split("<tr>")[2:]:
        name, _, _, covered, executable = _cells(row.partition("</table>")[0])
        found.coverage.append(CoverageFacts(name, int(covered), int(executable)))
    return found


def _cells(row: str) -> list[str]:
    return [_plain(cell) for cell in re.split("<td>", row)[1:]]


def _plain(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>|\{[a-z0-9-]+\}|&nbsp;", "", text)).strip()


def _target(found: Facts, part: str) -> None:
    name = re.match(r'<a name="[^"]*"/>\[([^]]*)\]', part)
    device = re.search(r"- \*\*Device:\*\* (.*)", part)
    sdk = re.search(r"- \*\*SDK:\*\* (.*)", part)
    assert name is not None and device is not None and sdk is not None
    found.devices.append((name[1], device[1], sdk[1]))
    for row in part.split("<tr>")[2:]:
        suite, *counts = _cells(row.partition("</table>")[0])
        found.suites.append(SuiteFacts(name[1], suite, tuple(map(int, counts))))


def _failures(found: Facts, section: str) -> None:
    for part in section.split("<h4>")[1:]:
        title, _, table = part.partition("</h4>")
        cells = _cells(table.partition("</table>")[0])
        row = dict(zip(cells[::2], cells[1::2], strict=True))
        found.failures.append(
            FailureFacts(_plain(title), row["File"], row["Issue Type"], row["Message"])
        )


def _details(found: Facts, part: str) -> None:
    name = re.match(r'<a name="[^"]*"/>([^\[]*)\[', part)
    assert name is not None
    for suite in part.split("<h5>")[1:]:
        _suite(found, name[1], suite)


def _suite(found: Facts, target: str, part: str) -> None:
    name = part.partition("&nbsp;")[0]
    _, numbers, *runs = part.split("<table>")  # a suite may be empty
    *_, seconds = _cells(numbers.split("<tr>")[2].partition("</table>")[0])
    found.times.append((target, name, seconds.removesuffix("s")))
    for row in "".join(runs).split("<tr>")[1:]:
        head, _, rest = row.partition("\n")
        marks = re.findall(r"\{(passed|failure|skipped|expected-failure)\}", head)
        codes = [html.unescape(code) for code in re.findall("<code>([^<]*)</code>", head)]
        found.runs.append(
            RunFacts(
                target,
                name,
                codes[0],
                STATUSES[marks[-1]],
                codes[1] if len(codes) > 1 else "",
                tuple(
                    (len(indent) // 2, html.unescape(title))
                    for indent, title in re.findall("^( *)- (.*)$", rest, flags=re.MULTILINE)
                ),
            )
        )
