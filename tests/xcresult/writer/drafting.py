"""Decides what each case of a plan is and does, before it is written.

Everything about a case follows from its number and the seed, so a case is drafted when it is needed and
dropped when it is written: a hundred thousand cases take no memory. Cases are assigned to targets and
suites in turn, and their names repeat in every suite, as in real projects.
"""

import random
from collections.abc import Iterator
from functools import cached_property
from typing import Literal

import msgspec
from tests.xcresult.writer.plan import Formats, Plan

from runyard.xcresult.reader.model import Status

Outcome = Literal["pass", "fail", "skip", "expected", "retry"]

STATUS: dict[Outcome, Status] = {
    "pass": "Success",
    "fail": "Failure",
    "skip": "Skipped",
    "expected": "Expected Failure",
    "retry": "Success",
}
TARGETS = ("App", "Kit", "Network", "Cart", "Search", "Login", "Store", "Sync")
THINGS = ("Basket", "Session", "Parser", "Cache", "Router", "Query", "Token", "Layout", "Größe")
DEEDS = ("loads", "saves", "expires", "retries", "renders", "matches", "resets", "scrolls", "sorts")
WORDS = ("hello", "world", "zürich", "", 'say "hi"', "[a]", "K2:_v", "日本", "0", "true")


class Place(msgspec.Struct, frozen=True, gc=False):
    """A suite's place: its target, its path, its framework. No path: the functions without a suite."""

    target: str
    path: tuple[str, ...]
    swift: bool


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A case to write."""

    number: int
    place: Place
    function: str
    identifier: str
    identifier_url: str
    display: str = ""
    outcome: Outcome = "pass"
    everywhere: bool = True
    """Fails in each configuration and on each device, and not in the first alone."""
    sets: tuple[tuple[str, ...], ...] = ()
    """Argument sets, each the texts of its values."""
    tagged: bool = False
    tracked: bool = False
    documented: bool = False
    measured: bool = False

    @property
    def name(self) -> str:
        """The name that is shown."""
        return self.display or self.function


class DraftRun(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a case."""

    status: Status
    duration: float
    logged: float
    """The duration in the log; the duration of the run is zero if only the log has it."""
    iteration: int = 0
    """0: no repetition policy."""
    arguments: tuple[str, ...] = ()
    first: bool = False
    """The first run of its case in the bundle: attachments go there."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration on one device."""

    configuration: str = ""
    first: bool = True
    """Of the whole bundle: attachments are made here."""
    opens_plan: bool = True
    """Its test plan's first: the cases are counted here, and some fail only here."""


class Drafts:
    """The cases of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.formats = Formats(plan.minor)
        self.mode = self._mode()
        self.scheme = "Shop"
        suites = max(1, plan.suites)
        self._places: dict[str, tuple[Place, ...]] = {}
        self._top_level = min(plan.top_level, plan.cases) if self.formats.swift_testing else 0
        self._strides = max(1, plan.targets), suites

    def _mode(self) -> str:
        if not self.formats.policies:
            return ""
        if self.plan.repeated:
            return "FixedIterations"
        return "RunRetryOnFailure" if self.plan.retries else ""

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets."""
        return tuple(
            TARGETS[n % len(TARGETS)]
            + (str(n // len(TARGETS)) if n >= len(TARGETS) else "")
            + "Tests"
            for n in range(max(1, self.plan.targets))
        )

    @cached_property
    def test_plans(self) -> tuple[str, ...]:
        """The names of the test plans; old formats have one plan without a name."""
        count = self.plan.test_plans if self.formats.plan_names else 1
        return tuple(f"{self.scheme}{n or ''}" for n in range(max(1, count)))

    @cached_property
    def configurations(self) -> tuple[str, ...]:
        """The names of the configurations."""
        if self.plan.configurations <= 1:
            return ("Test Scheme Action",)
        return tuple(f"Configuration {n + 1}" for n in range(self.plan.configurations))

    def turns(self, *, first: bool, opens_plan: bool) -> tuple[Turn, ...]:
        """The configurations of one action, which may be the bundle's first, or its test plan's."""
        return tuple(
            Turn(configuration=name, first=first and n == 0, opens_plan=opens_plan and n == 0)
            for n, name in enumerate(self.configurations)
        )

    def places(self, target: str) -> tuple[Place, ...]:
        """The suites of a target."""
        if target not in self._places:
            self._places[target] = self._suites(target)
        return self._places[target]

    def _suites(self, target: str) -> tuple[Place, ...]:
        nesting = max(1, self.plan.nesting)
        found = []
        for number in range(max(1, self.plan.suites)):
            thing = THINGS[number % len(THINGS)]
            again = str(number // len(THINGS)) if number >= len(THINGS) else ""
            swift = self.plan.swift and self.formats.swift_testing and number % 2 == 1
            inner = tuple(f"Level{level}" for level in range(1, nesting)) if swift else ()
            found.append(Place(target, (f"{thing}{again}Tests", *inner), swift))
        return tuple(found)

    def cases(self, target: str, place: Place | None = None) -> Iterator[Draft]:
        """The cases of a suite, or the target's functions without a suite."""
        targets, suites = self._strides
        column = self.targets.index(target)
        if place is None:
            alone = Place(target, (), swift=True)
            for number in range(column, self._top_level, targets):
                yield self._draft(number, alone, turn=number // targets)
            return
        row = self.places(target).index(place)
        first = self._top_level + column + row * targets
        for turn, number in enumerate(range(first, self.plan.cases, targets * suites)):
            yield self._draft(number, place, turn=turn)

    def _draft(self, number: int, place: Place, *, turn: int) -> Draft:
        outcome = self._outcomes.get(number, "pass")
        sets = self._sets(number, place) if number in self._parameterised else ()
        words = f"{THINGS[turn % len(THINGS)]}{DEEDS[turn // 9 % len(DEEDS)].capitalize()}{turn // 81 or ''}"
        if place.swift:
            function = words[0].lower() + words[1:] + ("(value:)" if sets else "()")
        else:
            objective_c = self.places(place.target).index(place) % 4 == 2
            function = f"test{words}" if objective_c else f"test{words}()"
        identifier = "/".join((*place.path, function))
        bare = identifier if place.swift else identifier.removesuffix("()")
        return Draft(
            number=number,
            place=place,
            function=function,
            identifier=identifier,
            identifier_url=f"test://com.apple.xcode/{self.scheme}/{place.target}/{bare}",
            display=f"{words} as it should" if self.plan.named and place.swift else "",
            outcome=outcome,
            everywhere=number % 2 == 0,
            sets=sets,
            tagged=place.swift and number in self._tagged,
            tracked=place.swift and number in self._tracked,
            documented=place.swift and number in self._documented,
            measured=number in self._measured,
        )

    def _sets(self, number: int, place: Place) -> tuple[tuple[str, ...], ...]:
        if not place.swift:  # a UI test in several orientations
            return tuple((str(1 + n),) for n in range(self.plan.argument_sets))
        return tuple(
            (WORDS[(number + n) % len(WORDS)] + (str(n) if n >= len(WORDS) else ""),)
            for n in range(self.plan.argument_sets)
        )

    def runs(self, draft: Draft, turn: Turn) -> Iterator[DraftRun]:
        """Its runs in one configuration on one device."""
        chance = random.Random(self.plan.seed * 1_000_003 + draft.number)
        outcome = draft.outcome
        if outcome == "fail" and not (draft.everywhere or turn.opens_plan):
            outcome = "pass"
        sets = draft.sets or ((),)
        timeless = self.formats.timeless and draft.place.swift
        for place, arguments in enumerate(sets):
            mine = outcome
            if outcome in ("fail", "retry") and place < len(sets) - 1:
                mine = "pass"
            for trial, status in enumerate(self._tries(mine)):
                logged = 0.0 if status == "Skipped" else round(chance.uniform(0.001, 0.5), 6)
                yield DraftRun(
                    status=status,
                    duration=0.0 if timeless else logged,
                    logged=logged,
                    iteration=trial + 1 if self.mode else 0,
                    arguments=arguments,
                    first=turn.first and place == 0 and trial == 0,
                )

    def _tries(self, outcome: Outcome) -> tuple[Status, ...]:
        status = STATUS[outcome]
        most = max(2, self.plan.iterations)
        passed: tuple[Status, ...] = ("Success",)
        failed: tuple[Status, ...] = ("Failure",)
        if self.mode == "FixedIterations":
            if outcome == "fail":
                return failed + passed * (most - 1)
            return (status,) * most
        if self.mode == "RunRetryOnFailure":
            if outcome == "fail":
                return failed * most
            if outcome == "retry":
                return failed * (most - 1) + passed
        return (status,)

    @cached_property
    def _outcomes(self) -> dict[int, Outcome]:
        """Choose the cases that do not simply pass."""
        plan, has = self.plan, self.formats
        wanted: list[Outcome] = ["fail"] * plan.failures
        wanted += ["skip"] * (plan.skips if has.issue_details else 0)
        wanted += ["expected"] * (plan.expected_failures if has.policies else 0)
        wanted += ["retry"] * (plan.retries if self.mode == "RunRetryOnFailure" else 0)
        return dict(zip(self._some(len(wanted), salt=1), wanted, strict=False))

    @cached_property
    def _parameterised(self) -> frozenset[int]:
        able = self.formats.configured or self.formats.swift_testing
        return frozenset(self._some(self.plan.arguments if able else 0, salt=2))

    @cached_property
    def _tagged(self) -> frozenset[int]:
        return frozenset(self._some(self.plan.tags, salt=3))

    @cached_property
    def _tracked(self) -> frozenset[int]:
        return frozenset(self._some(self.plan.bugs, salt=4))

    @cached_property
    def _documented(self) -> frozenset[int]:
        return frozenset(self._some(self.plan.documented, salt=5))

    @cached_property
    def _measured(self) -> frozenset[int]:
        return frozenset(self._some(self.plan.metrics, salt=6))

    def _some(self, count: int, *, salt: int) -> list[int]:
        """Choose this many different cases."""
        chance = random.Random(self.plan.seed * 31 + salt)
        return chance.sample(range(self.plan.cases), min(count, self.plan.cases))
