"""Describes the content of a synthetic bundle, and the figures that a reader must report for it.

Numbers are counts of the whole bundle unless stated otherwise. Everything else is derived from the seed, so the
same plan always gives the same bytes. Features that a format does not have are omitted, as Xcode does (`Formats`
below), and the figures of `Written` do not count them.
"""

import msgspec

OLDEST, NEWEST = 20, 60


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle to write. The first failures, retries, … are of different cases, as long as there are enough."""

    seed: int = 1
    minor: int = 56
    """Format 3.`minor`, from 20 to 60."""

    cases: int = 10
    """Distinct cases of each test plan."""
    targets: int = 1
    suites: int = 2
    """Suites of each target; cases are dealt out evenly."""
    nesting: int = 1
    """Levels of suites of Swift Testing."""
    swift: bool = True
    """Every second suite is of Swift Testing (from 53 on); XCTest otherwise."""
    top_level: int = 0
    """Number of cases that are functions of Swift Testing without a suite (from 53 on)."""
    named: bool = False
    """Suites and cases of Swift Testing have display names."""

    test_plans: int = 1
    devices: int = 1
    """Actions of each test plan: all cases run on each device."""
    configurations: int = 1

    failures: int = 0
    """Cases that fail; half of them in one configuration only."""
    failures_each: int = 1
    """Failures of a failing run; the first is a top-level one."""
    skips: int = 0
    expected_failures: int = 0
    retries: int = 0
    """Cases that fail and pass on a retry. If there are any, all runs have the retry policy."""
    iterations: int = 3
    """Largest number of repetitions of a run."""
    repeated: bool = False
    """Run everything `iterations` times, instead of until it passes."""
    arguments: int = 0
    """Cases with parameters."""
    argument_sets: int = 3
    tags: int = 0
    bugs: int = 0
    documented: int = 0
    metrics: int = 0

    activities: int = 0
    """Of each run."""
    activity_depth: int = 2
    frames: int = 8
    """Of the call stack of a failure."""

    attachments: int = 0
    attachment_bytes: int = 1024
    """Of each."""
    payloads: int = 0
    """Different payloads of the attachments; 0: each has one of its own."""
    compressible: bool = True
    crashes: int = 0
    """Failing cases with a crash report (`.ips`) among the attachments of their failure."""

    logs: bool = True
    build_issues: int = 0
    runner_errors: int = 0
    sessionless: int = 0
    """Issues recorded without an associated test (from 53 on)."""
    coverage: int = 0
    """Source files with coverage."""
    diagnostics: int = 0
    """Files of the diagnostics tree."""
    build_action: bool = False
    """An action that only builds, before those that test."""

    lost_payloads: int = 0
    """Number of attachments without a payload in the store, as after pruning."""
    lost_summaries: int = 0
    """Passing cases whose long form is not in the store (from 53 on): the short form is what is left."""


class Formats(msgspec.Struct, frozen=True):
    """The features of each format."""

    minor: int

    @property
    def result_type(self) -> str:
        """The type name of the result of an action."""
        return "_ActionResult" if self.minor <= 20 else "ActionResult"

    @property
    def explicit(self) -> bool:
        """Empty arrays and zeros are written."""
        return self.minor >= 60

    @property
    def issue_details(self) -> bool:
        """Failures have a type, an id, a time and a call stack; tests can be skipped."""
        return self.minor >= 26

    @property
    def policies(self) -> bool:
        """Repetitions, expected failures, ids of attachments."""
        return self.minor >= 34

    @property
    def urls(self) -> bool:
        """Tests, suites and targets have a URL."""
        return self.minor >= 37

    @property
    def plan_names(self) -> bool:
        """Actions name their test plan."""
        return self.minor >= 39

    @property
    def configured(self) -> bool:
        """Arguments are values of a UI test's configuration."""
        return 34 <= self.minor <= 44

    @property
    def swift_testing(self) -> bool:
        """With arguments, tags, bugs, display names; and every run has a long form."""
        return self.minor >= 53

    @property
    def timeless(self) -> bool:
        """Swift Testing's durations are only in the log."""
        return 54 <= self.minor <= 56

    @property
    def counts(self) -> bool:
        """The short form counts what the long form has."""
        return self.minor >= 54


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the written bundle, derived from the plan and not by reading it."""

    root_id: str
    objects: int
    figures: dict[str, object]
    """The keys of `runyard xcresult figures`."""
    payload_ids: tuple[str, ...] = ()
    """Of the attachments, in order of their numbers."""
