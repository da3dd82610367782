"""Formats coverage as Cobertura XML, for GitLab, Jenkins, Azure and SonarQube.

A directory is a package and a source file is a class, because Apple's data has neither. The rate of a package or a
class is computed from its lines. The totals are Apple's, from the report, so that they match Xcode
(reader/coverage/model.py explains the difference). Without a report they are computed from the lines. Apple counts no
branches, so there are none.

Consumers need paths relative to the checkout; `sources` maps those of the machine that ran the tests.
"""

from collections.abc import Iterator
from xml.sax.saxutils import quoteattr

import msgspec

from runyard.xcresult.formats.coverage_files import plain, share
from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.reader.coverage.model import Coverage, FileLines, Line

HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<!DOCTYPE coverage SYSTEM "http://cobertura.sourceforge.net/xml/coverage-04.dtd">\n'
)
NO_BRANCHES = 'branch-rate="0" complexity="0"'


class _Counts(msgspec.Struct, gc=False):
    covered: int = 0
    valid: int = 0

    def add(self, lines: tuple[Line, ...]) -> None:
        self.covered += sum(line.count > 0 for line in lines)
        self.valid += len(lines)

    @property
    def rate(self) -> str:
        return f'line-rate="{share(self.covered, self.valid)}"'


def render(
    coverage: Coverage,
    *,
    sources: Sources = Sources(),  # noqa: B008  (frozen)
    timestamp: float = 0.0,
) -> Iterator[str]:
    """Write the document, one piece for each file. `timestamp` is the start of the tests."""
    packages: dict[str, list[str]] = {}
    for path in sorted(coverage.source.paths()):
        packages.setdefault(sources.shown(path).rpartition("/")[0], []).append(path)
    counted = {
        name: _counts(coverage, paths) for name, paths in packages.items()
    }  # a rate is written before its lines, so all lines are read twice instead of being kept in memory
    total = _total(coverage, counted)
    yield HEAD
    yield (
        f'<coverage {total.rate} lines-covered="{total.covered}" lines-valid="{total.valid}" '
        f'branches-covered="0" branches-valid="0" {NO_BRANCHES} '
        f'version="runyard" timestamp="{timestamp:.3f}">\n'
    )
    yield f"  <sources>\n    <source>{_escaped(sources.root or '.')}</source>\n  </sources>\n"
    yield "  <packages>\n"
    for name, paths in packages.items():
        dotted = name.strip("/").replace("/", ".")
        yield (
            f"    <package name={_quoted(dotted)} {counted[name].rate} {NO_BRANCHES}>\n"
            "      <classes>\n"
        )
        for path in paths:
            yield _class(dotted, sources.shown(path), coverage.source.lines(path) or FileLines())
        yield "      </classes>\n    </package>\n"
    yield "  </packages>\n</coverage>\n"


def _counts(coverage: Coverage, paths: list[str]) -> _Counts:
    counts = _Counts()
    for path in paths:
        found = coverage.source.lines(path)
        counts.add(found.lines if found else ())
    return counts


def _total(coverage: Coverage, counted: dict[str, _Counts]) -> _Counts:
    if coverage.executable:
        return _Counts(coverage.covered, coverage.executable)
    return _Counts(
        sum(counts.covered for counts in counted.values()),
        sum(counts.valid for counts in counted.values()),
    )


def _class(package: str, path: str, found: FileLines) -> str:
    counts = _Counts()
    counts.add(found.lines)
    stem = path.rpartition("/")[2].rpartition(".")[0] or path
    name = f"{package}.{stem}" if package else stem
    lines = "".join(
        f'            <line number="{line.number}" hits="{line.count}" branch="false"/>\n'
        for line in found.lines
    )
    return (
        f"        <class name={_quoted(name)} filename={_quoted(path)} {counts.rate} {NO_BRANCHES}>\n"
        f"          <methods/>\n          <lines>\n{lines}          </lines>\n        </class>\n"
    )


def _quoted(text: str) -> str:
    return quoteattr(plain(text))


def _escaped(text: str) -> str:
    return _quoted(text)[1:-1]
