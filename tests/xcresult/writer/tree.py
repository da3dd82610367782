"""Writes the test tree of one action: configurations, targets, suites, and the short forms of all runs.

XCTest's suites are inside the wrappers "All tests" and "<target>.xctest"; the nested suites of Swift Testing and its
functions without a suite are directly below the target. The tree is generated while it is encoded.
"""

from collections.abc import Iterator

from tests.xcresult.writer.drafting import Draft, Drafts, Place, Turn
from tests.xcresult.writer.encoding import Typed, Value, reference, typed
from tests.xcresult.writer.plan import Plan
from tests.xcresult.writer.storing import Store
from tests.xcresult.writer.summaries import Summaries
from tests.xcresult.writer.tally import Tally

SESSIONLESS = "Issues recorded without an associated test or suite"


class Tree:
    """Writes trees."""

    def __init__(self, drafts: Drafts, *, store: Store, summaries: Summaries, tally: Tally) -> None:
        self._drafts = drafts
        self._plan: Plan = drafts.plan
        self._store = store
        self._summaries = summaries
        self._tally = tally

    def write(self, *, first: bool, opens_plan: bool) -> str:
        """The object of `testsRef`."""
        summaries = (
            typed(
                "ActionTestPlanRunSummary",
                name=turn.configuration,
                testableSummaries=self._testables(turn),
            )
            for turn in self._drafts.turns(first=first, opens_plan=opens_plan)
        )
        return self._store.put_object(typed("ActionTestPlanRunSummaries", summaries=summaries))

    def _testables(self, turn: Turn) -> Iterator[Typed]:
        for target in self._drafts.targets:
            odd = turn.first and target == self._drafts.targets[0]
            url = f"test://com.apple.xcode/{self._drafts.scheme}/{target}"
            broken = self._runner_errors(target) if odd else ()
            if not (broken or self._has_cases(target) or (odd and self._sessionless())):
                continue
            yield typed(
                "ActionTestableSummary",
                diagnosticsDirectoryName="",
                failureSummaries=tuple(_failure(each) for each in self._messages())
                if broken
                else (),
                identifierURL=url if self._drafts.formats.urls else None,
                name=target,
                projectRelativePath=f"{self._drafts.scheme}.xcodeproj",
                targetName=target,
                testKind="app hosted",
                testLanguage="",
                testRegion="",
                tests=self._tests(target, turn, broken=broken, odd=odd),
            )

    def _has_cases(self, target: str) -> bool:
        if next(self._drafts.cases(target), None):
            return True
        return any(next(self._drafts.cases(target, p), None) for p in self._drafts.places(target))

    def _tests(
        self, target: str, turn: Turn, *, broken: tuple[Typed, ...], odd: bool
    ) -> Iterator[Typed]:
        places = self._drafts.places(target)
        classes = tuple(each for each in places if not each.swift)
        if any(next(self._drafts.cases(target, each), None) for each in classes):
            inner = (each for place in classes for each in self._suite(place, turn, depth=0))
            bundle = self._group(Place(target, (f"{target}.xctest",), swift=False), inner)
            around = ("All tests", "Selected tests")[self._drafts.targets.index(target) % 2]
            yield self._group(Place(target, (around,), swift=False), iter((bundle,)))
        for place in places:
            if place.swift:
                yield from self._suite(place, turn, depth=0)
        for draft in self._drafts.cases(target):
            yield from self._case(draft, turn)
        if broken:
            yield self._group(Place(target, ("System Failures",), swift=False), iter(broken))
        if odd and self._sessionless():
            yield self._without_test(target)

    def _suite(self, place: Place, turn: Turn, *, depth: int) -> Iterator[Typed]:
        """The group of a suite, if it has any cases."""
        if next(self._drafts.cases(place.target, place), None) is None:
            return
        if depth + 1 < len(place.path):
            inner: Iterator[Typed] = self._suite(place, turn, depth=depth + 1)
        else:
            drafts = self._drafts.cases(place.target, place)
            inner = (each for draft in drafts for each in self._case(draft, turn))
        yield self._group(Place(place.target, place.path[: depth + 1], place.swift), inner)

    def _group(self, place: Place, inner: Iterator[Typed]) -> Typed:
        identifier, name = "/".join(place.path), place.path[-1]
        if self._plan.minor == 49:
            name = name.removesuffix(
                ".xctest"
            )  # as in real bundles of that format, only the identifier contains it
        url = f"test://com.apple.xcode/{self._drafts.scheme}/{place.target}/{identifier}"
        named = self._plan.named and place.swift
        fields: dict[str, Value] = {
            "identifier": identifier,
            "identifierURL": url.replace(" ", "%20") if self._drafts.formats.urls else None,
            "name": name,
            "subtests": inner,
            "summary": f"All about {name}" if named else None,
        }
        if not (place.swift and self._drafts.formats.timeless):
            fields["duration"] = 1.5
        if self._drafts.formats.explicit:
            empty = "activitySummaries documentation expectedFailures failureSummaries tags trackedIssues"
            fields |= dict.fromkeys((*empty.split(), "warningSummaries"), ())
        return Typed("ActionTestSummaryGroup", fields)

    def _case(self, draft: Draft, turn: Turn) -> Iterator[Typed]:
        if turn.opens_plan:
            self._tally.case(draft)
        for run in self._drafts.runs(draft, turn):
            self._tally.run(run, self._plan)
            yield self._summaries.short(draft, run)

    def _messages(self) -> tuple[str, ...]:
        return tuple(
            f"Failed to install or launch the test runner. (Underlying Error: number {number})"
            for number in range(self._plan.runner_errors)
        )

    def _runner_errors(self, target: str) -> tuple[Typed, ...]:
        """Long forms inside the tree from 3.53 on, short forms before."""
        found = []
        for number, message in enumerate(self._messages()):
            name = f"{target}-Runner ({4000 + number}) encountered an error"
            self._tally.pseudo(target, failures=1, new=True)
            self._tally.fatal += 1
            self._tally.suites.add((target, "System Failures"))
            found.append(self._pseudo(name, (message,), inline=self._drafts.formats.swift_testing))
        return tuple(found)

    def _sessionless(self) -> int:
        return self._plan.sessionless if self._drafts.formats.swift_testing else 0

    def _without_test(self, target: str) -> Typed:
        count = self._sessionless()
        self._tally.pseudo(target, failures=count, new=True)
        self._tally.harmless += count
        messages = tuple(f"Issue recorded in a detached task, number {n}" for n in range(count))
        return self._pseudo(SESSIONLESS, messages, inline=False)

    def _pseudo(self, name: str, messages: tuple[str, ...], *, inline: bool) -> Typed:
        long = typed(
            "ActionTestSummary",
            failureSummaries=tuple(map(_failure, messages)),
            identifier=name,
            name=name,
            testStatus="Failure",
        )
        if inline:
            return long
        return typed(
            "ActionTestMetadata",
            duration=0.0,
            identifier=name,
            name=name,
            summaryRef=reference(self._store.put_object(long), "ActionTestSummary"),
            testStatus="Failure",
        )


def _failure(message: str) -> Typed:
    return typed(
        "ActionTestFailureSummary",
        isTopLevelFailure=True,
        issueType="System",
        lineNumber=0,
        message=message,
    )
