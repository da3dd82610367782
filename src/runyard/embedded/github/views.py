"""Renders the practice GitHub's records for the practice routes; credentials are left out."""

import msgspec

from runyard.embedded.github.deliveries import Attempt
from runyard.embedded.github.model import AccountKind, Installation, Job, JobStatus, Repo, Runner
from runyard.wire.instants import to_rfc3339


class RepoView(msgspec.Struct, frozen=True, kw_only=True):
    """A repository."""

    id: int
    repo: str
    runners_allowed: bool


class AccountView(msgspec.Struct, frozen=True, kw_only=True):
    """An account with the App installed, and its repositories."""

    account: str
    kind: AccountKind
    installation_id: int
    suspended: bool
    repos: tuple[RepoView, ...]


class HistoryView(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a job."""

    at: str
    what: str
    runner: str | None


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job with all that has happened to it."""

    id: int
    run_id: int
    name: str
    repo: str
    labels: tuple[str, ...]
    script: str
    duration: float | None
    status: JobStatus
    conclusion: str | None
    cancel_requested: bool
    runner_id: int | None
    runner_name: str | None
    created_at: str
    started_at: str | None
    completed_at: str | None
    log_size: int
    history: tuple[HistoryView, ...]


class RunnerView(msgspec.Struct, frozen=True, kw_only=True):
    """A registration."""

    id: int
    name: str
    scope: str
    labels: tuple[str, ...]
    online: bool
    busy: bool
    job_id: int | None
    created_at: str


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to deliver a webhook; one that has not ended has no outcome yet."""

    id: int
    guid: str
    event: str
    action: str
    redelivery: bool
    ended: bool
    status: str
    status_code: int
    created_at: str
    duration: float


class Accounts(msgspec.Struct, frozen=True):
    """All accounts."""

    items: tuple[AccountView, ...]


class Runners(msgspec.Struct, frozen=True):
    """All registrations, oldest first."""

    items: tuple[RunnerView, ...]


class Jobs(msgspec.Struct, frozen=True):
    """Jobs, newest first; `before` asks for the next page, if there is one."""

    items: tuple[JobView, ...]
    before: int | None


class Deliveries(msgspec.Struct, frozen=True):
    """Attempts, newest first; `before` asks for the next page, if there is one."""

    items: tuple[DeliveryView, ...]
    before: int | None


def account(record: Installation) -> AccountView:
    """Renders an account."""
    return AccountView(
        account=record.account,
        kind=record.kind,
        installation_id=record.id,
        suspended=record.suspended_at is not None,
        repos=tuple(repo(each) for each in record.repos.values()),
    )


def repo(record: Repo) -> RepoView:
    """Renders a repository."""
    return RepoView(id=record.id, repo=record.full_name, runners_allowed=record.runners_allowed)


def job(record: Job, *, log_size: int) -> JobView:
    """Renders a job."""
    return JobView(
        id=record.id,
        run_id=record.run_id,
        name=record.name,
        repo=record.repo.full_name,
        labels=record.labels,
        script=record.script,
        duration=record.duration,
        status=record.status,
        conclusion=record.conclusion,
        cancel_requested=record.cancel_requested,
        runner_id=record.runner_id,
        runner_name=record.runner_name,
        created_at=to_rfc3339(record.created_at),
        started_at=_instant(record.started_at),
        completed_at=_instant(record.completed_at),
        log_size=log_size,
        history=tuple(
            HistoryView(at=to_rfc3339(entry.time), what=entry.what, runner=entry.runner)
            for entry in record.history
        ),
    )


def runner(record: Runner) -> RunnerView:
    """Renders a registration."""
    return RunnerView(
        id=record.id,
        name=record.name,
        scope=record.scope,
        labels=record.labels,
        online=record.online,
        busy=record.busy,
        job_id=record.job_id,
        created_at=to_rfc3339(record.created_at),
    )


def delivery(record: Attempt) -> DeliveryView:
    """Renders a delivery."""
    return DeliveryView(
        id=record.delivery.id,
        guid=record.delivery.guid,
        event=record.delivery.event,
        action=record.delivery.action,
        redelivery=record.delivery.redelivery,
        ended=record.ended,
        status=record.status,
        status_code=record.status_code,
        created_at=to_rfc3339(record.created_at),
        duration=round(record.duration, 3),
    )


def _instant(seconds: float | None) -> str | None:
    return None if seconds is None else to_rfc3339(seconds)
