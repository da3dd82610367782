"""The checks of `runyard github check`.

Each check is a function that returns lines. A check that GitHub does not answer returns a line too, and the others
still run; only if GitHub cannot be reached or rejects our credentials, the remaining checks are skipped.

Invariants:
- Checks only read. No line contains a credential.
- A line that is not `ok` has a fix.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Iterable
from typing import Literal

import msgspec

from runyard.cli.github_auth import GithubIdentity, github_identity
from runyard.cli.githubflags import GithubFlags
from runyard.cli.tables import show_json, show_table
from runyard.clock import Clock, RealClock
from runyard.github import errors, manifest
from runyard.github.app import Auth
from runyard.github.budget import Budget
from runyard.github.client import GitHub
from runyard.github.errors import GitHubError
from runyard.github.scope import Scope, organisation, repository
from runyard.github.views import AppView, DeliveryView, InstallationView, RateView
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Stream, Transport
from runyard.http.skew import SkewTransport

Verdict = Literal["ok", "warn", "fail"]
SKEW_WARN, SKEW_FAIL = 10.0, 55.0  # the App's JWT is dated back by a minute
LATELY = 3600.0
LOW_FRACTION = 0.2  # fraction of the hour's requests
OLDEST_SERVER = (3, 10)  # the first Enterprise Server with JIT configurations
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)", re.ASCII)
_SHOWN = 20
_AT_ONCE = 5  # accounts that are checked at the same time
CHECK_WITHIN = 300.0
CLOCK = "clock"  # the check of this machine's time
IDENTITY = ("App", "token")  # the checks that show whether GitHub knows us


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    verdict: Verdict
    what: str
    found: str
    fix: str = ""
    needs_restart: bool = False  # only other options or credentials correct it
    account: str = ""  # the installation that it concerns; empty: all of them

    def sentence(self) -> str:
        """The line for people."""
        return f"{self.what}: {self.found}" + (f". Fix: {self.fix}" if self.fix else "")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """How the fleet is configured."""

    intake: str
    runner_group: int
    runner_version: str | None  # None: unknown, and not asked for
    url: str


async def run_checks(
    transport: Transport, *, auth: Auth, facts: Facts, clock: Clock
) -> AsyncGenerator[Line]:
    """Run all checks; yields each line once it is known, in the order of importance."""
    skew_transport = SkewTransport(transport, clock=clock)
    api = GitHub(skew_transport, app=auth, clock=clock, budget=Budget(clock))
    server = await _server(skew_transport, facts)
    for line in server:
        yield line
    if any(line.verdict == "fail" for line in server):
        return  # not reached, or too old: every other check would say the same
    async with contextlib.aclosing(
        _token(api, facts, clock) if api.only else _app(api, facts, clock)
    ) as rest:
        async for line in rest:
            yield line
    for line in _clock_line(skew_transport.skew):
        yield line


async def _app(api: GitHub, facts: Facts, clock: Clock) -> AsyncGenerator[Line]:
    """Check an App, and the accounts where it is installed."""
    try:
        app = await api.app()
    except GitHubError as error:
        yield _failed("App", error)
        return
    for line in _app_lines(app):
        yield line
    try:
        installed = await api.installations()
    except GitHubError as error:
        yield _failed("installations", error)
        return
    for line in _installations(installed):
        yield line
    used = [each for each in installed[:_SHOWN] if each.suspended_at is None]
    where: Scope | None = None
    for some in range(0, len(used), _AT_ONCE):
        async with asyncio.TaskGroup() as tasks:
            checks = [
                tasks.create_task(_installation(api, each, facts, clock))
                for each in used[some : some + _AT_ONCE]
            ]
        for found, scope in (check.result() for check in checks):
            where = where or scope
            for line in found:
                yield line
    for line in await _safely("deliveries", _deliveries(api, facts, clock)):
        yield line
    for line in await _safely("runner", _runner(api, where, facts)):
        yield line


async def _safely(what: str, check: Awaitable[list[Line]]) -> list[Line]:
    try:
        return await check
    except GitHubError as error:
        return [_failed(what, error)]


def _failed(what: str, error: GitHubError) -> Line:
    fixes: tuple[tuple[type[GitHubError], str], ...] = (
        (errors.Unreachable, "check the network, --github-url and, for your own server, --github-ca-file"),
        (errors.NoAnswer, "try again; check GitHub's status page"),
        (errors.Unauthorized, "check --github-app-id and --github-key-file, or the token, and this machine's clock"),
        (errors.RateLimited, "wait; check whether another client uses the same App or token"),
        (errors.NotAllowed, "grant that permission to the token; or to the App, and accept it in the account"),
        (errors.NotFound, "install the App there, or correct --github-repository"),
    )  # fmt: skip
    fix = next((text for kind, text in fixes if isinstance(error, kind)), "see GitHub's message")
    refused = isinstance(error, errors.Unauthorized)
    unknown = isinstance(error, errors.NotFound) and what in IDENTITY
    return Line(
        verdict="fail", what=what, found=str(error), fix=fix, needs_restart=refused or unknown
    )


# ── the server ──────────────────────────────────────────────────────────────────────────────────────


class _Meta(msgspec.Struct):
    installed_version: str = ""


async def _server(transport: Transport, facts: Facts) -> list[Line]:
    """Check which GitHub it is; an Enterprise Server reports its version."""
    request = Request(method="GET", path="/meta", headers=(("user-agent", "runyard"),))
    try:
        answer = await transport.send(request, timeout=10.0)
        body = b"{}" if isinstance(answer, Stream) else answer.body
        version = msgspec.json.decode(body, type=_Meta).installed_version
    except TransportError as error:
        fix = "check the network, --github-url and, for your own server, --github-ca-file"
        return [Line(verdict="fail", what="GitHub", found=f"{facts.url}: {error}", fix=fix)]
    except msgspec.MsgspecError:
        fix = "write --github-url as https://api.github.com or https://HOST/api/v3"
        found = f"{facts.url} is not GitHub's API"
        return [Line(verdict="warn", what="GitHub", found=found, fix=fix)]
    if not version:
        return [Line(verdict="ok", what="GitHub", found=facts.url)]
    return [server_line(version)]


def server_line(version: str) -> Line:
    """Check the version of an Enterprise Server."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if len(numbers) == 2 and numbers < OLDEST_SERVER:
        wanted = ".".join(map(str, OLDEST_SERVER))
        fix = f"update it: JIT configurations need {wanted}"
        found = f"Enterprise Server {version}"
        return Line(verdict="fail", what="GitHub", found=found, fix=fix, needs_restart=True)
    return Line(verdict="ok", what="GitHub", found=f"Enterprise Server {version}")


def _clock_line(skew: float | None) -> list[Line]:
    if skew is None:
        fix = "compare this machine's clock with a time server"
        return [Line(verdict="warn", what=CLOCK, found="GitHub's response had no date", fix=fix)]
    found = (
        "same as GitHub's" if not skew else f"{abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"
    )
    if abs(skew) < SKEW_WARN:
        return [Line(verdict="ok", what=CLOCK, found=found)]
    verdict: Verdict = "fail" if abs(skew) >= SKEW_FAIL else "warn"
    fix = "synchronise this machine's clock with NTP: GitHub rejects tokens dated in the future"
    return [Line(verdict=verdict, what=CLOCK, found=found, fix=fix)]


# ── the App ─────────────────────────────────────────────────────────────────────────────────────────


def _app_lines(app: AppView) -> list[Line]:
    who = Line(verdict="ok", what="App", found=f"{app.slug or app.name} ({app.id})")
    return [who, events_line("App", app.events, f"{app.html_url}/permissions")]


def events_line(what: str, events: tuple[str, ...], where: str) -> Line:
    """Check that the App is subscribed to events of jobs."""
    if manifest.EVENT in events:
        return Line(verdict="ok", what=f"{what}: events", found=manifest.EVENT)
    found = ", ".join(events) or "none"
    fix = f"subscribe to {manifest.EVENT} in the App's settings: {where}"
    return Line(verdict="fail", what=f"{what}: events", found=found, fix=fix)


def _installations(found: tuple[InstallationView, ...]) -> list[Line]:
    if not found:
        fix = "install it at an organisation or for yourself; `runyard github connect` shows where"
        return [Line(verdict="fail", what="installations", found="none", fix=fix)]
    lines = [
        Line(
            verdict="ok",
            what="installations",
            found=", ".join(each.account.login for each in found[:_SHOWN]),
        )
    ]
    if len(found) > _SHOWN:
        rest = f"{len(found) - _SHOWN} more; they are not checked"
        fix = f"check them in the App's settings: this command checks the first {_SHOWN}"
        lines.append(Line(verdict="warn", what="other installations", found=rest, fix=fix))
    for each in found:
        if each.suspended_at is not None:
            fix = "lift the suspension in the account's settings, under GitHub Apps"
            login = each.account.login
            lines.append(
                Line(verdict="fail", what=login, found="suspended", fix=fix, account=login)
            )
    return lines


async def _installation(
    api: GitHub, each: InstallationView, facts: Facts, clock: Clock
) -> tuple[list[Line], Scope | None]:
    """Check one account; returns lines, and a scope there whose runners can be listed."""
    login, is_org = each.account.login, _is_org(each)
    scope = organisation(login, installation_id=each.id)
    where = scope if is_org else None
    lines = [permissions_line(login, each.permissions, is_organisation=is_org)]
    lines.append(events_line(login, each.events, "accept the App's new permissions there"))
    try:
        seen = await api.repositories(scope)
    except GitHubError as error:
        lines.append(_failed(f"{login}: repositories", error))
    else:
        lines.append(_repositories(login, len(seen)))
        if not is_org and seen:
            where = repository(seen[0].full_name, installation_id=each.id)
    if is_org:
        lines += await _safely(f"{login}: runner group", _group(api, scope, facts))
    lines += await _safely(f"{login}: rate", _rate(api, scope, login, clock))
    return [msgspec.structs.replace(line, account=login) for line in lines], where


def _repositories(login: str, count: int) -> Line:
    what = f"{login}: repositories"
    if count:
        return Line(verdict="ok", what=what, found=str(count))
    fix = "give the installation access to the repositories whose jobs shall run here"
    return Line(verdict="warn", what=what, found="none", fix=fix)


def _is_org(each: InstallationView) -> bool:
    return each.account.type == "Organization"


def permissions_line(login: str, has: dict[str, str], *, is_organisation: bool) -> Line:
    """Check the App's permissions in that account."""
    lacks = manifest.missing_permissions(has, organisation=is_organisation)
    what = f"{login}: permissions"
    if not lacks:
        return Line(verdict="ok", what=what, found="as needed")
    found = ", ".join(f"{each.name} is {each.has or 'not given'}" for each in lacks)
    wanted = ", ".join(f"{each.name}: {each.wanted}" for each in lacks)
    fix = f"grant the App {wanted} in its settings, then accept it as an owner of {login}"
    # Running jobs needs read access only; cancelling and repeating them needs write access.
    only_convenience = all(each.name == "actions" and each.has == "read" for each in lacks)
    return Line(verdict="warn" if only_convenience else "fail", what=what, found=found, fix=fix)


async def _group(api: GitHub, scope: Scope, facts: Facts) -> list[Line]:
    what = f"{scope.owner}: runner group"
    groups = await api.runner_groups(scope)
    own = next((each for each in groups if each.id == facts.runner_group), None)
    if own is None:
        known = ", ".join(f"{each.id} ({each.name})" for each in groups)
        fix = f"choose one that exists: {known}"
        return [
            Line(
                verdict="fail",
                what=what,
                found=f"group {facts.runner_group} does not exist",
                fix=fix,
            )
        ]
    if own.visibility == "selected":
        fix = "make sure that the repositories whose jobs shall run here are selected"
        found = f"{own.name}, for selected repositories only"
        return [Line(verdict="warn", what=what, found=found, fix=fix)]
    public = "" if own.allows_public_repositories else "; not for public repositories"
    return [Line(verdict="ok", what=what, found=f"{own.name}{public}")]


async def _rate(api: GitHub, scope: Scope, login: str, clock: Clock) -> list[Line]:
    return [rate_line(login, await api.rate_limit(scope), now=clock.now())]


def rate_line(login: str, rate: RateView, *, now: float) -> Line:
    """Check what is left of the hour's rate limit."""
    what, found = f"{login}: rate", f"{rate.remaining} of {rate.limit} requests left"
    if rate.limit and rate.remaining < rate.limit * LOW_FRACTION:
        minutes = max(0.0, rate.reset - now) / 60
        fix = f"it resets in {minutes:.0f} min; check whether another client uses the same App or token"
        verdict: Verdict = "warn" if rate.remaining else "fail"
        return Line(verdict=verdict, what=what, found=found, fix=fix)
    return Line(verdict="ok", what=what, found=found)


# ── a token, deliveries, runners ────────────────────────────────────────────────────────────────────


async def _token(api: GitHub, facts: Facts, clock: Clock) -> AsyncGenerator[Line]:
    """Check a token for one repository."""
    repo = api.only
    assert repo is not None
    name = f"{repo.owner}/{repo.repo}"
    for what, check in (
        ("token", _runners(api, repo, name)),
        ("jobs", _jobs(api, repo, name)),
        (f"{name}: rate", _rate(api, repo, name, clock)),
        ("deliveries", _deliveries(api, facts, clock)),
        ("runner", _runner(api, repo, facts)),
    ):
        for line in await _safely(what, check):
            yield line


async def _runners(api: GitHub, repo: Scope, name: str) -> list[Line]:
    await api.list_runners(repo)  # GitHub shows them to administrators of the repository only
    return [Line(verdict="ok", what="token", found=f"may administer the runners of {name}")]


async def _jobs(api: GitHub, repo: Scope, name: str) -> list[Line]:
    await api.list_queued_jobs(repo)
    return [Line(verdict="ok", what="jobs", found=f"jobs of {name} are readable")]


async def _deliveries(api: GitHub, facts: Facts, clock: Clock) -> list[Line]:
    try:
        page = await api.deliveries(purpose="read")
    except (errors.NoHook, errors.NotAllowed) as error:
        if api.only is None:
            raise
        fix = (
            "add a webhook for workflow jobs and allow the token to read webhooks,"
            " or accept that jobs are found up to a minute later"
        )
        return [Line(verdict="warn", what="deliveries", found=str(error), fix=fix)]
    return [deliveries_line(page.items, intake=facts.intake, now=clock.now())]


def deliveries_line(items: tuple[DeliveryView, ...], *, intake: str, now: float) -> Line:
    """Check that webhooks arrive, or can be fetched."""
    recent = [each for each in items if now - each.moment < LATELY]
    failed = sum(not each.succeeded for each in recent)
    if intake == "pull":
        found = (
            f"{len(recent)} in the last hour; they are fetched, so failed webhooks do not matter"
        )
        return Line(verdict="ok", what="deliveries", found=found)
    if not recent:
        fix = "push something, or check that the App's webhook is active and has the URL of this server"
        return Line(verdict="warn", what="deliveries", found="none in the last hour", fix=fix)
    found = f"{failed} of {len(recent)} failed in the last hour"
    if not failed:
        return Line(verdict="ok", what="deliveries", found=found)
    fix = "check the webhook's URL and secret and the network path to the server; or use --github-intake pull"
    verdict: Verdict = "fail" if failed == len(recent) else "warn"
    return Line(verdict=verdict, what="deliveries", found=found, fix=fix)


async def _runner(api: GitHub, scope: Scope | None, facts: Facts) -> list[Line]:
    if facts.runner_version is None:
        return []
    newest = "" if scope is None else await api.newest_runner(scope)
    return [runner_line(facts.runner_version, newest=newest)]


def runner_line(version: str, *, newest: str) -> Line:
    """Check that GitHub still gives jobs to a runner of that version."""
    own, offered = _numbers(version), _numbers(newest)
    if version and not own:
        fix = "write --runner-version as 2.330.0"
        return Line(verdict="fail", what="runner", found="not a version", fix=fix)
    if not offered:
        fix = "compare the version in your images with the releases of actions/runner"
        found = "GitHub did not return the newest version"
        return Line(verdict="warn", what="runner", found=found, fix=fix)
    if not version:
        fix = "pass the version in your images as --runner-version"
        return Line(verdict="warn", what="runner", found=f"the newest is {newest}", fix=fix)
    if own >= offered:
        return Line(verdict="ok", what="runner", found=version)
    fix = "update your images within 30 days of a release: GitHub gives no jobs to older runners"
    found = f"{version}; the newest is {newest}"
    # Certainly months old: a minor release comes every few weeks.
    late = own[0] < offered[0] or own[1] + 3 < offered[1]
    return Line(verdict="fail" if late else "warn", what="runner", found=found, fix=fix)


def _numbers(version: str) -> tuple[int, ...]:
    found = _VERSION.fullmatch(version.removeprefix("v"))
    return tuple(int(part) for part in found.groups()) if found else ()


class CheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the fleet is configured."""

    intake: str
    runner_group: int
    runner_version: str


def run(flags: GithubFlags, options: CheckOptions, *, as_json: bool) -> bool:
    """Run the checks and print their lines; returns whether no check failed."""
    clock = RealClock()
    who = github_identity(flags, clock=clock)
    facts = Facts(
        intake=options.intake,
        runner_group=options.runner_group,
        runner_version=options.runner_version,
        url=who.url,
    )
    lines = asyncio.run(examined(who, facts, clock))
    well = not any(line.verdict == "fail" for line in lines)
    if as_json:
        show_json({"ok": well, "lines": lines})
    else:
        _show(lines)
    return well


async def examined(
    who: GithubIdentity, facts: Facts, clock: Clock, *, within: float = CHECK_WITHIN
) -> tuple[Line, ...]:
    """Run the checks with a transport of their own; those that take longer than `within` are named as missing."""
    transport = who.transport()
    try:
        checks = run_checks(transport, auth=who.auth, facts=facts, clock=clock)
        return await collected(checks, who.url, clock, within=within)
    finally:
        await transport.close()


async def collected(
    checks: AsyncGenerator[Line], url: str, clock: Clock, *, within: float
) -> tuple[Line, ...]:
    """The lines that are known within that time, and a line that names the rest if they are not all."""
    found: list[Line] = []
    try:
        async with contextlib.aclosing(checks), clock.timeout(within):
            async for line in checks:
                found.append(line)
    except TimeoutError:
        found.append(_unfinished(url, tuple(found), within))
    return tuple(found)


def _unfinished(url: str, found: tuple[Line, ...], within: float) -> Line:
    """A GitHub that has not even shown whether it knows us counts as one that cannot be reached."""
    fix = "check the network and --github-url; `runyard github check` shows each step"
    if not any(line.what in IDENTITY for line in found):
        text = f"{url}: no answer within {within:g} s"
        return Line(verdict="fail", what="GitHub", found=text, fix=fix)
    text = f"{url}: the checks are not complete after {within:g} s"
    return Line(
        verdict="warn", what="GitHub", found=text, fix="`runyard github check` runs them all"
    )


def usable(lines: Iterable[Line]) -> bool:
    """Whether jobs of at least one account can run: a check of only one account says nothing about the others."""
    found = tuple(lines)
    failed = {line.account for line in found if line.verdict == "fail"}
    accounts = {line.account for line in found if line.account}
    return "" not in failed and not (accounts and accounts <= failed)


def _show(lines: tuple[Line, ...]) -> None:
    show_table(
        ("", "what", "found", "what to do"),
        [(line.verdict, line.what, line.found, line.fix or "-") for line in lines],
    )
