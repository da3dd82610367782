"""The record of one VM.

A record is written before each side effect and proves that the agent owns the VM. It also carries the
VM's result, which outlives the VM until the API server has acknowledged it.

    intended ──▶ created ──▶ started ──▶ exited ──▶ published ──▶ deleted
    (may exist)  (may start)  (may have   (result    (API server   (VM removed; the Pod
                               run)        known)     has it)       still exists)

Invariants:
- `started` is written before the VM is started: a record that says less proves that it never ran.
- A record with a result never leads to a start again.
"""

import re
from enum import StrEnum

import msgspec

MESSAGE_LIMIT = 1024
_NAME_LIMIT = 40
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\u00a0-\uffff]+")
_UNSAFE_IN_NAME = re.compile(r"[^A-Za-z0-9.-]+")


class Phase(StrEnum):
    """The furthest phase of a VM that its record proves."""

    INTENDED = "intended"
    CREATED = "created"
    STARTED = "started"
    EXITED = "exited"
    PUBLISHED = "published"
    DELETED = "deleted"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a VM ended."""

    exit_code: int
    reason: str
    message: str = ""
    finished_at: float

    @property
    def succeeded(self) -> bool:
        """Whether the Pod is Succeeded."""
        return self.exit_code == 0


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one VM that the agent owns."""

    uid: str  # the Pod's
    namespace: str
    name: str  # the Pod's
    vm: str
    image: str  # as the Pod names it
    pinned: str = (
        ""  # the reference with the digest that the VM is created from; empty until it is known
    )
    pool: str = "unknown"
    phase: Phase = Phase.INTENDED
    recorded_at: float
    started_at: float | None = None
    booted_at: float | None = None
    result: Outcome | None = None

    @property
    def source(self) -> str:
        """What the VM is, or will be, created from."""
        return self.pinned or self.image

    @property
    def key(self) -> str:
        """The Pod's key in a work queue."""
        return f"{self.namespace}/{self.name}"


def vm_name(pod_name: str, uid: str) -> str:
    """The name of a Pod's VM: readable by its beginning, unique by the uid at its end."""
    readable = _UNSAFE_IN_NAME.sub("-", pod_name)[:_NAME_LIMIT].rstrip("-.")
    return f"{readable}-{uid}"


def bounded(text: str) -> str:
    """Return text from a guest or a tool as one printable line of limited length."""
    clean = _UNPRINTABLE.sub(" ", text).strip()
    return clean if len(clean) <= MESSAGE_LIMIT else clean[: MESSAGE_LIMIT - 1] + "…"
