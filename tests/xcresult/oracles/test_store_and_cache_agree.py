"""Tests that our reading of a bundle's store agrees with the cache that Apple's tool left in the bundle."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.xcresult import fixtures
from tests.xcresult.oracles.agreement import differences

from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.cache.reading import read_cache
from runyard.xcresult.reader.aggregation import case_status
from runyard.xcresult.reader.model import Case, Result, Run, Wanted
from runyard.xcresult.reader.result import read_result

DATABASE = "database.sqlite3"
AGGREGATES = """
SELECT c.name, coalesce(k.name, ''), r.result
FROM TestCaseResultsByDestinationAndConfiguration r
JOIN TestCases c ON c.rowid = r.testCase_fk
LEFT JOIN TestPlanConfigurations k ON k.rowid = r.configuration_fk
WHERE (r.destination_fk IS NULL) = (r.configuration_fk IS NULL)
"""


def with_both() -> list[object]:
    known = fixtures.figures()
    names = [
        name
        for name in fixtures.names()
        if known[name]["database"] and known[name]["source"] == "store"
    ]
    absent = pytest.param("none", marks=pytest.mark.skip(reason="no real result bundles here"))
    return list(names) if names else [absent]


def from_store(bundle: Path) -> Result:
    objects = Directory(bundle)
    return read_result(objects, objects.info(), wanted=Wanted(activities=True))


def from_cache(bundle: Path) -> Result:
    info = Directory(bundle).info()
    found = f"{info.major}.{info.minor}"
    return read_cache(bundle / DATABASE, format=found, wanted=Wanted(activities=True))


@pytest.mark.parametrize("name", with_both())
def test_the_store_and_the_cache_agree(name: str) -> None:
    bundle = fixtures.bundle(name)
    assert differences(from_store(bundle), from_cache(bundle)) == []


def aggregates(result: Result) -> Counter[tuple[str, str, str]]:
    """Status by case over all, and by case for each device and configuration, as Apple's tool counts them."""
    found = Counter[tuple[str, str, str]]()
    for case in result.cases:
        found[case.function, "", case.status] += 1
        parts: dict[tuple[object, str], list[Run]] = {}
        for run in case.runs:
            device = result.actions[run.action].device.identifier
            parts.setdefault((device, run.configuration), []).append(run)
        for (_, configuration), runs in parts.items():
            found[case.function, configuration, case_status(tuple(runs))] += 1
    return found


@pytest.mark.parametrize("name", with_both())
def test_our_aggregates_are_apples(name: str) -> None:
    bundle = fixtures.bundle(name)
    uri = f"{(bundle / DATABASE).as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        theirs = Counter(connection.execute(AGGREGATES).fetchall())
    assert aggregates(from_store(bundle)) == theirs


def base() -> Result:
    run = Run(action=0, configuration="", status="Failure", duration=1.0)
    case = Case(
        plan="P",
        target="T",
        suites=("S",),
        identifier="S/t()",
        name="t()",
        status="Failure",
        runs=(run,),
    )
    return Result(format="3.56", source="store", cases=(case,))


def changed(**fields: object) -> Result:
    result = base()
    (case,) = result.cases
    (run,) = case.runs
    run = msgspec.structs.replace(run, **fields)
    return msgspec.structs.replace(result, cases=(msgspec.structs.replace(case, runs=(run,)),))


@pytest.mark.parametrize(
    "other",
    [
        changed(status="Success"),
        changed(duration=1.00001),
        changed(configuration="Dark"),
        msgspec.structs.replace(base(), cases=()),
        msgspec.structs.replace(base(), test_plan="Q"),
    ],
)
def test_a_difference_is_detected(other: Result) -> None:
    assert differences(base(), other)
    assert differences(base(), base()) == []
