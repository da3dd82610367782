"""Formats coverage as a text table: targets and their files, like xccov."""

from collections.abc import Iterator

from runyard.xcresult.formats.coverage_files import plain, share
from runyard.xcresult.reader.coverage.model import Coverage, FileCoverage, TargetCoverage


def render(coverage: Coverage) -> Iterator[str]:
    """Write the table line by line."""
    rows = [row for target in coverage.targets for row in _rows(target)]
    rows.append(("Total", _figure(coverage)))
    width = max(len(name) for name, _ in rows)
    figures = max(len("Coverage"), *(len(figure) for _, figure in rows))
    yield f"{'Name':<{width}}  {'Coverage':>{figures}}\n"
    yield f"{'-' * width}  {'-' * figures}\n"
    for name, figure in rows:
        yield f"{name:<{width}}  {figure:>{figures}}\n"
    for warning in coverage.warnings:
        yield f"warning: {plain(warning.message)}\n"


def _rows(target: TargetCoverage) -> Iterator[tuple[str, str]]:
    yield plain(target.name), _figure(target)
    for file in target.files:
        yield f"  {plain(file.name)}", _figure(file)


def _figure(item: Coverage | TargetCoverage | FileCoverage) -> str:
    rate = f"{share(item.covered, item.executable):.2%}"
    return f"{rate} ({item.covered}/{item.executable})"
