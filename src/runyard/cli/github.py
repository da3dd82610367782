"""`runyard github`: make a GitHub App for the fleet, and check what GitHub thinks of it.

`connect` ends with 0 when the App is there and installed, 1 when that did not come about, 2 when it could not begin.
`check` ends with 0 when nothing fails (warnings are no failures), 1 when something does, 2 when it could not begin.
"""

import asyncio
import contextlib
import os
import random
import re
import sys
import webbrowser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from runyard.cli.connecting import NotKept, Page, Wanted
from runyard.cli.githubcheck import Facts, Line, examine
from runyard.cli.githubfiles import Connected, Place, default_place
from runyard.cli.harmless import harmless
from runyard.cli.serverfiles import BadSetting, text_of, way_to
from runyard.cli.speaking import (
    OPTIONS,
    PUBLIC,
    RUNNER_GROUP,
    WHERE,
    Speaker,
    intake,
    said,
    speaker,
    with_options,
)
from runyard.cli.tables import show_json, show_table
from runyard.clock import Clock, RealClock
from runyard.github import errors, manifest
from runyard.github.api import GitHub
from runyard.github.app import AppAuth
from runyard.github.budget import Budget
from runyard.github.errors import GitHubError
from runyard.github.setup import convert_manifest
from runyard.github.views import NewApp
from runyard.http.client import HttpTransport
from runyard.wire.paths import GITHUB_WEBHOOK

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}", re.ASCII)
_LOOK_EVERY = 2.0
_PASSING = (
    errors.Unknown,
    errors.Unreachable,
    errors.RateLimited,
    errors.BudgetExhausted,
    errors.NoToken,
)


class NotConnected(click.ClickException):
    """It began, and did not come about; what was made is kept."""

    exit_code = 1


@click.group(context_settings={"max_content_width": 110})
def github() -> None:
    """Connect the fleet to GitHub, and check the connection.

    \b
    runyard github connect --org acme      make an App for an organisation, in your browser
    runyard github check                   permissions, events, rate, clock, deliveries: what is wrong and what to do
    """


@github.command()
@click.option("--org", default="", help="Make it for this organisation.  [default: for yourself]")
@click.option("--name", default="", help="The App's name at GitHub, unique there.")
@with_options(WHERE)
@click.option(
    "--webhook-url",
    default="",
    help="https://HOST/webhooks/github of your server.  [default: none, deliveries are fetched]",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Of the local page.")
@click.option("--no-browser", is_flag=True, help="Only print the address to open.")
@click.option(
    "--wait",
    type=click.IntRange(1, 86400),
    default=900,
    show_default=True,
    help="Seconds for you to click through it.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines, for scripts.")
def connect(
    org: str,
    name: str,
    github_url: str,
    github_ca_file: Path | None,
    webhook_url: str,
    github_dir: Path | None,
    port: int,
    wait: int,
    *,
    no_browser: bool,
    as_json: bool,
) -> None:
    """Make a GitHub App for this fleet: agree to it in a browser, install it, done.

    The App's key and secrets are written to a private directory that `runyard server` and `runyard up --github` take as
    --github-dir. Run it again and it goes on where it was: an App that is there is not made twice.
    """
    if org and not _NAME.fullmatch(org):
        raise BadSetting(f"--org: {org!r} is not the name of an organisation")
    if len(name) > manifest.NAME_LIMIT:
        raise BadSetting(f"--name: GitHub takes {manifest.NAME_LIMIT} characters. Choose less")
    _check_webhook(webhook_url)
    place = Place(github_dir or default_place(os.environ))
    api = _api(place.load(), place, org=org, github_url=github_url)
    place.prepare()
    rng, clock = random.SystemRandom(), RealClock()
    wanted = Wanted(
        name=name or app_name(org, rng),
        organisation=org,
        webhook=webhook_url,
        api=api,
        state=rng.randbytes(24).hex(),
        door=rng.randbytes(16).hex(),
    )
    way = way_to("--github-url", wanted.api, ca=github_ca_file)
    say = _Say(as_json=as_json)
    flow = _Flow(wanted, place, way=way, clock=clock, say=say)
    try:
        asyncio.run(flow.run(port=port, browser=not no_browser, within=float(wait)))
    except GitHubError as error:
        raise NotConnected(f"GitHub: {harmless(str(error))}. Run the command again") from None


def app_name(org: str, rng: random.Random) -> str:
    """A name that is free at GitHub: its end is by chance, whatever comes before."""
    end = f"-{rng.randbytes(2).hex()}"
    return f"runyard-{org or 'runners'}"[: manifest.NAME_LIMIT - len(end)].rstrip("-") + end


def _check_webhook(url: str) -> None:
    if not url:
        return
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme != "https" or not host:
        raise BadSetting(
            f"--webhook-url: write it as https://HOST{GITHUB_WEBHOOK}; GitHub sends secrets there"
        )
    if not parts.path.endswith(GITHUB_WEBHOOK):
        raise BadSetting(
            f"--webhook-url: the server hears GitHub at {GITHUB_WEBHOOK}. Write https://{parts.netloc}{GITHUB_WEBHOOK}"
        )


def _api(made: Connected | None, place: Place, *, org: str, github_url: str) -> str:
    """Which GitHub it is; an App that was made before belongs where it was made."""
    said = github_url.rstrip("/")
    if made is None:
        return said or PUBLIC
    another = "Name another --github-dir for another App"
    if org and org.lower() != made.organisation.lower():
        whose = made.organisation or "yourself"
        raise BadSetting(f"--org: the App in {place.root} was made for {whose}. {another}")
    if said and said != made.github_url.rstrip("/"):
        raise BadSetting(
            f"--github-url: the App in {place.root} was made at {made.github_url}. {another}"
        )
    return made.github_url


class _Say:
    """What a person reads, or a script."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def __call__(self, event: str, text: str, **fields: Any) -> None:
        if self._as_json:
            click.echo(msgspec.json.encode({"event": event, **fields}).decode())
        else:
            click.echo(text)


class _Flow:
    """From nothing to an App that is installed."""

    def __init__(
        self, wanted: Wanted, place: Place, *, way: HttpTransport, clock: Clock, say: _Say
    ) -> None:
        self._wanted = wanted
        self._place = place
        self._way = way
        self._clock = clock
        self._say = say

    async def run(self, *, port: int, browser: bool, within: float) -> None:
        """Do what is still to be done."""
        try:
            app = self._place.load()
            if app is None:
                await self._make(port=port, browser=browser, within=within)
                app = self._place.load()
                assert app is not None
            else:
                self._say(
                    "known",
                    f"the App {app.slug} was made before; its files are in {self._place.root}",
                    app_id=app.app_id,
                )
            await self._installed(app, within=within)
        finally:
            await self._way.close()

    async def _make(self, *, port: int, browser: bool, within: float) -> None:
        page = Page(self._wanted, trade=self._trade)
        url, close = await page.open(port=port)
        try:
            self._say("open", f"open {url} in a browser on this machine", url=url)
            if browser:
                await asyncio.to_thread(webbrowser.open, url)
            async with self._clock.timeout(within):
                await page.done.wait()
            if page.lost is not None:
                raise NotConnected(str(page.lost))
        except TimeoutError:
            raise NotConnected(
                f"nobody came back from GitHub within {within:g} s. Run the command again"
            ) from None
        finally:
            await close()

    async def _trade(self, code: str) -> str:
        made: NewApp = await convert_manifest(self._way, code)
        app = Connected(
            app_id=made.id,
            slug=made.slug,
            html_url=made.html_url,
            github_url=self._wanted.api,
            organisation=self._wanted.organisation,
        )
        try:
            self._place.keep(app, key=made.pem, secret=made.webhook_secret or "")
        except OSError as error:
            raise NotKept(
                f"the App {made.slug} was made, and its key cannot be written to {self._place.root}"
                f" ({error.strerror}). Make room there, delete the App at GitHub, and run the command again"
            ) from None
        self._say(
            "made",
            f"the App {made.slug} is there; its key and secrets are in {self._place.root}",
            app_id=made.id,
            slug=made.slug,
            directory=str(self._place.root),
        )
        return f"{made.html_url}/installations/new"

    async def _installed(self, app: Connected, *, within: float) -> None:
        key = text_of("--github-dir", self._place.key)
        try:
            auth = AppAuth(app_id=app.app_id, private_key=key, clock=self._clock)
        except (ValueError, TypeError):
            raise BadSetting(
                f"--github-dir: {self._place.key} is damaged. Remove the directory and connect again"
            ) from None
        api = GitHub(self._way, app=auth, clock=self._clock, budget=Budget(self._clock))
        link, told = f"{app.html_url}/installations/new", ""
        missing = f"the App is not installed yet: {link}. Run the command again after it"
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(within):
                while True:
                    try:
                        where = [each.account.login for each in await api.installations()]
                        event, text = "install", f"install it: {link}"
                    except _PASSING as error:
                        where = []
                        event, text = "no-answer", f"GitHub: {harmless(str(error))}; asking again"
                    wanted = app.organisation.lower()
                    if any(not wanted or name.lower() == wanted for name in where):
                        names = ", ".join(where)
                        self._say("installed", f"installed at {names}", accounts=where)
                        return
                    if event != told:
                        self._say(event, text, url=link)
                        told = event
                    await self._clock.sleep(_LOOK_EVERY)
        raise NotConnected(missing if told == "install" else "GitHub did not answer in time")


@github.command()
@with_options((*OPTIONS, intake("webhook"), RUNNER_GROUP))
@click.option("--runner-version", default="", help="Of the actions runner in your images: 2.330.0")
@click.option("--json", "as_json", is_flag=True, help="JSON, for scripts.")
def check(
    github_intake: str, runner_group: int, runner_version: str, *, as_json: bool, **given: Any
) -> None:
    """Ask GitHub whether everything is as the fleet needs it; each line says what is wrong and what to do.

    It reads only: nothing is registered, changed or sent again.
    """
    clock = RealClock()
    who = speaker(said(given), clock=clock)
    facts = Facts(
        intake=github_intake,
        runner_group=runner_group,
        runner_version=runner_version,
        url=who.url,
    )
    lines = asyncio.run(_examined(who, facts, clock))
    failed = any(line.verdict == "fail" for line in lines)
    if as_json:
        show_json({"ok": not failed, "lines": lines})
    else:
        _show(lines)
    sys.exit(1 if failed else 0)


async def _examined(who: Speaker, facts: Facts, clock: Clock) -> tuple[Line, ...]:
    way = who.way()
    try:
        return await examine(way, auth=who.auth, facts=facts, clock=clock)
    finally:
        await way.close()


def _show(lines: tuple[Line, ...]) -> None:
    show_table(
        ("", "what", "found", "what to do"),
        [(line.verdict, line.what, line.found, line.fix or "-") for line in lines],
    )
