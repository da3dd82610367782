"""Writes activity logs: of the build, and of the tests with the output of the runners.

Durations of targets and, in some formats, of Swift Testing are nowhere else. All times of a log have whole
milliseconds and a tenth, so that no rounding of a sum decides what its milliseconds are.
"""

from collections.abc import Iterator

from tests.xcresult.writer.drafting import Draft, DraftRun, Drafts, Place, Turn
from tests.xcresult.writer.encoding import Typed, Value
from tests.xcresult.writer.plan import Plan
from tests.xcresult.writer.storing import Store
from tests.xcresult.writer.texts import Texts

LAUNCHED = 4.2501
"""Seconds that all launches of an action take, and the whole test."""
WHOLE = 5.5001
OPENED = 0.5
"""Seconds from the first launch to the first test target."""
UNIT = "com.apple.dt.IDE.UnitTestLogSection"
SIGNS = {"Success": "✔", "Failure": "✘", "Expected Failure": "✔", "Skipped": "➜"}


def seconds(plan: Plan) -> float:
    """The duration of an action's tests in its log. With several configurations the targets are one level deeper."""
    return WHOLE if plan.configurations > 1 else LAUNCHED - OPENED


class Logs:
    """Writes logs."""

    def __init__(self, drafts: Drafts, *, store: Store, texts: Texts) -> None:
        self._drafts = drafts
        self._store = store
        self._texts = texts

    def build(self, begun: float) -> str:
        """The log of a build."""
        details = "CompileSwift normal arm64 /Users/builder/Developer/Shop/Basket.swift"
        commands = tuple(
            self._section(
                "ActivityLogCommandInvocationSection",
                f"Compile file {number}",
                begun + number,
                0.25,
                commandDetails=details,
                emittedOutput="note: nothing to see\n",
                exitCode=0,
            )
            for number in range(3)
        )
        title = f"Build {self._drafts.scheme}"
        return self._put(
            self._section("ActivityLogSection", title, begun, 3.0, subsections=commands)
        )

    def tests(self, begun: float, turns: tuple[Turn, ...]) -> str:
        """The log of one action."""
        launches = tuple(
            self._section("ActivityLogSection", f"Launch {target}", begun, 2.0 + n)
            for n, target in enumerate(self._drafts.targets)
        )
        actions = self._section(
            "ActivityLogSection", "Launch actions", begun, LAUNCHED, subsections=launches
        )
        title = f"Test {self._drafts.scheme}"
        return self._put(
            self._section(
                "ActivityLogSection",
                title,
                begun,
                WHOLE,
                subsections=(
                    each for part in (iter((actions,)), self._ran(begun, turns)) for each in part
                ),
            )
        )

    def _put(self, section: Typed) -> str:
        return self._store.put_object(section)

    def _section(
        self, kind: str, title: str, start: float, duration: float, **more: Value
    ) -> Typed:
        return Typed(
            kind,
            {
                "domainType": UNIT if "Unit" in kind else "com.apple.dt.IDE.LogSection",
                "duration": duration,
                "messages": (),
                "result": "succeeded",
                "startTime": self._texts.date(start),
                "title": title,
                **more,
            },
        )

    def _ran(self, begun: float, turns: tuple[Turn, ...]) -> Iterator[Typed]:
        for turn in turns:
            parts = self._targets(begun + OPENED, turn)
            if len(turns) > 1:
                title = f"Testing {turn.configuration}"
                yield self._section(
                    "ActivityLogMajorSection", title, begun + OPENED, 3.0, subsections=parts
                )
            else:
                yield from parts

    def _targets(self, begun: float, turn: Turn) -> Iterator[Typed]:
        for number, target in enumerate(self._drafts.targets):
            printed = "".join(self._printed(target, turn))
            worker = self._section(
                "ActivityLogUnitTestSection",
                f"{self._drafts.scheme} ({9000 + number})",
                begun,
                1.0,
                emittedOutput=printed,
                subsections=self._suites(target, begun, turn),
            )
            title = f"Test target {target}"
            yield self._section(
                "ActivityLogUnitTestSection", title, begun, 1.0, subsections=iter((worker,))
            )

    def _printed(self, target: str, turn: Turn) -> Iterator[str]:
        for place in self._drafts.places(target):
            yield from self._of_suite(place, turn)
        for draft in self._drafts.cases(target):
            yield self._lines(draft, turn)

    def _of_suite(self, place: Place, turn: Turn) -> Iterator[str]:
        for draft in self._drafts.cases(place.target, place):
            yield self._lines(draft, turn)
        if place.swift:
            name = place.path[-1]
            named = f'"All about {name}"' if self._drafts.plan.named else name
            yield f"✔ Suite {named} passed after 1.500 seconds.\n"

    def _lines(self, draft: Draft, turn: Turn) -> str:
        runs = tuple(self._drafts.runs(draft, turn))
        if draft.place.swift:
            return _swift_lines(draft, runs)
        path = f"-[{draft.place.target}.{draft.place.path[0]} {draft.function.removesuffix('()')}]"
        return "".join(
            f"Test Case '{path}' started.\nTest Case '{path}' "
            f"{'failed' if run.status == 'Failure' else 'passed'} ({run.logged:.3f} seconds).\n"
            for run in runs
        )

    def _suites(self, target: str, begun: float, turn: Turn) -> Iterator[Typed]:
        for place in self._drafts.places(target):
            if next(self._drafts.cases(target, place), None) is None:
                continue
            yield self._section(
                "ActivityLogUnitTestSection",
                f"Run test suite {place.path[-1]}",
                begun,
                1.5,
                emittedOutput="".join(self._of_suite(place, turn)),
                suiteName=place.path[-1],
                subsections=(
                    self._section(
                        "ActivityLogUnitTestSection",
                        f"Run test case {draft.function}",
                        begun,
                        0.0,
                        emittedOutput=self._lines(draft, turn),
                        suiteName=place.path[-1],
                        testName=draft.function,
                    )
                    for draft in self._drafts.cases(target, place)
                ),
            )


def _swift_lines(draft: Draft, runs: tuple[DraftRun, ...]) -> str:
    """Return one line for all argument sets of a repetition; a skipped test has no duration."""
    name = f'"{draft.display}"' if draft.display else draft.function
    last = runs[-1]
    if last.status == "Skipped":
        return f"➜ Test {name} skipped.\n"
    sets = f" with {len(draft.sets)} test cases" if draft.sets else ""
    failed = any(run.status == "Failure" for run in runs)
    word, sign = ("failed", SIGNS["Failure"]) if failed else ("passed", SIGNS["Success"])
    issues = " with 1 issue" if failed else ""
    took = f"{word} after {last.logged:.3f} seconds{issues}."
    return f"◇ Test {name} started.\n{sign} Test {name}{sets} {took}\n"
