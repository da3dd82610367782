"""Webhooks of single repositories, beside the App's: for users with a personal access token and no App.

Each has its own log. Its payload names no installation, because there is none. They are configured, not stored:
after a restart they must be configured again, and their deliveries are lost.
"""

import random
from collections.abc import Iterator, Sequence

import msgspec

from runyard.clock import Clock
from runyard.embedded.github import deliveries, render
from runyard.embedded.github.bodies import number
from runyard.embedded.github.deliveries import Attempt, Deliver, DeliveryLog
from runyard.embedded.github.identity import NotFound
from runyard.embedded.github.model import Installation, Job, Repo
from runyard.embedded.github.pages import delivery_page
from runyard.embedded.github.render import Json
from runyard.embedded.github.settings import PracticeSettings
from runyard.http.messages import Request, Response, json_response


class RepoHook(msgspec.Struct, kw_only=True, eq=False):
    """One webhook of one repository."""

    id: int
    repo: Repo
    url: str
    log: DeliveryLog
    events: tuple[str, ...] = ("workflow_job",)


class RepoHooks:
    """All webhooks of all repositories."""

    def __init__(self, *, clock: Clock, rng: random.Random, settings: PracticeSettings) -> None:
        self._clock = clock
        self._rng = rng
        self._settings = settings
        self._hooks: dict[int, RepoHook] = {}

    def add(self, repo: Repo, *, url: str, secret: str, deliver: Deliver | None) -> RepoHook:
        """Adds a webhook to a repository."""
        log = DeliveryLog(
            clock=self._clock,
            rng=self._rng,
            secret=secret,
            settings=self._settings,
            deliver=deliver,
        )
        hook = RepoHook(id=900_001 + len(self._hooks), repo=repo, url=url, log=log)
        self._hooks[hook.id] = hook
        return hook

    def emit(self, job: Job, action: str, *, owner: Installation) -> None:
        """Adds an event of a job to every webhook of its repository."""
        for hook in self._of(job.repo):
            event = render.job_event(job, action, owner=owner)
            del event["installation"]
            hook.log.add(job, action, body=msgspec.json.encode(event))

    def take_pending(self) -> list[tuple[DeliveryLog, Attempt]]:
        """Attempts that have not started, each with its log; the caller starts them."""
        return [
            (hook.log, attempt)
            for hook in self._hooks.values()
            for attempt in hook.log.take_pending()
        ]

    @property
    def has_pending(self) -> bool:
        """Whether there is something to send."""
        return any(hook.log.has_pending for hook in self._hooks.values())

    def serve(self, request: Request, repo: Repo, rest: Sequence[str]) -> Response:
        """Endpoints under `/repos/{owner}/{repo}/hooks`."""
        match (request.method, *rest):
            case ("GET",):
                return json_response(200, [_shown(hook) for hook in self._of(repo)])
            case ("GET", text, "deliveries"):
                return delivery_page(request, self._hook(repo, text).log)
            case ("GET", text, "deliveries", delivery):
                return json_response(200, deliveries.detail(self._attempt(repo, text, delivery)))
            case ("POST", text, "deliveries", delivery, "attempts"):
                attempt = self._attempt(repo, text, delivery)
                self._hook(repo, text).log.redeliver(attempt)
                return json_response(202, {})
            case _:
                raise NotFound

    def _of(self, repo: Repo) -> Iterator[RepoHook]:
        return (hook for hook in self._hooks.values() if hook.repo is repo)

    def _hook(self, repo: Repo, text: str) -> RepoHook:
        hook = self._hooks.get(number(text))
        if hook is None or hook.repo is not repo:
            raise NotFound
        return hook

    def _attempt(self, repo: Repo, hook: str, delivery: str) -> Attempt:
        attempt = self._hook(repo, hook).log.get(number(delivery))
        if attempt is None:
            raise NotFound
        return attempt


def _shown(hook: RepoHook) -> Json:
    return {
        "type": "Repository",
        "id": hook.id,
        "name": "web",
        "active": True,
        "events": hook.events,
        "config": {"url": hook.url, "content_type": "json", "insecure_ssl": "0"},
    }
