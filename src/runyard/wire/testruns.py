"""Bodies of the REST for test results. Refusals have the body of `http.problems`.

A *run* has an id that its client chooses; a sharded run has one upload for each shard and is shown merged. Accounts
and projects are those of a repository at GitHub, in lower case. Moments are seconds since the epoch, durations
milliseconds; only `Upload.url`, `Attachment.url` and `Token.token` contain a credential.
"""

import datetime as dt
from typing import Annotated, Any, Literal

import msgspec

RUNS = "/api/v1/test-runs"
RUN = "/api/v1/test-runs/{run}"
COMPLETE = "/api/v1/test-runs/{run}/complete"
REPROCESS = "/api/v1/test-runs/{run}/reprocess"
MODULES = "/api/v1/test-runs/{run}/modules"
SUITES = "/api/v1/test-runs/{run}/suites"
CASES = "/api/v1/test-runs/{run}/cases"
CASE_OF_RUN = "/api/v1/test-runs/{run}/cases/{case}"
ATTACHMENTS = "/api/v1/test-runs/{run}/attachments"
COVERAGE = "/api/v1/test-runs/{run}/coverage"
COVERAGE_FILES = "/api/v1/test-runs/{run}/coverage/files"
COVERAGE_LINES = "/api/v1/test-runs/{run}/coverage/lines"
TESTS = "/api/v1/test-cases"
TEST = "/api/v1/test-cases/{case}"
HISTORY = "/api/v1/test-cases/{case}/history"
FLAKY = "/api/v1/flaky-tests"
ATTACHMENT = "/api/v1/test-attachments/{attachment}"
TOKENS = "/api/v1/test-tokens"

State = Literal["awaiting_upload", "queued", "processing", "processed", "failed_processing"]
Status = Literal["", "success", "failure", "skipped"]
_END = r"$(?!\n)"  # the end of the text, see `rest`
_PRINTED = r"^[^\x00-\x1f\x7f]*" + _END
Text = Annotated[str, msgspec.Meta(max_length=500, pattern=_PRINTED)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,100}" + _END)]
Id = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"
        + _END
    ),
]
Shard = Annotated[int, msgspec.Meta(ge=0, le=9999)]
Moment = Annotated[dt.datetime, msgspec.Meta(tz=True)]

# ── request bodies ──────────────────────────────────────────────────────────────────────────────────


class NewRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run, or one shard of it, that will be uploaded. Sent twice, it is the same run."""

    id: Id
    account: Name
    project: Name
    shard_index: Shard = 0
    shard_plan_id: Text = ""
    is_ci: bool = False
    git_branch: Text = ""
    git_commit_sha: Text = ""
    git_ref: Text = ""
    macos_version: Text = ""
    xcode_version: Text = ""
    model_identifier: Text = ""
    scheme: Text = ""
    ci_run_id: Text = ""
    ci_project_handle: Text = ""
    ci_host: Text = ""
    ci_provider: Text = ""
    build_run_id: Text = ""
    ran_at: Moment | None = None  # none: now
    vcs_comment_params: dict[Text, Text | int | bool | None] = {}


class Complete(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The upload of this shard is complete."""

    shard_index: Shard = 0


class Reprocess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Process the upload again."""

    shard_index: Shard = 0


class NewToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A credential for one account's test results, or for one project's."""

    account: Name
    project: Name | None = None  # none: all of the account's
    may_upload: bool = True
    days: Annotated[int, msgspec.Meta(ge=1, le=366)] = 90


# ── response bodies ─────────────────────────────────────────────────────────────────────────────────


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A new token. It is shown once; the server does not store it."""

    token: str
    expires_at: float


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """Where the client sends the bundle, unchanged: a ZIP, an Apple Archive or a tar."""

    method: str
    url: str
    expires_at: float
    limit: int  # bytes


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one shard of a run; with `upload` while its upload is awaited."""

    id: str
    shard_index: int
    state: State
    upload: Upload | None = None


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """A device that tests ran on."""

    name: str = ""
    platform: str = ""
    os_version: str = ""


class ShardOfRun(msgspec.Struct, frozen=True, kw_only=True):
    """One shard, according to its own upload."""

    shard_index: int
    state: State
    status: Status
    attempt: int
    reason_code: str  # a slug; empty: no reason
    reason: str  # the same for people
    duration_ms: int
    cases: int
    failed: int
    skipped: int
    flaky: int
    ran_at: float
    created_at: float
    uploaded_at: float | None = None
    finished_at: float | None = None
    archive_bytes: int | None = None
    upload_gone: bool = False  # then it cannot be processed again
    format: str = ""
    source: str = ""
    attachments_dropped: int = 0


class TestRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run, its shards merged."""

    id: str
    account: str
    project: str
    state: State
    status: Status
    duration_ms: int  # of the longest shard
    cases: int
    failed: int
    skipped: int
    flaky: int
    ran_at: float
    scheme: str
    test_plan: str | None  # null: not processed yet, or a merged bundle that names none
    is_ci: bool
    git_branch: str
    git_commit_sha: str
    git_ref: str
    macos_version: str
    xcode_version: str
    model_identifier: str
    ci_run_id: str
    ci_project_handle: str
    ci_host: str
    ci_provider: str
    build_run_id: str
    shard_plan_id: str
    shards: tuple[ShardOfRun, ...]


class TestRuns(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs, newest first; `next` is the `cursor` of the next page, empty at the end."""

    items: tuple[TestRun, ...]
    next: str = ""


class RunDetail(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a run that is not about one case."""

    run: TestRun
    destinations: tuple[Destination, ...]
    errors: tuple[dict[str, Any], ...]
    warnings: tuple[dict[str, Any], ...]
    build_issues: tuple[dict[str, Any], ...]


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """A test target of a run."""

    shard_index: int
    name: str
    status: Status
    duration_ms: int
    suites: int
    cases: int
    failed: int
    skipped: int
    flaky: int
    average_case_ms: int


class Modules(msgspec.Struct, frozen=True, kw_only=True):
    """A page of modules, in the order of shards and bundles."""

    items: tuple[Module, ...]
    next: str = ""


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """A suite of a run."""

    shard_index: int
    module: str
    name: str
    status: Status
    duration_ms: int
    cases: int
    failed: int
    skipped: int
    flaky: int
    average_case_ms: int


class Suites(msgspec.Struct, frozen=True, kw_only=True):
    """A page of suites, in the order of shards and bundles."""

    items: tuple[Suite, ...]
    next: str = ""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why something failed; `line_number` from 1, 0 if it is not known."""

    message: str
    path: str
    line_number: int
    issue_type: str


class CaseRun(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a case in a run. `failures` includes those of its arguments and repetitions."""

    case: str
    name: str
    module: str
    suite: str
    shard_index: int
    number: int
    status: Status
    duration_ms: int | None
    is_flaky: bool
    is_quarantined: bool
    failures: tuple[Failure, ...] = ()


class CaseRuns(msgspec.Struct, frozen=True, kw_only=True):
    """A page of cases, in the order of shards and bundles."""

    items: tuple[CaseRun, ...]
    next: str = ""


class Repetition(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of several."""

    repetition_number: int
    name: str
    status: Status
    duration_ms: int
    failures: tuple[Failure, ...] = ()


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One set of arguments of a parameterised case."""

    name: str
    status: Status
    duration_ms: int
    failures: tuple[Failure, ...] = ()
    repetitions: tuple[Repetition, ...] = ()


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a test attached; `url` downloads it until `expires_at`."""

    id: str
    case: str
    file_name: str
    uniform_type: str
    size: int
    repetition_number: int | None
    argument_name: str | None
    url: str
    expires_at: float


class Attachments(msgspec.Struct, frozen=True, kw_only=True):
    """A page of attachments."""

    items: tuple[Attachment, ...]
    next: str = ""


class Crash(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of a crash report."""

    file_name: str
    exception_type: str
    exception_subtype: str
    signal: str
    triggered_thread_frames: str
    attachment: str | None = None


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """A case in one shard and test plan of a run, with everything below it."""

    shard_index: int
    number: int
    name: str
    status: Status
    duration_ms: int | None
    is_flaky: bool
    is_quarantined: bool
    failures: tuple[Failure, ...]  # of the case itself, not of what is below it
    arguments: tuple[Argument, ...]
    repetitions: tuple[Repetition, ...]
    attachments: tuple[Attachment, ...]
    crashes: tuple[Crash, ...]


class Test(msgspec.Struct, frozen=True, kw_only=True):
    """A test of a project, the same in every run."""

    case: str
    account: str
    project: str
    module: str
    suite: str
    name: str
    identifier: str
    first_seen: float
    last_seen: float


class CaseDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One case of one run."""

    run: str
    test: Test
    executions: tuple[Execution, ...]


class Tests(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tests, by module, suite and name."""

    items: tuple[Test, ...]
    next: str = ""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a test in the last `days`, counted."""

    days: int
    runs: int
    succeeded: int
    failed: int
    skipped: int
    flaky: int  # runs in which it failed first and then succeeded
    mixed_commits: int  # commits on which it both succeeded and failed
    average_ms: float | None = None
    median_ms: float | None = None
    p95_ms: float | None = None


class TestDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A test with its recent results."""

    test: Test
    figures: Figures


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a test's history."""

    run: str
    shard_index: int
    number: int
    status: Status
    duration_ms: int | None
    is_flaky: bool
    is_quarantined: bool
    ran_at: float
    git_branch: str
    git_commit_sha: str


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a test's results, newest first."""

    items: tuple[Past, ...]
    next: str = ""


class FlakyTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test that has different results for the same code."""

    test: Test
    figures: Figures
    last_flaky_at: float


class FlakyTests(msgspec.Struct, frozen=True, kw_only=True):
    """The flakiest tests of the window first."""

    days: int
    items: tuple[FlakyTest, ...]


class CoverageTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one target."""

    name: str
    covered_lines: int
    executable_lines: int


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a whole run; of several shards, a line counts as covered if any of them ran it."""

    covered_lines: int
    executable_lines: int
    targets: tuple[CoverageTotal, ...]


class CoverageFile(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one file in one target."""

    target: str
    path: str
    covered_lines: int
    executable_lines: int


class CoverageFiles(msgspec.Struct, frozen=True, kw_only=True):
    """A page of files, by target and path."""

    items: tuple[CoverageFile, ...]
    next: str = ""


class CoverageLines(msgspec.Struct, frozen=True, kw_only=True):
    """How often each executable line of a file ran: pairs of line and count, over all shards."""

    target: str
    path: str
    lines: tuple[tuple[int, int], ...]
