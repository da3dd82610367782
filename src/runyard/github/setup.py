"""Reads the App, its permissions and the rate limit, for setup and checks.

`convert_manifest`, the one call without a credential, exchanges the code of a manifest for a new App.
"""

import re

import msgspec

from runyard.github import answers, errors
from runyard.github.calls import HEADERS, Calls, read, send_once
from runyard.github.scope import Scope
from runyard.github.views import (
    AppView,
    InstallationView,
    NewApp,
    RateView,
    RepositoryView,
    RunnerGroupView,
)
from runyard.http.messages import Request, Transport

_PAGE = 100
_MAX_PAGES = 200
_RELEASE = re.compile(r"\d+\.\d+\.\d+", re.ASCII)
_CODE = re.compile(r"[A-Za-z0-9_-]{1,200}", re.ASCII)


class _Repositories(msgspec.Struct):
    repositories: tuple[RepositoryView, ...]


class _Download(msgspec.Struct):
    filename: str = ""


class _Groups(msgspec.Struct):
    runner_groups: tuple[RunnerGroupView, ...]


class _Resources(msgspec.Struct):
    core: RateView


class _Rates(msgspec.Struct):
    resources: _Resources


_app = msgspec.json.Decoder(AppView)
_installation = msgspec.json.Decoder(InstallationView)
_installations = msgspec.json.Decoder(tuple[InstallationView, ...])
_repositories = msgspec.json.Decoder(_Repositories)
_groups = msgspec.json.Decoder(_Groups)
_downloads = msgspec.json.Decoder(tuple[_Download, ...])
_rates = msgspec.json.Decoder(_Rates)
_new_app = msgspec.json.Decoder(NewApp)


class Setup:
    """Reads the App and its installations."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def app(self, *, purpose: str = "read") -> AppView:
        """Our App: its permissions and the events that it receives."""
        response = await self._calls.as_app("GET", "/app", purpose=purpose)
        self._calls.require(response, what="the App")
        return read(_app, response, what="the App")

    async def installations(self, *, purpose: str = "read") -> tuple[InstallationView, ...]:
        """The installations of the App, with their permissions."""
        found: list[InstallationView] = []
        for page in range(1, _MAX_PAGES + 1):
            query = (("per_page", str(_PAGE)), ("page", str(page)))
            response = await self._calls.as_app(
                "GET", "/app/installations", query=query, purpose=purpose
            )
            self._calls.require(response, what="installations")
            batch = read(_installations, response, what="installations")
            found.extend(batch)
            if len(batch) < _PAGE:
                return tuple(found)
        raise errors.Unreadable(f"installations: no end after {_MAX_PAGES} pages")

    async def installation(
        self, installation_id: int, *, purpose: str = "read"
    ) -> InstallationView | None:
        """One installation of the App, suspended or not; `None` if it was uninstalled or never existed.

        A 404 counts only together with a read of the App itself: so our credentials are accepted, and they are those
        of an App that GitHub knows.
        """
        path, what = f"/app/installations/{installation_id}", f"installation {installation_id}"
        response = await self._calls.as_app("GET", path, purpose=purpose)
        if response.status == 404:
            await self.app(purpose=purpose)
            return None
        self._calls.require(response, what=what)
        return read(_installation, response, what=what)

    async def repositories(
        self, account: Scope, *, purpose: str = "read"
    ) -> tuple[RepositoryView, ...]:
        """The repositories that an installation may access; `account` is any scope of that installation."""
        found: list[RepositoryView] = []
        what = f"repositories of installation {account.installation_id}"
        for page in range(1, _MAX_PAGES + 1):
            query = (("per_page", str(_PAGE)), ("page", str(page)))
            response = await self._calls.as_installation(
                account, "GET", "/installation/repositories", query=query, purpose=purpose
            )
            self._calls.require(response, what=what)
            batch = read(_repositories, response, what=what).repositories
            found.extend(batch)
            if len(batch) < _PAGE:
                return tuple(found)
        raise errors.Unreadable(f"{what}: no end after {_MAX_PAGES} pages")

    async def runner_groups(self, organisation: Scope) -> tuple[RunnerGroupView, ...]:
        """The groups that an organisation's runners can be in."""
        if organisation.kind != "orgs":
            raise ValueError(f"runner groups belong to an organisation, not to {organisation}")
        path, query = f"/{organisation}/actions/runner-groups", (("per_page", str(_PAGE)),)
        response = await self._calls.as_installation(
            organisation, "GET", path, query=query, purpose="read"
        )
        self._calls.require(response, what=f"runner groups of {organisation}", scope=organisation)
        return read(_groups, response, what=f"runner groups of {organisation}").runner_groups

    async def newest_runner(self, scope: Scope) -> str:
        """The version of the runner program that GitHub offers; empty if it names none."""
        path = f"/{scope}/actions/runners/downloads"
        response = await self._calls.as_installation(scope, "GET", path, purpose="read")
        self._calls.require(response, what=f"runner downloads at {scope}", scope=scope)
        found = read(_downloads, response, what=f"runner downloads at {scope}")
        names = (_RELEASE.search(each.filename) for each in found)
        return next((match[0] for match in names if match is not None), "")

    async def rate_limit(self, scope: Scope) -> RateView:
        """Read the rest of the hourly limit; this request does not count against it."""
        response = await self._calls.as_installation(scope, "GET", "/rate_limit", purpose="read")
        self._calls.require(response, what="the rate limit", scope=scope)
        return read(_rates, response, what="the rate limit").resources.core

    async def cancel_run(self, repo: Scope, run_id: int) -> bool:
        """Cancel a run with all of its jobs; `False` when it is over already."""
        path = f"/{_repo(repo)}/actions/runs/{run_id}/cancel"
        response = await self._calls.as_installation(repo, "POST", path, purpose="user")
        if response.status == 409:
            return False
        self._calls.require(response, what=f"cancel run {run_id} at {repo}", scope=repo)
        return True

    async def rerun_job(self, repo: Scope, job_id: int) -> None:
        """Run a job once more, as a new job of the same run; `NotAllowed` while its run is not over."""
        path = f"/{_repo(repo)}/actions/jobs/{job_id}/rerun"
        response = await self._calls.as_installation(repo, "POST", path, purpose="user")
        self._calls.require(response, what=f"run job {job_id} at {repo} again", scope=repo)


async def convert_manifest(transport: Transport, code: str, *, timeout: float = 10.0) -> NewApp:
    """Exchange the code of a manifest for the new App. Works once, within an hour."""
    if _CODE.fullmatch(code) is None:
        raise errors.Rejected("invalid code of a manifest: it has characters that no code has")
    path, what = f"/app-manifests/{code}/conversions", "the code of the manifest"
    request = Request(method="POST", path=path, headers=HEADERS)
    response = await send_once(transport, request, timeout=timeout, shown="POST /app-manifests/…")
    if not 200 <= response.status < 300:
        raise answers.failure(response, what=what, scope="none", retry_after=None)
    return read(_new_app, response, what=what)


def _repo(scope: Scope) -> Scope:
    if scope.kind != "repos":
        raise ValueError(f"runs and jobs belong to a repository, not to {scope}")
    return scope
