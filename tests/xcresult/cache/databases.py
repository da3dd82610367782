"""Builds small databases like those of Apple's tool, with only the tables that a test needs."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

Rows = Sequence[Mapping[str, object]]
Tables = Mapping[str, Rows]

ONE_CASE: dict[str, Rows] = {
    "Invocations": [{"scheme": "App"}],
    "TestPlans": [{"name": "Plan"}],
    "Platforms": [{"userDescription": "macOS"}],
    "Devices": [
        {
            "name": "My Mac",
            "identifier": "UDID",
            "platform_fk": 1,
            "operatingSystemVersion": "26.1",
            "operatingSystemVersionWithBuildNumber": "26.1 (25B78)",
        }
    ],
    "RunDestinations": [{"device_fk": 1, "architecture": "arm64"}],
    "Actions": [
        {
            "name": "Test",
            "started": 0.0,
            "finished": 10.0,
            "testPlan_fk": 1,
            "runDestination_fk": 1,
            "orderInInvocation": 0,
        }
    ],
    "TestPlanConfigurations": [{"name": "Default", "testPlan_fk": 1}],
    "TestPlanRuns": [{"action_fk": 1, "testPlan_fk": 1, "configuration_fk": 1, "orderInAction": 0}],
    "Testables": [{"name": "AppTests", "testPlan_fk": 1}],
    "TestableRuns": [{"testable_fk": 1, "testPlanRun_fk": 1, "orderInTestPlanRun": 0}],
    "TestSuites": [{"name": "Suite", "identifier": "Suite", "testable_fk": 1}],
    "TestSuiteRuns": [{"testSuite_fk": 1, "testableRun_fk": 1, "orderInParent": 0}],
    "TestCases": [{"name": "test()", "identifier": "Suite/test()", "testSuite_fk": 1}],
    "TestCaseRuns": [
        {
            "testCase_fk": 1,
            "testSuiteRun_fk": 1,
            "result": "Failure",
            "duration": 0.5,
            "orderInTestSuiteRun": 0,
        }
    ],
}


def write(path: Path, tables: Tables, *, statements: Sequence[str] = ()) -> Path:
    """Write a database with these rows, then execute the statements."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for name, rows in tables.items():
            columns = list(dict.fromkeys(column for row in rows for column in row)) or ["name"]
            connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            for row in rows:
                places = ", ".join("?" for _ in columns)
                values = [row.get(column) for column in columns]
                connection.execute(f"INSERT INTO {name} VALUES ({places})", values)
        for statement in statements:
            connection.execute(statement)
    return path
