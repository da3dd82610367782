"""A copy of the server's rows for the invariant checks, updated from the log of transitions, commit by commit.

Reading the whole table after every commit would cost more than the run itself. The log of transitions is
append-only and written in the same transaction as the change, so reading what is new in it is enough; now
and then the copy is compared with the table, and a difference is a change that was not logged.
"""

import msgspec

from runyard.db.contract import Row
from runyard.db.inline import InlineDatabase
from runyard.db.statements import load
from runyard.wire.reasons_dispatch import TRANSITIONS, Why

CLAIMS = ("offered", "armed", "executing", "draining")
SQL = load("runyard.sim")


class SlotView(msgspec.Struct, frozen=True, kw_only=True):
    """One slot."""

    pod_uid: str
    pod_name: str
    pool: str
    state: str
    tenant: str
    scope: str
    platform: str
    vcpus: int
    memory_gb: int
    intended_job: int | None
    executing_job: int | None
    runner_name: str
    fence: str

    @property
    def claims(self) -> bool:
        """Whether it holds a tenant's budget."""
        return self.state in CLAIMS


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the log."""

    id: int
    subject: str
    key: str
    source: str
    target: str
    reason: str  # a slug
    detail: dict[str, object] = {}
    actor: str


class Ledger:
    """Open slots by uid, and closed ones with a fence due."""

    def __init__(self, database: InlineDatabase) -> None:
        self._database = database
        self._last = 0
        self.slots: dict[str, SlotView] = {}
        self.by_runner: dict[str, str] = {}  # runner name → uid of the newest slot that had it
        self.limits: dict[tuple[str, str], tuple[int, int]] = {}
        self.counts: dict[str, int] = {}  # "source→target" → how often
        self.displaced: dict[
            str, str
        ] = {}  # a job whose runner got another one → what the log says

    def new_entries(self) -> tuple[str, dict[str, object]]:
        """The statement that reads what was logged since the last call."""
        return SQL.changes_since, {"last": self._last}

    def take_changes(self, rows: list[Row]) -> tuple[tuple[Change, ...], tuple[SlotView, ...]]:
        """Applies the new log entries; returns them, and the slots that they touched as they are now."""
        changes, touched = [], {}
        for row in rows:
            self._last = row["id"]
            changes.append(_change(row))
            if row["subject"] == "slot" and row["state"] is not None:
                touched[row["pod_uid"]] = _slot(row)
        for slot in touched.values():
            self._keep(slot)
        for change in changes:
            edge = f"{change.source or 'new'}→{change.target}"
            self.counts[edge] = self.counts.get(edge, 0) + 1
            if edge == "bound→queued" and change.reason == Why.RUNNER_GOT_ANOTHER:
                self.displaced[change.key] = TRANSITIONS.text(change.reason, change.detail)
        return tuple(changes), tuple(touched.values())

    def unlogged(self) -> str:
        """A difference between this copy and the table; empty if there is none."""
        rows = self._database.peek(SQL.slots_all)
        table = {row["pod_uid"]: _slot(row) for row in rows}
        for uid in sorted({**table, **self.slots}):
            if table.get(uid) != self.slots.get(uid):
                return f"the log says {self.slots.get(uid)}, the table {table.get(uid)}"
        return ""

    def limit(self, tenant: str, platform: str) -> tuple[int, int]:
        """A tenant's budget: virtual processors and memory."""
        if (tenant, platform) not in self.limits:
            rows = self._database.peek(SQL.limits)
            self.limits = {
                (row["tenant"], row["platform"]): (row["vcpus"], row["memory_gb"]) for row in rows
            }
        return self.limits.get((tenant, platform), (0, 0))

    def used(self, tenant: str, platform: str) -> tuple[int, int]:
        """What a tenant's claims hold."""
        held = [
            slot
            for slot in self.slots.values()
            if slot.claims and slot.tenant == tenant and slot.platform == platform
        ]
        return sum(slot.vcpus for slot in held), sum(slot.memory_gb for slot in held)

    def jobs(self) -> dict[int, Row]:
        """Every job in the server's tables."""
        rows = self._database.peek(SQL.jobs_all)
        return {row["job_id"]: row for row in rows}

    def waiting(self) -> dict[str, int]:
        """How many jobs wait, by tenant."""
        rows = self._database.peek(SQL.jobs_waiting)
        return {row["tenant"]: row["waiting"] for row in rows}

    def add_tenant(
        self, tenant: str, *, installation_id: int, platform: str, vcpus: int, memory_gb: int
    ) -> None:
        """Adds a tenant."""
        self._database.peek(SQL.tenant_put, tenant=tenant, installation_id=installation_id)
        self._database.peek(
            SQL.limit_put, tenant=tenant, platform=platform, vcpus=vcpus, memory_gb=memory_gb
        )

    def pause(self, tenant: str, *, paused: bool) -> None:
        """Pauses a tenant, or resumes it."""
        self._database.peek(SQL.tenant_pause, tenant=tenant, paused=paused)

    def lose(self, pod_uid: str) -> None:
        """Deletes a slot's row, as a database does that has lost its last commits."""
        self._database.peek(SQL.slot_lose, pod_uid=pod_uid)
        del self.slots[pod_uid]

    def _keep(self, slot: SlotView) -> None:
        if slot.runner_name:
            self.by_runner[slot.runner_name] = slot.pod_uid
        if slot.state == "closed" and slot.fence != "due":
            self.slots.pop(slot.pod_uid, None)
        else:
            self.slots[slot.pod_uid] = slot


def _slot(row: Row) -> SlotView:
    return SlotView(**{name: row[name] for name in SlotView.__struct_fields__})


def _change(row: Row) -> Change:
    slot = row["subject"] == "slot"
    return Change(
        id=row["id"],
        subject=row["subject"],
        key=str(row["pod_uid"] if slot else row["job_id"]),
        source=row["source"],
        target=row["target"],
        reason=row["reason"],
        detail=row["detail"],
        actor=row["actor"],
    )
