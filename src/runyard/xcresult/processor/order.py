"""What a worker tells the child that reads a bundle, and what the child answers."""

from typing import Literal

import msgspec

from runyard.xcresult.archives.limits import Limits


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Read the upload in that room. No secret is in it: the child can reach neither database nor object storage."""

    room: str
    run_id: str
    shard: int
    account: str
    project: str
    memory: int
    cpu: int
    """Seconds of processor time."""
    reserve: int
    """Bytes that stay free on the room's filesystem."""
    limits: Limits
    parent: int
    """The worker's process id: the child does not outlive it."""
    compare: bool = False
    """Write down, too, what Apple's tool should say of it."""
    trace: str = ""
    """Write down the name of every file that is opened for writing or made, into this file; for tests."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle says as a whole: columns of its run's row."""

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


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    end: Literal["read", "refused", "failed", "no_room"]
    code: str = ""
    reason: str = ""
    bundle: str = ""
    """Where the bundle lies in the room."""
    summary: Summary | None = None
