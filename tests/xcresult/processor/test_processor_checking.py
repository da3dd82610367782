"""A second opinion is counted and told, and changes nothing; without one nothing is asked."""

import json
import stat
from pathlib import Path

import msgspec
import pytest
from tests.xcresult.processor.processorworld import World, looped, row_of, zipped

from runyard.telemetry.catalogue import RUNYARD_PROCESSOR_CHECKS_TOTAL
from runyard.xcresult.bundle.reading import read
from runyard.xcresult.formats.apple import apple_tests
from runyard.xcresult.processor.checking import differences
from runyard.xcresult.writer.plan import Plan

PLAN = Plan(cases=6, failures=1, arguments=1, retries=1)


def stand_in(folder: Path, says: str, code: int = 0) -> str:
    """A program that answers as `xcrun xcresulttool get test-results tests` does, and looks at what it was asked."""
    (folder / "says.json").write_text(says)
    program = folder / "xcrun"
    program.write_text(
        "#!/bin/sh\n"
        'test "$1 $2 $3 $4" = "xcresulttool get test-results tests" || exit 64\n'
        'for last; do :; done; test -f "$last/Info.plist" || exit 66\n'
        f'cat "{folder}/says.json"\nexit {code}\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


@pytest.mark.parametrize("outcome", ["same", "different", "failed"])
@looped
async def test_apples_tool_is_asked_and_its_answer_counted(
    database_url: str, tmp_path: Path, outcome: str
) -> None:
    world = World(database_url, tmp_path)
    content = zipped(tmp_path, PLAN)
    (tmp_path / "bundle.zip").write_bytes(content)
    says = msgspec.json.encode(apple_tests(read(tmp_path / "bundle.zip"))).decode()
    if outcome == "different":
        says = says.replace('"Failed"', '"Passed"')
    program = stand_in(tmp_path, says, code=1 if outcome == "failed" else 0)
    await world.upload(content, 0)
    async with world.processing(verify_with=program):
        await world.over(1)
    assert row_of(database_url)[0] == "processed"
    assert world.meter.get(RUNYARD_PROCESSOR_CHECKS_TOTAL, outcome=outcome) == 1
    assert ("Apple's tool says otherwise" in world.log.events) == (outcome == "different")


def test_a_node_that_only_one_side_has_is_named() -> None:
    ours = {"testNodes": [{"nodeType": "Test Case", "name": "a", "result": "Passed"}]}
    theirs = json.loads(json.dumps(ours))
    assert differences(ours, theirs) == []
    theirs["testNodes"][0]["children"] = [{"nodeType": "Repetition", "name": "First Run"}]
    (told,) = differences(ours, theirs)
    assert told.startswith("only Apple's:") and "First Run" in told
    assert differences("nonsense", {"testNodes": [3]}) == ["only Apple's: /   "]
