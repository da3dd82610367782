"""Walks the test tree: configurations of plans, targets, groups, runs.

Groups that only wrap others are dropped: "All tests" and "Selected tests" at the top, and groups with the name of a
test bundle as identifier. All others are suites. A run without a suite is a top-level function.

Runs with the same (test plan, target, suites, identifier) are one case. The values collected here are mutable and
private; `freeze` in cases.py turns them into the model's values.
"""

import re
from functools import partial

import msgspec

from runyard.xcresult.errors import TooLarge
from runyard.xcresult.reader.decode import Node
from runyard.xcresult.reader.deferred import Readers, ReadRun, run_request
from runyard.xcresult.reader.fields import brief, children, kind, number, text
from runyard.xcresult.reader.graph import Graph
from runyard.xcresult.reader.issues import read_failures
from runyard.xcresult.reader.model import Bug, Failure, Run, Tag
from runyard.xcresult.reader.runs import STATUSES, Place, read_tags

Path = tuple[str, ...]
CaseKey = tuple[str, str, Path, str]
SuiteKey = tuple[str, str, Path]
TargetKey = tuple[str, str]

_WRAPPERS = ("All tests", "Selected tests")

# More than any real run has, and few enough to keep in memory and to compare with each other.
TARGETS = 10_000
SUITES = 200_000
RUNS = 1_000_000
RUN_BYTES = 2500
"""Memory of a run and its case, besides what the run contains; measured with 50,000 cases."""
ENCODED = 5
"""Memory for each byte of an encoded run: the run, and what reports and rows make of it."""
_encode = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode
_FOUR_BYTES = re.compile(rb"[\xf0-\xf4]")


TARGET_TEXTS = (
    "testKind",
    "identifierURL",
    "projectRelativePath",
    "testLanguage",
    "testRegion",
)
"""Members of a target that its result has; all others are dropped with the tree."""


class OpenCase:
    """A case while its runs are being found."""

    __slots__ = ("bugs", "display", "documentation", "function", "runs", "tags", "url")

    def __init__(self, node: Node) -> None:
        self.function = text(node, "name")
        self.url = text(node, "identifierURL")
        self.display = ""
        self.runs: list[Run] = []
        self.tags: tuple[Tag, ...] = ()
        self.bugs: tuple[Bug, ...] = ()
        self.documentation: tuple[str, ...] = ()

    def add(self, read: ReadRun) -> None:
        """Add a run, and the facts of its summary about the case."""
        self.runs.append(read.run)
        self.display = self.display or read.display
        self.tags = self.tags or read.tags
        self.bugs = self.bugs or read.bugs
        self.documentation = self.documentation or read.documentation


class OpenSuite:
    """A suite while the configurations that ran it are being found."""

    __slots__ = ("display", "durations", "identifier", "name", "tags", "url")

    def __init__(self, node: Node) -> None:
        self.name = text(node, "name")
        self.display = text(node, "summary")
        self.identifier = text(node, "identifier")
        self.url = text(node, "identifierURL")
        self.tags = read_tags(node)
        self.durations: list[float] = []


class OpenTarget:
    """A target, as the first configuration that ran it describes it."""

    __slots__ = ("failures", "texts")

    def __init__(self, node: Node) -> None:
        self.texts = {name: text(node, name) for name in TARGET_TEXTS}
        self.failures: dict[str, Failure] = {}


class Walk:
    """Collects the tests of all actions of a bundle, in order."""

    def __init__(self, graph: Graph, readers: Readers, *, minor: int, activities: bool) -> None:
        self.graph = graph
        self.readers = readers
        self.minor = minor
        self.activities = activities
        self.cases: dict[CaseKey, OpenCase] = {}
        self.suites: dict[SuiteKey, OpenSuite] = {}
        self.targets: dict[TargetKey, OpenTarget] = {}
        self.runs = 0

    def tests(self, node: Node, *, action: int, device: int | None, plan: str) -> None:
        """Collect the tests of one action."""
        for summary in children(node, "summaries"):
            place = Place(
                action=action,
                device=device,
                configuration=text(summary, "name"),
                minor=self.minor,
                activities=self.activities,
            )
            for testable in children(summary, "testableSummaries"):
                self._target(testable, plan=plan, place=place)

    def _target(self, node: Node, *, plan: str, place: Place) -> None:
        key = (plan, text(node, "name") or text(node, "targetName"))
        target = self.targets.get(key)
        if target is None:
            target = self.targets[key] = OpenTarget(node)
            _bound(len(self.targets), TARGETS, "targets")
        self._failures(target, node)
        for one in children(node, "tests"):
            self._entry(one, target=key, path=(), place=place)

    def _failures(self, target: OpenTarget, node: Node) -> None:
        found = read_failures(
            node, "failureSummaries", minor=self.minor, objects=self.graph.objects
        )
        for failure in found:
            target.failures.setdefault(failure.message, failure)

    def _entry(self, node: Node, *, target: TargetKey, path: Path, place: Place) -> None:
        """Read a group or a run; entries of unknown types are recognised by their members."""
        name = kind(node)
        if name == "ActionTestSummaryGroup" or (name not in _RUNS and "subtests" in node):
            self._group(node, target=target, path=path, place=place)
        elif name in _RUNS or "testStatus" in node:
            self._run(node, target=target, path=path, place=place)
        else:
            name = brief(name)
            self.graph.warn(f"an entry of the unknown type {name} in the tests was left out")

    def _group(self, node: Node, *, target: TargetKey, path: Path, place: Place) -> None:
        identifier = text(node, "identifier") or text(node, "name")
        wrapper = (not path and identifier in _WRAPPERS) or identifier.endswith(".xctest")
        if not wrapper:
            path = (*path, text(node, "name") or identifier)
            key = (*target, path)
            suite = self.suites.get(key)
            if suite is None:
                suite = self.suites[key] = OpenSuite(node)
                self._name(target, path)
                _bound(len(self.suites), SUITES, "suites")
            suite.durations.append(number(node, "duration"))
        self._failures(self.targets[target], node)
        for one in children(node, "subtests"):
            self._entry(one, target=target, path=path, place=place)

    def _run(self, node: Node, *, target: TargetKey, path: Path, place: Place) -> None:
        self.runs += 1
        _bound(self.runs, RUNS, "runs")
        word = text(node, "testStatus")
        if word and word not in STATUSES:
            self.graph.warn(f"the unknown status {brief(word)} of a test counts as a failure")
        identifier = text(node, "identifier") or text(node, "name")
        key = (*target, path, identifier)
        case = self.cases.get(key)
        if case is None:
            case = self.cases[key] = OpenCase(node)
            self._name(target, path)
        self.readers.run(run_request(node, identifier, place), partial(self._keep, case))

    def _name(self, target: TargetKey, path: Path) -> None:
        """Count the names around a case or a suite: they are repeated for each one that is shown."""
        self.graph.spending.hold(sum(map(len, target)) + sum(map(len, path)))

    def _keep(self, case: OpenCase, read: ReadRun) -> None:
        """Add a run to its case, and count the memory that it takes."""
        wide = _widened(_json(read))
        size = RUN_BYTES + ENCODED * len(_encode(read)) + wide
        self.graph.spending.hold(size, early=wide)
        case.add(read)


def _widened(encoded: bytes) -> int:
    """Memory of texts beyond one byte for each character: one wide character widens its whole text."""
    if encoded.isascii():
        return 0
    return len(encoded) * (3 if _FOUR_BYTES.search(encoded) else 1)


def _bound(count: int, most: int, what: str) -> None:
    if count > most:
        raise TooLarge(f"the bundle has more than {most} {what}")


_RUNS = ("ActionTestMetadata", "ActionTestSummary")
