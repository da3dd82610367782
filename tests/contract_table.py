"""Prints the driver contract's table: what each driver did with each case."""

import os

import pytest

DRIVER = "contract-driver"  # the property of a test by which it belongs to a driver
WORDS = {"passed": "ok", "failed": "FAILED", "error": "ERROR"}


def show(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table if `RUNYARD_CONTRACT_TABLE` asks for it, and count what drivers lack in any case."""
    cells: dict[str, dict[str, str]] = {}
    drivers: dict[str, None] = {}
    for outcome in (*WORDS, "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            driver = dict(getattr(report, "user_properties", ())).get(DRIVER)
            if driver is None:
                continue
            drivers[driver] = None
            word = WORDS.get(outcome) or (
                "lacks" if "lacks: " in str(report.longrepr) else "absent"
            )
            cells.setdefault(_case(report.nodeid), {})[driver] = word
    if not cells:
        return
    lacking = sum(list(row.values()).count("lacks") for row in cells.values())
    terminalreporter.section("driver contract")
    if os.environ.get("RUNYARD_CONTRACT_TABLE"):
        for line in table(cells, sorted(drivers)):
            terminalreporter.write_line(line)
    count = sum(len(row) for row in cells.values())
    terminalreporter.write_line(
        f"{len(cells)} cases on {len(drivers)} drivers: {count} run or declared, {lacking} declared as lacking"
    )


def table(cells: dict[str, dict[str, str]], drivers: list[str]) -> list[str]:
    """The lines: one for each case, one column for each driver."""
    width = max(len(case) for case in cells)
    lines = [f"{'':{width}}  {'  '.join(drivers)}"]
    for case in sorted(cells):
        row = (f"{cells[case].get(driver, '-'):{len(driver)}}" for driver in drivers)
        lines.append(f"{case:{width}}  {'  '.join(row)}".rstrip())
    return lines


def _case(nodeid: str) -> str:
    """A test's name in words, with its parameters other than the driver."""
    name, _, parameters = nodeid.rpartition("::")[2].removeprefix("test_").partition("[")
    others = [each for each in parameters.removesuffix("]").split("-") if each in STEPS]
    return " ".join([name.replace("_", " "), *(f"({each})" for each in others)])


STEPS = ("pull", "create", "clone", "start", "host", "guest", "ends", "killed")
