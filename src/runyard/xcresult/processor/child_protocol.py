"""Messages between a worker and the child process that reads a bundle."""

from typing import Literal

import msgspec

from runyard.wire.reasons import Value
from runyard.xcresult.archives.limits import Limits


class ReadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Asks the child to read the upload in a workdir. Contains no secret: the child needs no database or storage."""

    workdir: str
    run_id: str
    shard: int
    account: str
    project: str
    memory: int
    cpu: int
    """Limit of processor time, in seconds."""
    reserve: int
    """Bytes that must stay free on the workdir's filesystem."""
    limits: Limits
    parent: int
    """The worker's process id: the child ends when this process ends."""
    compare: bool = False
    """Also write what xcresulttool should print for the bundle."""
    trace: str = ""
    """Record the name of every file created or opened for writing in this file; for tests."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the whole bundle: columns of its run's row."""

    status: Literal["success", "failure", "skipped"]
    duration_ms: int
    test_plan: str
    format: str
    source: str
    modules: int
    cases: int
    failed: int
    skipped: int
    flaky: int
    destinations: tuple[dict[str, str], ...] = ()
    errors: tuple[dict[str, str], ...] = ()
    warnings: tuple[dict[str, str], ...] = ()
    build_issues: tuple[dict[str, object], ...] = ()
    covered_lines: int | None = None
    executable_lines: int | None = None


class ReadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How reading ended."""

    end: Literal["read", "refused", "exhausted", "failed", "no_space"]
    code: str = ""
    """Slug of the reason; empty if the bundle was read."""
    detail: dict[str, Value] = {}
    """Detail of the reason."""
    bundle: str = ""
    """Path of the bundle in the workdir."""
    summary: Summary | None = None
