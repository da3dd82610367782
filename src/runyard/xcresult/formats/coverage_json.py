"""Formats coverage as JSON: first the report (targets, files, functions), then every file's lines.

`lines` are pairs of line number and count, of executable lines only. The document is written piece by
piece, one file's lines at a time, so that a large app does not have to fit in memory as text.
"""

from collections.abc import Iterator

import msgspec

from runyard.xcresult.formats.coverage_files import share
from runyard.xcresult.reader.coverage.model import Coverage, FileCoverage, TargetCoverage


def render(coverage: Coverage) -> Iterator[str]:
    """Write the document in pieces; joined, they are one JSON object."""
    head = {
        **_totals(coverage),
        "warnings": [msgspec.to_builtins(warning) for warning in coverage.warnings],
    }
    yield _json(head)[:-1]
    yield ',"targets":['
    yield from _joined(_json(_target(target)) for target in coverage.targets)
    yield '],"files":['
    yield from _joined(_lines(coverage, path) for path in coverage.source.paths())
    yield "]}\n"


def _joined(items: Iterator[str]) -> Iterator[str]:
    comma = ""
    for item in items:
        yield comma + item
        comma = ","


def _target(target: TargetCoverage) -> dict[str, object]:
    return {
        "name": target.name,
        "identifier": target.identifier,
        "product": target.product,
        **_totals(target),
        "files": [_file(file) for file in target.files],
    }


def _file(file: FileCoverage) -> dict[str, object]:
    functions = [
        {
            "name": function.name,
            "line": function.line,
            "executions": function.count,
            "covered_lines": function.covered,
            "executable_lines": function.executable,
        }
        for function in file.functions
    ]
    return {"name": file.name, "path": file.path, **_totals(file), "functions": functions}


def _lines(coverage: Coverage, path: str) -> str:
    found = coverage.source.lines(path)
    return _json(
        {
            "path": path,
            "lines": [(line.number, line.count) for line in found.lines] if found else [],
            "ranges": found.ranges if found else (),
        }
    )


def _totals(item: Coverage | TargetCoverage | FileCoverage) -> dict[str, object]:
    return {
        "covered_lines": item.covered,
        "executable_lines": item.executable,
        "line_coverage": share(item.covered, item.executable),
    }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
