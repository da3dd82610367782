"""Applies one `workflow_job` event in one short transaction, without calls to Kubernetes or GitHub.

It is idempotent in two ways: by the delivery's guid, which is written in the same transaction, and by state, because
the machine accepts the same fact any number of times and in any order. Webhooks and audits use the same code.
"""

from collections.abc import Callable

import msgspec

from runyard.db.contract import Statement, Tx
from runyard.dispatch.machine.events import JobFact, JobQueued, JobWaiting
from runyard.dispatch.machine.values import Decision
from runyard.dispatch.matching.values import Kind
from runyard.dispatch.origin import read_facts
from runyard.dispatch.plans.trust import decide
from runyard.dispatch.recovery.reading import to_fact
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL, Applied, JobInfo, Store
from runyard.dispatch.waiters import Waiters
from runyard.github.scope import Scope, repository
from runyard.github.views import InstallationRef, JobEvent, JobView, RepositoryView, read_job_event
from runyard.telemetry.catalogue import TUIST_RUNNERS_WEBHOOK_COUNT
from runyard.telemetry.meter import Meter
from runyard.text import cleaned
from runyard.wire.reasons import Reason
from runyard.wire.reasons_dispatch import DeliveryOutcome, Objection, Trust

ACTIONS = ("waiting", "queued", "in_progress", "completed")
_ID_LIMIT = 1 << 63
_ATTEMPTS_LIMIT = 1 << 31
_TEXT_LIMIT = 200
# Bytes of all labels as Postgres stores them: they are part of indexes, whose rows hold 2704 bytes altogether.
_LABELS_LIMIT = 2000
_LABEL_EXTRA = 8  # length and padding of each


class IntakeResult(msgspec.Struct, frozen=True):
    """The outcome of an event, with a reason if it is invalid."""

    outcome: DeliveryOutcome
    reason: Reason | None = None


class Intake:
    """Applies GitHub's events to jobs."""

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
        self._only = only  # set if there is a token for one repository instead of an App
        self._waiters = waiters
        self._meter = meter
        # The limits of a new tenant.
        self._limits = msgspec.json.encode(settings.default_limits).decode()

    async def apply(self, *, guid: str, body: bytes) -> IntakeResult:
        """Apply the body of a `workflow_job` event. Raises only `DatabaseError`."""
        try:
            event = read_job_event(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            reason = Objection.UNREADABLE.because(message=str(error))
            return IntakeResult(
                await self._record_ignored(guid, "unknown", DeliveryOutcome.UNREADABLE), reason
            )
        event = self._with_installation(event)
        if (invalid := validate(event)) is not None:
            return IntakeResult(
                await self._record_ignored(guid, "unknown", DeliveryOutcome.INVALID), invalid
            )
        if event.action not in ACTIONS:
            return IntakeResult(await self._record_ignored(guid, "other", DeliveryOutcome.IGNORED))
        outcome = await self._apply_first(guid, event) if event.action == "queued" else None
        again = outcome is None
        if outcome is None:
            outcome = await self._store.transact(
                lambda tx: self._apply(tx, guid, event), name="webhook"
            )
        # A duplicate at the second attempt may have been committed by the first one.
        if outcome is DeliveryOutcome.APPLIED or (again and outcome is DeliveryOutcome.DUPLICATE):
            self._notify_matchers(event)
        return IntakeResult(self._count(event.action, outcome))

    async def apply_listed(self, repo: Scope, job: JobView) -> IntakeResult:
        """Apply a job that was found in a list of jobs at GitHub instead of an event."""
        event = JobEvent(
            action=job.status,
            workflow_job=job,
            repository=RepositoryView(id=0, full_name=f"{repo.owner}/{repo.repo}"),
            installation=InstallationRef(id=repo.installation_id),
        )
        if (invalid := validate(event)) is not None:
            return IntakeResult(DeliveryOutcome.INVALID, invalid)
        if event.action not in ACTIONS:
            return IntakeResult(DeliveryOutcome.IGNORED)
        outcome = await self._store.transact(
            lambda tx: self._apply_listed(tx, event), name="job found"
        )
        if outcome is DeliveryOutcome.APPLIED:
            self._notify_matchers(event)
        return IntakeResult(outcome)

    def _notify_matchers(self, event: JobEvent) -> None:
        kind = Kind(
            tenant=_tenant(event),
            repository=event.repository.full_name,
            labels=event.workflow_job.labels,
        )
        self._waiters.notify_matchers(kind if event.action == "queued" else None)

    def _with_installation(self, event: JobEvent) -> JobEvent:
        """Add the token's installation to an event of a repository's own webhook, which has none."""
        only = self._only
        if only is None:
            return event
        matches = f"{only.owner}/{only.repo}".lower() == event.repository.full_name.lower()
        installation = InstallationRef(id=only.installation_id) if matches else None
        return msgspec.structs.replace(event, installation=installation)

    async def _record_ignored(
        self, guid: str, action: str, outcome: DeliveryOutcome
    ) -> DeliveryOutcome:
        """Record an event that changes nothing, so that the audit does not fetch it again."""

        async def record(tx: Tx) -> None:
            await tx.one(SQL.delivery_insert, guid=guid, action=action, outcome=outcome.value)

        await self._store.transact(record, name="webhook ignored")
        return self._count(action, outcome)

    async def _apply_first(self, guid: str, event: JobEvent) -> DeliveryOutcome | None:
        """Apply an event of a job that is probably new; None if the job may be known."""
        applied = await self._store.insert_job(
            _fact(event, _tenant(event)),
            _info(event),
            first=(self._tenant_of(event),),
            beside=_delivery(guid, event),
            name="webhook",
        )
        return None if applied is None else _delivered(applied)

    async def _apply(self, tx: Tx, guid: str, event: JobEvent) -> DeliveryOutcome:
        tenant, delivery = self._tenant_of(event), _delivery(guid, event)
        return _delivered(await self._apply_fact(tx, event, first=(tenant,), beside=delivery))

    async def _apply_listed(self, tx: Tx, event: JobEvent) -> DeliveryOutcome:
        """Apply a listed job. A list lacks the kind of account, so a known tenant is not changed."""
        first = () if self._only is None else (self._tenant_insert(event, kind="User"),)
        return _outcome((await self._apply_fact(tx, event, first=first)).decision)

    async def _apply_fact(
        self,
        tx: Tx,
        event: JobEvent,
        *,
        first: tuple[Statement, ...],
        beside: Callable[[Decision], Statement] | None = None,
    ) -> Applied:
        tenant = _tenant(event)
        return await self._store.apply_job_event(
            tx,
            _fact(event, tenant),
            tenant,
            _info(event),
            first=first,
            beside=beside,
            last=True,
        )

    def _tenant_of(self, event: JobEvent) -> Statement:
        """The statement that inserts the event's tenant."""
        # With a token for one repository, runners are registered at that repository, also if an organisation owns it.
        organised = event.organization is not None and self._only is None
        return self._tenant_insert(event, kind="Organization" if organised else "User")

    def _tenant_insert(self, event: JobEvent, *, kind: str) -> Statement:
        installation = 0 if event.installation is None else event.installation.id
        row = {
            "tenant": _tenant(event),
            "installation_id": installation,
            "kind": kind,
            "account_id": _account_id(event),
            "limits": self._limits,
        }
        return SQL.tenant_insert, row

    def _count(self, action: str, outcome: DeliveryOutcome) -> DeliveryOutcome:
        self._meter.inc(TUIST_RUNNERS_WEBHOOK_COUNT, action=action, outcome=outcome.value)
        return outcome


def validate(event: JobEvent) -> Reason | None:
    """Return why an event is invalid (it cannot be stored, or its job not be read at GitHub later), or None."""
    job, installation = event.workflow_job, event.installation
    if installation is None:
        return Objection.NO_INSTALLATION.because()
    if not 0 < installation.id < _ID_LIMIT or not 0 < job.id < _ID_LIMIT:
        return Objection.ID_OUT_OF_RANGE.because()
    try:
        repository(event.repository.full_name, installation_id=installation.id)
    except ValueError as error:
        return Objection.REPOSITORY_INVALID.because(message=str(error))
    texts = (*job.labels, job.runner_name or "", job.conclusion or "")
    if not all(len(text) <= _TEXT_LIMIT and text.isprintable() for text in texts):
        return Objection.TEXT_INVALID.because(limit=_TEXT_LIMIT)
    if sum(len(label.encode()) + _LABEL_EXTRA for label in job.labels) > _LABELS_LIMIT:
        return Objection.LABELS_TOO_LONG.because(limit=_LABELS_LIMIT, extra=_LABEL_EXTRA)
    return None


def shown_text(text: str | None) -> str:
    """Return a text for display: shortened, without unprintable characters."""
    return cleaned((text or "")[:_TEXT_LIMIT], instead=" ", shown=str.isprintable)


def _outcome(decision: Decision) -> DeliveryOutcome:
    return DeliveryOutcome.KNOWN if decision.refused else DeliveryOutcome.APPLIED


def _tenant(event: JobEvent) -> str:
    return event.repository.full_name.partition("/")[0]


def _account_id(event: JobEvent) -> int:
    """The number of the account that owns the repository; 0 if the event does not say."""
    owner = event.repository.owner
    numbers = (0 if owner is None else owner.id, event.organization.id if event.organization else 0)
    return next((each for each in numbers if 0 < each < _ID_LIMIT), 0)


def _delivery(guid: str, event: JobEvent) -> Callable[[Decision], Statement]:
    """Make the statement that records a delivery with its outcome."""

    def statement(decision: Decision) -> Statement:
        row: dict[str, object] = {
            "guid": guid,
            "action": event.action,
            "outcome": _outcome(decision).value,
        }
        return SQL.delivery_insert, row

    return statement


def _delivered(applied: Applied) -> DeliveryOutcome:
    """The outcome; a delivery that was recorded before returns no row."""
    return _outcome(applied.decision) if applied.beside[0] else DeliveryOutcome.DUPLICATE


def _info(event: JobEvent) -> JobInfo:
    job = event.workflow_job
    return JobInfo(
        repository=event.repository.full_name,
        labels=job.labels,
        run_id=job.run_id if 0 < job.run_id < _ID_LIMIT else 0,
        run_attempt=job.run_attempt if 0 < job.run_attempt < _ATTEMPTS_LIMIT else 1,
        name=shown_text(job.name),
        workflow=shown_text(job.workflow_name),
        branch=shown_text(job.head_branch),
        head_sha=shown_text(job.head_sha),
        trust=_trust(event),
    )


def _trust(event: JobEvent) -> str:
    """Whether the job's code is trusted, if the event says where it is from; empty if it does not.

    A run that cannot be read may be of an event that is not trusted, whatever its pull request says. Only a job's first
    event is used: a later one of the same job has nothing to add.
    """
    if event.workflow_run is not None and event.run is None:
        return ""
    facts = read_facts(event.run, event.pull)
    decided = decide(facts, repository=event.repository.full_name)
    return "" if decided is Trust.UNKNOWN else decided.value


def _fact(event: JobEvent, tenant: str) -> JobFact:
    job = event.workflow_job
    if event.action == "waiting":
        return JobWaiting(job_id=job.id, tenant=tenant)
    if event.action == "queued":
        return JobQueued(job_id=job.id, tenant=tenant)
    status = "completed" if event.action == "completed" else "in_progress"
    view = msgspec.structs.replace(job, status=status)
    return to_fact(view, job_id=job.id, tenant=tenant)
