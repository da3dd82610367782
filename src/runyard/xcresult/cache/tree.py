"""Walks the test tree of Apple's cache: actions, configurations, targets, suites, and the runs of every case.

The cache stores definitions (a suite, a case) apart from executions (a suite's run, a case's run). The walk follows the
executions in stored order, as in the object store, so cases have the same order from both. Wrapping groups, and the
suite that Apple's tool adds for functions without one, are not suites.
"""

from collections.abc import Iterator

import msgspec

from runyard.xcresult.cache.database import Database, Row
from runyard.xcresult.cache.details import DEPTH, moment, without
from runyard.xcresult.reader.model import Action, Device

TOP_LEVEL = "$TopLevelTests"
WRAPPERS = ("All tests", "Selected tests")


LEVEL_BYTES = 32
"""Memory of a level of a path: of a step, of its key, of what is built from it."""


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """A position in the tree."""

    action: int
    """Index of the action."""
    plan: str
    configuration: str
    target: Row
    suites: tuple[Row, ...] = ()
    """The suites around it, outermost first."""

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the suites around it."""
        return tuple(suite.text("name") for suite in self.suites)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One run on the walk: of a case (TestCaseRuns), or else of a suite (TestSuiteRuns)."""

    where: Where
    run: Row
    case: Row | None


class Tree:
    """The walk over one database."""

    def __init__(self, database: Database) -> None:
        self._budget = database.budget
        self._plans = database.by_id("TestPlans")
        invocation = next(database.rows("Invocations"), None)
        self.scheme = invocation.text("scheme") if invocation else ""
        self._actions = sorted(
            database.rows("Actions"), key=lambda row: row.integer("orderInInvocation")
        )
        self._configurations = database.by_id("TestPlanConfigurations")
        self._testables = database.by_id("Testables")
        self._suites = database.by_id("TestSuites")
        self._cases = database.by_id("TestCases")
        self._plan_runs = database.grouped("TestPlanRuns", "action_fk", order="orderInAction")
        self._testable_runs = database.grouped(
            "TestableRuns", "testPlanRun_fk", order="orderInTestPlanRun"
        )
        self._top = database.grouped("TestSuiteRuns", "testableRun_fk", order="orderInParent")
        below = database.grouped("TestSuiteRuns", "parentSuiteRun_fk", order="orderInParent")
        self._below = {key: without(rows, "testableRun_fk") for key, rows in below.items()}
        self._case_runs = database.grouped(
            "TestCaseRuns", "testSuiteRun_fk", order="orderInTestSuiteRun"
        )
        self._devices = Devices(database)

    def actions(self) -> tuple[Action, ...]:
        """The actions of the invocation, in order."""
        return tuple(self._action(row) for row in self._actions)

    def _action(self, row: Row) -> Action:
        device, sdk = self._devices.destination(row.integer("runDestination_fk"))
        return Action(
            command=row.text("name"),
            plan=_name(self._plans.get(row.integer("testPlan_fk"))),
            started=moment(row, "started"),
            ended=moment(row, "finished"),
            device=device,
            computer=self._devices.device(row.integer("host_fk")),
            sdk=sdk.text("name") if sdk else "",
            sdk_version=sdk.text("operatingSystemVersion") if sdk else "",
            has_tests=row.id in self._plan_runs,
            diagnostics_id=row.text("diagnosticsRef"),
        )

    def targets(self) -> Iterator[Where]:
        """Every run of a target."""
        for where, _ in self._target_runs():
            yield where

    def walk(self) -> Iterator[Step]:
        """Every run of a suite, then the runs inside it."""
        for where, run in self._target_runs():
            for suite in self._top.get(run, ()):
                yield from self._suite_run(where, suite, 0)

    def _target_runs(self) -> Iterator[tuple[Where, int]]:
        for index, action in enumerate(self._actions):
            for plan_run in self._plan_runs.get(action.id, ()):
                plan = plan_run.integer("testPlan_fk") or action.integer("testPlan_fk")
                configuration = self._configurations.get(plan_run.integer("configuration_fk"))
                for run in self._testable_runs.get(plan_run.id, ()):
                    target = self._testables.get(run.integer("testable_fk"))
                    if target is not None:
                        where = Where(
                            action=index,
                            plan=_name(self._plans.get(plan)) or self.scheme,
                            configuration=_name(configuration),
                            target=target,
                        )
                        yield where, run.id

    def _suite_run(self, where: Where, run: Row, depth: int) -> Iterator[Step]:
        suite = self._suites.get(run.integer("testSuite_fk"))
        if suite is None or depth >= DEPTH:
            return
        if not _is_wrapper(suite):
            where = msgspec.structs.replace(where, suites=(*where.suites, suite))
            yield Step(where=where, run=run, case=None)
        around = LEVEL_BYTES * len(where.suites) + sum(map(len, where.path))
        self._budget.hold(around)
        inside = [(row.integer("orderInParent"), 0, row) for row in self._below.get(run.id, ())]
        inside += [
            (row.integer("orderInTestSuiteRun"), 1, row) for row in self._case_runs.get(run.id, ())
        ]
        for _, is_case, row in sorted(inside, key=lambda each: each[:2]):
            if not is_case:
                yield from self._suite_run(where, row, depth + 1)
            elif (case := self._cases.get(row.integer("testCase_fk"))) is not None:
                self._budget.hold(around)
                yield Step(where=where, run=row, case=case)


class Devices:
    """The devices of the actions."""

    def __init__(self, database: Database) -> None:
        self._destinations = database.by_id("RunDestinations")
        self._devices = database.by_id("Devices")
        self._platforms = database.by_id("Platforms")
        self._sdks = database.by_id("SDKs")

    def destination(self, key: int) -> tuple[Device, Row | None]:
        """The device of a destination, and the SDK that was built for it."""
        row = self._destinations.get(key)
        if row is None:
            return Device(), None
        architecture = row.text("architecture")
        return self.device(row.integer("device_fk"), architecture), self._sdks.get(
            row.integer("sdk_fk")
        )

    def device(self, key: int, architecture: str = "") -> Device:
        """Read one device. The architecture is that of the build, if it is known."""
        row = self._devices.get(key)
        if row is None:
            return Device()
        platform = self._platforms.get(row.integer("platform_fk"))
        return Device(
            name=row.text("name"),
            identifier=row.text("identifier"),
            platform=platform.text("userDescription") if platform else "",
            os_version=row.text("operatingSystemVersion"),
            os_build=_build(row.text("operatingSystemVersionWithBuildNumber")),
            model_name=row.text("modelName"),
            model_code=row.text("modelCode"),
            architecture=architecture or row.text("nativeArchitecture"),
            concrete=row.flag("isConcreteDevice", default=False),
        )


def _build(text: str) -> str:
    """`23E5218e` of `26.4 (23E5218e)`."""
    return text.rpartition("(")[2].rstrip(")") if "(" in text else ""


def _name(row: Row | None) -> str:
    return row.text("name") if row else ""


def _is_wrapper(suite: Row) -> bool:
    identifier = suite.text("identifier")
    return (
        identifier in WRAPPERS
        or identifier.endswith(".xctest")
        or identifier.rpartition("/")[2] == TOP_LEVEL
    )
