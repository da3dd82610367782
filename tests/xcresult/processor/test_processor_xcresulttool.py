"""Tests the comparison with xcresulttool: differences are counted and logged, results do not change."""

import json
import stat
from pathlib import Path

import msgspec
import pytest
from tests.xcresult.processor.processor_harness import Harness, looped, row_of, zipped
from tests.xcresult.writer.plan import Plan

from runyard.telemetry.catalogue import RUNYARD_PROCESSOR_VERIFICATIONS_TOTAL
from runyard.xcresult.bundle.reading import read
from runyard.xcresult.formats.apple import apple_tests
from runyard.xcresult.processor.xcresulttool import differences

PLAN = Plan(cases=6, failures=1, arguments=1, retries=1)


def stand_in(folder: Path, output: str, code: int = 0) -> str:
    """Write a program that prints like `xcrun xcresulttool get test-results tests` and checks its arguments."""
    (folder / "output.json").write_text(output)
    program = folder / "xcrun"
    program.write_text(
        "#!/bin/sh\n"
        'test "$1 $2 $3 $4" = "xcresulttool get test-results tests" || exit 64\n'
        'for last; do :; done; test -f "$last/Info.plist" || exit 66\n'
        f'cat "{folder}/output.json"\nexit {code}\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


@pytest.mark.parametrize("outcome", ["same", "different", "failed"])
@looped
async def test_apples_tool_is_run_and_its_output_compared(
    database_url: str, tmp_path: Path, outcome: str
) -> None:
    harness = Harness(database_url, tmp_path)
    content = zipped(tmp_path, PLAN)
    (tmp_path / "bundle.zip").write_bytes(content)
    output = msgspec.json.encode(apple_tests(read(tmp_path / "bundle.zip"))).decode()
    if outcome == "different":
        output = output.replace('"Failed"', '"Passed"')
    program = stand_in(tmp_path, output, code=1 if outcome == "failed" else 0)
    await harness.upload(content, 0)
    async with harness.processing(verify_with=program):
        await harness.over(1)
    assert row_of(database_url)[0] == "processed"
    assert harness.meter.get(RUNYARD_PROCESSOR_VERIFICATIONS_TOTAL, outcome=outcome) == 1
    assert ("xcresulttool prints other tests" in harness.log.events) == (outcome == "different")


def test_a_node_that_only_one_side_has_is_named() -> None:
    ours = {"testNodes": [{"nodeType": "Test Case", "name": "a", "result": "Passed"}]}
    theirs = json.loads(json.dumps(ours))
    assert differences(ours, theirs) == []
    theirs["testNodes"][0]["children"] = [{"nodeType": "Repetition", "name": "First Run"}]
    (difference,) = differences(ours, theirs)
    assert difference.startswith("only xcresulttool:") and "First Run" in difference
    assert differences("nonsense", {"testNodes": [3]}) == ["only xcresulttool: /   "]
