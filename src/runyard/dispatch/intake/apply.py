"""Applying one `workflow_job` event: one short transaction, no Kubernetes, no GitHub.

Idempotent twice over: by the delivery's guid, which is written in the same transaction, and by
state, for the machine takes the same fact any number of times and in any order. Whether it came by
webhook or by audit makes no difference.
"""

import msgspec

from runyard.db.contract import Tx
from runyard.dispatch.machine.events import JobFact, JobQueued, JobWaiting
from runyard.dispatch.recovery.reading import to_fact
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL, JobInfo, Store
from runyard.dispatch.waiting import Waiters
from runyard.github.scope import Scope, repository
from runyard.github.views import InstallationRef, JobEvent, JobView, RepositoryView, read_job_event
from runyard.telemetry.catalogue import TUIST_RUNNERS_WEBHOOK_COUNT
from runyard.telemetry.meter import Meter

ACTIONS = ("waiting", "queued", "in_progress", "completed")
_ID_LIMIT = 1 << 63
_ATTEMPTS_LIMIT = 1 << 31
_TEXT_LIMIT = 200
# Bytes of all labels as Postgres stores them: they are part of indexes, whose rows hold 2704 bytes altogether.
_LABELS_LIMIT = 2000
_LABEL_EXTRA = 8  # its length and its padding


class Came(msgspec.Struct, frozen=True):
    """What came of an event; with a reason if it makes no sense."""

    outcome: str
    reason: str = ""


class Intake:
    """Turns GitHub's events into facts about jobs."""

    def __init__(
        self,
        *,
        store: Store,
        waiters: Waiters,
        meter: Meter,
        settings: Settings,
        only: Scope | None = None,
    ) -> None:
        self._store = store
        self._only = only  # there is no App, and a token for this repository
        self._waiters = waiters
        self._meter = meter
        self._settings = settings

    async def apply(self, *, guid: str, body: bytes) -> Came:
        """Apply a `workflow_job` body; returns what came of it. Raises only `DatabaseError`."""
        try:
            event = read_job_event(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return Came(await self._pass_over(guid, "unknown", "unreadable"), str(error))
        event = self._as_ours(event)
        if why := objection(event):
            return Came(await self._pass_over(guid, "unknown", "nonsense"), why)
        if event.action not in ACTIONS:
            return Came(await self._pass_over(guid, "other", "ignored"))
        outcome = await self._store.transact(
            lambda tx: self._apply(tx, guid, event), name="webhook"
        )
        self._tell(outcome)
        return Came(self._count(event.action, outcome))

    async def found(self, repo: Scope, job: JobView) -> Came:
        """Apply what GitHub says of a job that was read in a list, where no event told of it."""
        event = JobEvent(
            action=job.status,
            workflow_job=job,
            repository=RepositoryView(id=0, full_name=f"{repo.owner}/{repo.repo}"),
            installation=InstallationRef(id=repo.installation_id),
        )
        if why := objection(event):
            return Came("nonsense", why)
        if event.action not in ACTIONS:
            return Came("ignored")
        outcome = await self._store.transact(lambda tx: self._take(tx, event), name="job found")
        self._tell(outcome)
        return Came(outcome)

    def _tell(self, outcome: str) -> None:
        if outcome == "applied":
            self._waiters.made_work()

    def _as_ours(self, event: JobEvent) -> JobEvent:
        """An event of a repository's own webhook has no installation; the token's stands for it."""
        only = self._only
        if only is None:
            return event
        named = f"{only.owner}/{only.repo}".lower() == event.repository.full_name.lower()
        ours = InstallationRef(id=only.installation_id) if named else None
        return msgspec.structs.replace(event, installation=ours)

    async def _pass_over(self, guid: str, action: str, outcome: str) -> str:
        """Remember an event that changes nothing, so that the audit does not fetch it again and again."""

        async def remember(tx: Tx) -> None:
            await tx.one(SQL.delivery_insert, guid=guid, action=action, outcome=outcome)

        await self._store.transact(remember, name="webhook passed over")
        return self._count(action, outcome)

    async def _apply(self, tx: Tx, guid: str, event: JobEvent) -> str:
        # Where there is only a token for a repository, runners are registered there, whoever owns it.
        organised = event.organization is not None and self._only is None
        await self._know_tenant(tx, event, kind="Organization" if organised else "User")
        outcome = await self._fact(tx, event)
        first = await tx.one(SQL.delivery_insert, guid=guid, action=event.action, outcome=outcome)
        return outcome if first is not None else "duplicate"

    async def _take(self, tx: Tx, event: JobEvent) -> str:
        """A list does not tell what kind of account it is: a tenant that is known stays as it is."""
        if self._only is not None:
            await self._know_tenant(tx, event, kind="User")
        return await self._fact(tx, event)

    async def _fact(self, tx: Tx, event: JobEvent) -> str:
        job, tenant = event.workflow_job, _tenant(event)
        info = JobInfo(
            repository=event.repository.full_name,
            labels=job.labels,
            run_id=job.run_id if 0 < job.run_id < _ID_LIMIT else 0,
            run_attempt=job.run_attempt if 0 < job.run_attempt < _ATTEMPTS_LIMIT else 1,
            name=_shown(job.name),
            workflow=_shown(job.workflow_name),
            branch=_shown(job.head_branch),
            head_sha=_shown(job.head_sha),
        )
        decision = await self._store.job_fact(tx, _fact(event, tenant), tenant, info)
        return "known" if decision.refused else "applied"

    async def _know_tenant(self, tx: Tx, event: JobEvent, *, kind: str) -> None:
        tenant = _tenant(event)
        installation = 0 if event.installation is None else event.installation.id
        added = await tx.run(
            SQL.tenant_insert, tenant=tenant, installation_id=installation, kind=kind
        )
        if not added:
            return
        for limit in self._settings.default_limits:
            await tx.run(
                SQL.tenant_limit_insert,
                tenant=tenant,
                platform=limit.platform,
                vcpus=limit.vcpus,
                memory_gb=limit.memory_gb,
            )

    def _count(self, action: str, outcome: str) -> str:
        self._meter.inc(TUIST_RUNNERS_WEBHOOK_COUNT, action=action, outcome=outcome)
        return outcome


def objection(event: JobEvent) -> str:
    """Why GitHub cannot have said this, or nothing: what could not be stored, or not be asked about later."""
    job, installation = event.workflow_job, event.installation
    if installation is None:
        return "there is no installation, or it is another repository than the token's"
    if not 0 < installation.id < _ID_LIMIT or not 0 < job.id < _ID_LIMIT:
        return "the id of the job or of the installation is none"
    try:
        repository(event.repository.full_name, installation_id=installation.id)
    except ValueError as error:
        return str(error)
    texts = (*job.labels, job.runner_name or "", job.conclusion or "")
    if not all(len(text) <= _TEXT_LIMIT and text.isprintable() for text in texts):
        return f"a label, a name or a conclusion is longer than {_TEXT_LIMIT} characters or not printable"
    if sum(len(label.encode()) + _LABEL_EXTRA for label in job.labels) > _LABELS_LIMIT:
        return f"the labels take more than {_LABELS_LIMIT} bytes ({_LABEL_EXTRA} for each, and its text)"
    return ""


def _shown(text: str | None) -> str:
    """What people know a job by: nothing depends on it, so it is cut to what can be stored and shown."""
    return "".join(each if each.isprintable() else " " for each in (text or "")[:_TEXT_LIMIT])


def _tenant(event: JobEvent) -> str:
    return event.repository.full_name.partition("/")[0]


def _fact(event: JobEvent, tenant: str) -> JobFact:
    job = event.workflow_job
    if event.action == "waiting":
        return JobWaiting(job_id=job.id, tenant=tenant)
    if event.action == "queued":
        return JobQueued(job_id=job.id, tenant=tenant)
    status = "completed" if event.action == "completed" else "in_progress"
    view = msgspec.structs.replace(job, status=status)
    return to_fact(view, job_id=job.id, tenant=tenant)
