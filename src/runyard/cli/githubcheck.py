"""What `runyard github check` asks, and what it makes of the answers.

Each question is one function that returns lines; one that GitHub does not answer is a line too, and the others are
asked all the same. Only when GitHub cannot be reached or does not know us is there no point in going on.

Invariants:
- Everything here reads. No line holds a credential.
- A line that is not `ok` says what to do.
"""

import re
from collections.abc import Awaitable
from email.utils import parsedate_to_datetime
from typing import Literal

import msgspec

from runyard.clock import Clock
from runyard.github import errors, manifest
from runyard.github.api import GitHub
from runyard.github.app import Auth
from runyard.github.budget import Budget
from runyard.github.errors import GitHubError
from runyard.github.scope import Scope, organisation, repository
from runyard.github.views import AppView, DeliveryView, InstallationView, RateView
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Response, Stream, Transport

Verdict = Literal["ok", "warn", "fail"]
SKEW_WARN, SKEW_FAIL = 10.0, 55.0  # the App's JWT is dated back by a minute
LATELY = 3600.0
LITTLE = 0.2  # of the hour's requests
OLDEST_SERVER = (3, 10)  # the first Enterprise Server that makes JIT configurations
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)", re.ASCII)
_SHOWN = 20


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One finding."""

    verdict: Verdict
    what: str
    found: str
    fix: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """How the fleet is set up."""

    intake: str
    runner_group: int
    runner_version: str
    url: str


class Dated:
    """A transport that notes how far GitHub's clock and ours are apart."""

    def __init__(self, inner: Transport, *, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self.skew: float | None = None  # positive: ours is ahead

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Send, and compare."""
        began = self._clock.now()
        answer = await self._inner.send(request, timeout=timeout)
        ended = self._clock.now()
        for name, value in answer.headers:
            if name.lower() == "date":
                try:
                    told = parsedate_to_datetime(value).timestamp()
                except ValueError:
                    continue
                # A whole second, somewhere between question and answer: what that explains is no skew.
                early, late = began - (told + 1.0), ended - told
                self.skew = early if early > 0 else min(0.0, late)
        return answer


async def examine(way: Transport, *, auth: Auth, facts: Facts, clock: Clock) -> tuple[Line, ...]:
    """Every finding, in the order in which a person would ask."""
    dated = Dated(way, clock=clock)
    api = GitHub(dated, app=auth, clock=clock, budget=Budget(clock))
    lines = list(await _server(dated, facts))
    if api.only is not None:
        lines += await _token(api, api.only, clock)
        lines += await _safely("deliveries", _deliveries(api, facts, clock))
        lines += await _safely("runner", _runner(api, api.only, facts))
        return (*lines, *_clock_line(dated))
    try:
        app = await api.app()
    except GitHubError as error:
        return (*lines, _asked("App", error), *_clock_line(dated))
    lines += _app(app)
    try:
        installed = await api.installations()
    except GitHubError as error:
        return (*lines, _asked("installations", error), *_clock_line(dated))
    lines += _installations(installed)
    where: Scope | None = None
    for each in installed[:_SHOWN]:
        if each.suspended_at is None:
            found, some = await _installation(api, each, facts, clock)
            lines, where = [*lines, *found], where or some
    lines += await _safely("deliveries", _deliveries(api, facts, clock))
    lines += await _safely("runner", _runner(api, where, facts))
    return (*lines, *_clock_line(dated))


async def _safely(what: str, asking: Awaitable[list[Line]]) -> list[Line]:
    try:
        return await asking
    except GitHubError as error:
        return [_asked(what, error)]


def _asked(what: str, error: GitHubError) -> Line:
    fixes: tuple[tuple[type[GitHubError], str], ...] = (
        (errors.Unreachable, "check the network, --github-url and, for your own server, --github-ca-file"),
        (errors.NoAnswer, "try again; look at GitHub's status page"),
        (errors.Unauthorized, "check --github-app-id and --github-key-file, or the token, and this machine's clock"),
        (errors.RateLimited, "wait; look for another client of the same App or token"),
        (errors.NotAllowed, "give the token that permission; or give it the App, and let the account accept it"),
        (errors.NotFound, "install the App there, or correct --github-repository"),
    )  # fmt: skip
    fix = next((text for kind, text in fixes if isinstance(error, kind)), "read what GitHub says")
    return Line(verdict="fail", what=what, found=str(error), fix=fix)


# ── the server ──────────────────────────────────────────────────────────────────────────────────────


class _Meta(msgspec.Struct):
    installed_version: str = ""


async def _server(way: Transport, facts: Facts) -> list[Line]:
    """Which GitHub it is; an Enterprise Server tells its version."""
    request = Request(method="GET", path="/meta", headers=(("user-agent", "runyard"),))
    try:
        answer = await way.send(request, timeout=10.0)
        body = b"{}" if isinstance(answer, Stream) else answer.body
        told = msgspec.json.decode(body, type=_Meta).installed_version
    except TransportError as error:
        fix = "check the network, --github-url and, for your own server, --github-ca-file"
        return [Line(verdict="fail", what="GitHub", found=f"{facts.url}: {error}", fix=fix)]
    except msgspec.MsgspecError:
        fix = "write --github-url as https://api.github.com or https://HOST/api/v3"
        found = f"{facts.url} is not GitHub's API"
        return [Line(verdict="warn", what="GitHub", found=found, fix=fix)]
    if not told:
        return [Line(verdict="ok", what="GitHub", found=facts.url)]
    return [server_line(told)]


def server_line(version: str) -> Line:
    """What an Enterprise Server's version means."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if len(numbers) == 2 and numbers < OLDEST_SERVER:
        wanted = ".".join(map(str, OLDEST_SERVER))
        fix = f"update it: JIT configurations need {wanted}"
        return Line(verdict="fail", what="GitHub", found=f"Enterprise Server {version}", fix=fix)
    return Line(verdict="ok", what="GitHub", found=f"Enterprise Server {version}")


def _clock_line(dated: Dated) -> list[Line]:
    skew = dated.skew
    if skew is None:
        fix = "compare this machine's clock with another one yourself"
        return [Line(verdict="warn", what="clock", found="GitHub told no time", fix=fix)]
    found = "as GitHub's" if not skew else f"{abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"
    if abs(skew) < SKEW_WARN:
        return [Line(verdict="ok", what="clock", found=found)]
    verdict: Verdict = "fail" if abs(skew) >= SKEW_FAIL else "warn"
    fix = "set this machine's clock by NTP: GitHub refuses an App that signs in the future"
    return [Line(verdict=verdict, what="clock", found=found, fix=fix)]


# ── the App ─────────────────────────────────────────────────────────────────────────────────────────


def _app(app: AppView) -> list[Line]:
    who = Line(verdict="ok", what="App", found=f"{app.slug or app.name} ({app.id})")
    return [who, events_line("App", app.events, f"{app.html_url}/permissions")]


def events_line(what: str, events: tuple[str, ...], where: str) -> Line:
    """Whether the App hears of jobs."""
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
        rest = f"{len(found) - _SHOWN} more; they are not looked at"
        fix = f"look at them in the App's settings: only the first {_SHOWN} are asked about here"
        lines.append(Line(verdict="warn", what="other installations", found=rest, fix=fix))
    for each in found:
        if each.suspended_at is not None:
            fix = "lift the suspension in the account's settings, under GitHub Apps"
            lines.append(Line(verdict="fail", what=each.account.login, found="suspended", fix=fix))
    return lines


async def _installation(
    api: GitHub, each: InstallationView, facts: Facts, clock: Clock
) -> tuple[list[Line], Scope | None]:
    """What is found at one account, and a place there whose runners can be asked about."""
    login, is_org = each.account.login, _is_org(each)
    scope = organisation(login, installation_id=each.id)
    where = scope if is_org else None
    lines = [permissions_line(login, each.permissions, is_organisation=is_org)]
    lines.append(events_line(login, each.events, "accept the App's new permissions there"))
    try:
        seen = await api.repositories(scope)
    except GitHubError as error:
        lines.append(_asked(f"{login}: repositories", error))
    else:
        lines.append(_repositories(login, len(seen)))
        if not is_org and seen:
            where = repository(seen[0].full_name, installation_id=each.id)
    if is_org:
        lines += await _safely(f"{login}: runner group", _group(api, scope, facts))
    lines += await _safely(f"{login}: rate", _rate(api, scope, login, clock))
    return lines, where


def _repositories(login: str, count: int) -> Line:
    what = f"{login}: repositories"
    if count:
        return Line(verdict="ok", what=what, found=str(count))
    fix = "let the installation see the repositories whose jobs shall run here"
    return Line(verdict="warn", what=what, found="none", fix=fix)


def _is_org(each: InstallationView) -> bool:
    return each.account.type == "Organization"


def permissions_line(login: str, has: dict[str, str], *, is_organisation: bool) -> Line:
    """Whether the App may do what runners of that account need."""
    lacks = manifest.lacking(has, organisation=is_organisation)
    what = f"{login}: permissions"
    if not lacks:
        return Line(verdict="ok", what=what, found="as needed")
    found = ", ".join(f"{each.name} is {each.has or 'not given'}" for each in lacks)
    wanted = ", ".join(f"{each.name}: {each.wanted}" for each in lacks)
    fix = f"give the App {wanted} in its settings, and let an owner of {login} accept it"
    # Reading jobs is enough to run them; cancelling and repeating needs to write.
    only_convenience = all(each.name == "actions" and each.has == "read" for each in lacks)
    return Line(verdict="warn" if only_convenience else "fail", what=what, found=found, fix=fix)


async def _group(api: GitHub, scope: Scope, facts: Facts) -> list[Line]:
    what = f"{scope.owner}: runner group"
    groups = await api.runner_groups(scope)
    own = next((each for each in groups if each.id == facts.runner_group), None)
    if own is None:
        known = ", ".join(f"{each.id} ({each.name})" for each in groups)
        fix = f"choose one that exists: {known}"
        return [Line(verdict="fail", what=what, found=f"there is no {facts.runner_group}", fix=fix)]
    if own.visibility == "selected":
        fix = "see that the repositories whose jobs shall run here are among the selected ones"
        found = f"{own.name}, for selected repositories only"
        return [Line(verdict="warn", what=what, found=found, fix=fix)]
    public = "" if own.allows_public_repositories else "; not for public repositories"
    return [Line(verdict="ok", what=what, found=f"{own.name}{public}")]


async def _rate(api: GitHub, scope: Scope, login: str, clock: Clock) -> list[Line]:
    return [rate_line(login, await api.rate_limit(scope), now=clock.now())]


def rate_line(login: str, rate: RateView, *, now: float) -> Line:
    """What is left of the hour."""
    what, found = f"{login}: rate", f"{rate.remaining} of {rate.limit} requests left"
    if rate.limit and rate.remaining < rate.limit * LITTLE:
        minutes = max(0.0, rate.reset - now) / 60
        fix = f"it is full again in {minutes:.0f} min; look for another client that is the same to GitHub"
        verdict: Verdict = "warn" if rate.remaining else "fail"
        return Line(verdict=verdict, what=what, found=found, fix=fix)
    return Line(verdict="ok", what=what, found=found)


# ── a token, deliveries, runners ────────────────────────────────────────────────────────────────────


async def _token(api: GitHub, repo: Scope, clock: Clock) -> list[Line]:
    name = f"{repo.owner}/{repo.repo}"
    return [
        *await _safely("token", _runners(api, repo, name)),
        *await _safely("jobs", _jobs(api, repo, name)),
        *await _safely(f"{name}: rate", _rate(api, repo, name, clock)),
    ]


async def _runners(api: GitHub, repo: Scope, name: str) -> list[Line]:
    await api.list_runners(repo)  # only who may administer the repository may see them
    return [Line(verdict="ok", what="token", found=f"may administer the runners of {name}")]


async def _jobs(api: GitHub, repo: Scope, name: str) -> list[Line]:
    await api.list_queued_jobs(repo)
    return [Line(verdict="ok", what="jobs", found=f"those of {name} can be read")]


async def _deliveries(api: GitHub, facts: Facts, clock: Clock) -> list[Line]:
    try:
        page = await api.deliveries(purpose="read")
    except (errors.NoHook, errors.NotAllowed) as error:
        if api.only is None:
            raise
        fix = (
            "add a webhook for workflow jobs and let the token read webhooks,"
            " or live with jobs being found a little later"
        )
        return [Line(verdict="warn", what="deliveries", found=str(error), fix=fix)]
    return [deliveries_line(page.items, intake=facts.intake, now=clock.now())]


def deliveries_line(items: tuple[DeliveryView, ...], *, intake: str, now: float) -> Line:
    """Whether webhooks arrive, or can at least be fetched."""
    recent = [each for each in items if now - each.moment < LATELY]
    failed = sum(not each.succeeded for each in recent)
    if intake == "pull":
        found = (
            f"{len(recent)} in the last hour; they are fetched, so it does not matter who gets them"
        )
        return Line(verdict="ok", what="deliveries", found=found)
    if not recent:
        fix = "push something, or check that the App's webhook is active and leads to this fleet's server"
        return Line(verdict="warn", what="deliveries", found="none in the last hour", fix=fix)
    found = f"{failed} of {len(recent)} failed in the last hour"
    if not failed:
        return Line(verdict="ok", what="deliveries", found=found)
    fix = "check the webhook's address and secret and the way to the server; or use --github-intake pull"
    verdict: Verdict = "fail" if failed == len(recent) else "warn"
    return Line(verdict=verdict, what="deliveries", found=found, fix=fix)


async def _runner(api: GitHub, scope: Scope | None, facts: Facts) -> list[Line]:
    newest = "" if scope is None else await api.newest_runner(scope)
    return [runner_line(facts.runner_version, newest=newest)]


def runner_line(version: str, *, newest: str) -> Line:
    """Whether a runner of that version is still given jobs."""
    own, offered = _numbers(version), _numbers(newest)
    if version and not own:
        fix = "write --runner-version as 2.330.0"
        return Line(verdict="fail", what="runner", found="not a version", fix=fix)
    if not offered:
        fix = "compare the one in your images with the releases of actions/runner yourself"
        found = "GitHub does not say which one is the newest"
        return Line(verdict="warn", what="runner", found=found, fix=fix)
    if not version:
        fix = "say which one is in your images: --runner-version"
        return Line(verdict="warn", what="runner", found=f"GitHub offers {newest}", fix=fix)
    if own >= offered:
        return Line(verdict="ok", what="runner", found=version)
    fix = "put the newest into your images within 30 days of its release: GitHub gives older ones no jobs"
    found = f"{version}; GitHub offers {newest}"
    # Months behind for certain: a minor release comes every few weeks.
    late = own[0] < offered[0] or own[1] + 3 < offered[1]
    return Line(verdict="fail" if late else "warn", what="runner", found=found, fix=fix)


def _numbers(version: str) -> tuple[int, ...]:
    found = _VERSION.fullmatch(version.removeprefix("v"))
    return tuple(int(part) for part in found.groups()) if found else ()
