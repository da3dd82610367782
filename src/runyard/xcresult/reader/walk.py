"""The walk over the test tree: plans' configurations, targets, groups, runs.

Groups that only wrap are dropped: "All tests" and "Selected tests" at the top, and whatever is identified by the
name of a test bundle. All others are suites. A run that lies under no suite is a top-level function.

Everything that shares (test plan, target, suites, identifier) is one case. What is collected here is mutable
and stays here: `freeze` in cases.py makes the model's values of it.
"""

from runyard.xcresult.errors import TooLarge
from runyard.xcresult.reader.apart import Readers, ReadRun, asked_run
from runyard.xcresult.reader.decode import Node
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

# Far beyond what anybody runs, and little enough to be held in memory and to be compared with each other.
TARGETS = 10_000
SUITES = 200_000
RUNS = 1_000_000


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
        """One more run, and what its long form says of the case."""
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

    __slots__ = ("failures", "node")

    def __init__(self, node: Node) -> None:
        self.node = {key: value for key, value in node.items() if key not in ("tests", "_type")}
        self.failures: dict[str, Failure] = {}


class Walk:
    """Everything that the tests of a bundle's actions hold, in their order."""

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
        """The tests of one action."""
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
        """A group or a run; later versions' entries are known by what they hold."""
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
        self.readers.run(asked_run(node, identifier, place), case.add)


def _bound(count: int, most: int, what: str) -> None:
    if count > most:
        raise TooLarge(f"the bundle has more than {most} {what}")


_RUNS = ("ActionTestMetadata", "ActionTestSummary")
