"""Structs with the fields that are read from GitHub's responses.

GitHub's objects have dozens of fields and grow; these views hold the few that decisions need. A missing
field that we do not need is never an error. Two spellings of "no runner" exist on the wire (null before
an assignment; 0 and an empty string on a job that was cancelled while queued); both are `None` here.

Invariant: a JIT configuration is a credential; it appears in no repr.
"""

import enum
from typing import Any, TypeVar

import msgspec

from runyard.wire.instants import from_rfc3339

T = TypeVar("T")


class Removal(enum.StrEnum):
    """The outcome of deleting a registration."""

    DELETED = "deleted"
    BUSY = "busy"
    ABSENT = "absent"


class MintedRunner(msgspec.Struct, frozen=True, kw_only=True):
    """A fresh registration and the credential with which exactly one runner can use it."""

    runner_id: int
    encoded_jit_config: str

    def __repr__(self) -> str:
        return f"MintedRunner(runner_id={self.runner_id})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("runner_id", self.runner_id)]


class Label(msgspec.Struct, frozen=True):
    """A runner's label."""

    name: str


class RunnerView(msgspec.Struct, frozen=True, kw_only=True):
    """A registration as GitHub shows it. `busy` may lag behind; only a delete is conclusive."""

    id: int
    name: str
    status: str = "offline"
    busy: bool = False
    labels: tuple[Label, ...] = ()

    @property
    def online(self) -> bool:
        """Whether a runner is connected under this registration."""
        return self.status == "online"


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow job, from a read or from a webhook."""

    id: int
    run_id: int
    status: str
    run_attempt: int = 1
    name: str = ""
    workflow_name: str | None = None
    head_branch: str | None = None
    head_sha: str | None = None
    conclusion: str | None = None
    labels: tuple[str, ...] = ()
    runner_id: int | None = None
    runner_name: str | None = None
    created_at: str | None = None
    started_at: str | None = None
    completed_at: str | None = None

    def __post_init__(self) -> None:
        # Allowed on a frozen struct only here, before the value is used.
        if self.runner_id == 0:
            msgspec.structs.force_setattr(self, "runner_id", None)
        if self.runner_name == "":
            msgspec.structs.force_setattr(self, "runner_name", None)


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to deliver a webhook. Attempts of the same event share the `guid`."""

    id: int
    guid: str
    event: str
    delivered_at: str
    action: str | None = None
    status: str = ""
    status_code: int = 0
    redelivery: bool = False
    installation_id: int | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the receiver acknowledged this attempt."""
        return 200 <= self.status_code < 300

    @property
    def moment(self) -> float:
        """When it was attempted, in seconds since the epoch."""
        return from_rfc3339(self.delivered_at)


class DeliveryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some attempts, newest first, and the cursor of the next older page ("" at the end)."""

    items: tuple[DeliveryView, ...]
    next_cursor: str = ""


class _DeliveredRequest(msgspec.Struct, frozen=True):
    headers: dict[str, str] = {}
    payload: msgspec.Raw = msgspec.Raw(b"null")


class FullDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt with what was sent. `payload` is JSON, not the very bytes that were signed."""

    id: int
    guid: str
    event: str
    delivered_at: str
    status_code: int = 0
    redelivery: bool = False
    request: _DeliveredRequest = _DeliveredRequest()

    @property
    def payload(self) -> bytes:
        """The event's JSON."""
        return bytes(self.request.payload)


class Account(msgspec.Struct, frozen=True):
    """The account of an installation."""

    login: str
    id: int = 0
    type: str = ""


class InstallationView(msgspec.Struct, frozen=True, kw_only=True):
    """The App, installed at an account."""

    id: int
    account: Account
    suspended_at: str | None = None
    permissions: dict[str, str] = {}
    events: tuple[str, ...] = ()


class AppView(msgspec.Struct, frozen=True, kw_only=True):
    """The App itself."""

    id: int
    slug: str = ""
    name: str = ""
    html_url: str = ""
    permissions: dict[str, str] = {}
    events: tuple[str, ...] = ()
    installations_count: int = 0


class NewApp(msgspec.Struct, frozen=True, kw_only=True):
    """An App that GitHub has just made from a manifest, with its secrets."""

    id: int
    pem: str
    webhook_secret: str | None = None
    slug: str = ""
    name: str = ""
    html_url: str = ""

    def __repr__(self) -> str:
        return f"NewApp(id={self.id}, slug={self.slug!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("id", self.id), ("slug", self.slug)]


class RunnerGroupView(msgspec.Struct, frozen=True, kw_only=True):
    """A group of an organisation's runners, and which repositories may use it."""

    id: int
    name: str
    default: bool = False
    visibility: str = ""
    allows_public_repositories: bool = False


class RateView(msgspec.Struct, frozen=True, kw_only=True):
    """The primary limit. `reset` is in seconds since the epoch."""

    limit: int
    remaining: int
    reset: int


class OwnerRef(msgspec.Struct, frozen=True):
    """The account that owns a repository, or that started a run."""

    login: str = ""
    id: int = 0


class RepositoryView(msgspec.Struct, frozen=True, kw_only=True):
    """A repository, of an event or of a list."""

    id: int
    full_name: str
    owner: OwnerRef | None = None


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow run: what started it, and the repository that its code is from (none if that was deleted)."""

    event: str = ""
    repository: RepositoryView | None = None
    head_repository: RepositoryView | None = None
    actor: OwnerRef | None = None


class _Branch(msgspec.Struct, frozen=True):
    repo: RepositoryView | None = None  # none if that repository was deleted


class PullRequestView(msgspec.Struct, frozen=True, kw_only=True):
    """A pull request: the branch that it is from, and what its author is to the repository."""

    head: _Branch = _Branch()
    author_association: str = ""


class InstallationRef(msgspec.Struct, frozen=True):
    """The installation that an event belongs to."""

    id: int


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a `workflow_job` webhook."""

    action: str
    workflow_job: JobView
    repository: RepositoryView
    installation: InstallationRef | None = None
    organization: Account | None = None  # absent where a person owns the repository
    # Not in every event of GitHub: of any type, so that an event is applied whatever they contain.
    workflow_run: Any = None
    pull_request: Any = None

    @property
    def run(self) -> RunView | None:
        """The run of the job, if the event has it in a form that can be read."""
        return _read_part(self.workflow_run, RunView)

    @property
    def pull(self) -> PullRequestView | None:
        """The pull request of the job, if the event has it in a form that can be read."""
        return _read_part(self.pull_request, PullRequestView)


_job_events = msgspec.json.Decoder(JobEvent)


def _read_part(part: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(part, kind)
    except msgspec.ValidationError:
        return None


def read_job_event(body: bytes) -> JobEvent:
    """Read a `workflow_job` body; raises `msgspec.DecodeError` (of which validation is a kind)."""
    return _job_events.decode(body)
