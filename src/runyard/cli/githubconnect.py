"""Runs `runyard github connect`: creates a GitHub App in a browser, saves its key, waits until it is installed."""

import asyncio
import contextlib
import os
import random
import re
import webbrowser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from runyard.cli.app_manifest import NotSaved, Page, Wanted
from runyard.cli.githubfiles import AppDirectory, Connected, default_directory
from runyard.cli.githubflags import PUBLIC
from runyard.cli.options import BadSetting, Failed
from runyard.cli.serverfiles import text_of, transport_to
from runyard.clock import Clock, RealClock
from runyard.github import errors, manifest
from runyard.github.app import AppAuth
from runyard.github.budget import Budget
from runyard.github.client import GitHub
from runyard.github.errors import GitHubError
from runyard.github.setup import convert_manifest
from runyard.github.views import NewApp
from runyard.http.client import HttpTransport
from runyard.text import harmless
from runyard.wire.paths import GITHUB_WEBHOOK

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}", re.ASCII)
_CHECK_EVERY = 2.0
_PASSING = (
    errors.Unknown,
    errors.Unreachable,
    errors.RateLimited,
    errors.BudgetExhausted,
    errors.NoToken,
)


class NotConnected(Failed):
    """The App could not be created or installed; files written so far are kept."""


class ConnectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The App to make, and how to get there."""

    org: str
    name: str
    github_url: str
    ca_file: Path | None
    webhook_url: str
    port: int
    browser: bool
    within: float


def run(options: ConnectOptions, *, directory: Path | None, as_json: bool) -> None:
    """Create the App, or continue with one that exists."""
    if options.org and not _NAME.fullmatch(options.org):
        raise BadSetting(f"--org: {options.org!r} is not the name of an organisation")
    if len(options.name) > manifest.NAME_LIMIT:
        raise BadSetting(
            f"--name: GitHub allows {manifest.NAME_LIMIT} characters. Choose a shorter name"
        )
    _check_webhook(options.webhook_url)
    app = AppDirectory(directory or default_directory(os.environ))
    api = _api(app.load(), app, org=options.org, github_url=options.github_url)
    app.prepare()
    rng, clock = random.SystemRandom(), RealClock()
    wanted = Wanted(
        name=options.name or app_name(options.org, rng),
        organisation=options.org,
        webhook=options.webhook_url,
        api=api,
        state=rng.randbytes(24).hex(),
        page_path=rng.randbytes(16).hex(),
    )
    transport = transport_to("--github-url", wanted.api, ca=options.ca_file)
    progress = _Progress(as_json=as_json)
    flow = _Flow(wanted, app, transport=transport, clock=clock, progress=progress)
    try:
        asyncio.run(flow.run(port=options.port, browser=options.browser, within=options.within))
    except GitHubError as error:
        raise NotConnected(f"GitHub: {harmless(str(error))}. Run the command again") from None


def app_name(org: str, rng: random.Random) -> str:
    """A name that is most likely free at GitHub: it ends with random characters."""
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
            f"--webhook-url: the server receives webhooks at {GITHUB_WEBHOOK}. Write https://{parts.netloc}{GITHUB_WEBHOOK}"
        )


def _api(made: Connected | None, directory: AppDirectory, *, org: str, github_url: str) -> str:
    """The URL of GitHub's API; an App that exists belongs to the GitHub where it was created."""
    said = github_url.rstrip("/")
    if made is None:
        return said or PUBLIC
    another = "Use another --github-dir for another App"
    if org and org.lower() != made.organisation.lower():
        whose = made.organisation or "yourself"
        raise BadSetting(f"--org: the App in {directory.root} belongs to {whose}. {another}")
    if said and said != made.github_url.rstrip("/"):
        raise BadSetting(
            f"--github-url: the App in {directory.root} belongs to {made.github_url}. {another}"
        )
    return made.github_url


class _Progress:
    """Prints progress, as text or as JSON lines."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def __call__(self, event: str, text: str, **fields: Any) -> None:
        if self._as_json:
            click.echo(msgspec.json.encode({"event": event, **fields}).decode())
        else:
            click.echo(text)


class _Flow:
    """Creates and installs an App, step by step."""

    def __init__(
        self,
        wanted: Wanted,
        directory: AppDirectory,
        *,
        transport: HttpTransport,
        clock: Clock,
        progress: _Progress,
    ) -> None:
        self._wanted = wanted
        self._directory = directory
        self._transport = transport
        self._clock = clock
        self._progress = progress

    async def run(self, *, port: int, browser: bool, within: float) -> None:
        """Do the steps that are not done yet."""
        try:
            app = self._directory.load()
            if app is None:
                await self._make(port=port, browser=browser, within=within)
                app = self._directory.load()
                assert app is not None
            else:
                self._progress(
                    "known",
                    f"the App {app.slug} exists; its files are in {self._directory.root}",
                    app_id=app.app_id,
                )
            await self._installed(app, within=within)
        finally:
            await self._transport.close()

    async def _make(self, *, port: int, browser: bool, within: float) -> None:
        page = Page(self._wanted, exchange=self._exchange)
        url, close = await page.open(port=port)
        try:
            self._progress("open", f"open {url} in a browser on this machine", url=url)
            if browser:
                await asyncio.to_thread(webbrowser.open, url)
            async with self._clock.timeout(within):
                await page.done.wait()
            if page.lost is not None:
                raise NotConnected(str(page.lost))
        except TimeoutError:
            raise NotConnected(
                f"the App was not confirmed in the browser within {within:g} s. Run the command again"
            ) from None
        finally:
            await close()

    async def _exchange(self, code: str) -> str:
        made: NewApp = await convert_manifest(self._transport, code)
        app = Connected(
            app_id=made.id,
            slug=made.slug,
            html_url=made.html_url,
            github_url=self._wanted.api,
            organisation=self._wanted.organisation,
        )
        try:
            self._directory.keep(app, key=made.pem, secret=made.webhook_secret or "")
        except OSError as error:
            raise NotSaved(
                f"the App {made.slug} was created, but its key cannot be written to {self._directory.root}"
                f" ({error.strerror}). Fix the directory, delete the App at GitHub, and run the command again"
            ) from None
        self._progress(
            "made",
            f"the App {made.slug} is created; its key and secrets are in {self._directory.root}",
            app_id=made.id,
            slug=made.slug,
            directory=str(self._directory.root),
        )
        return f"{made.html_url}/installations/new"

    async def _installed(self, app: Connected, *, within: float) -> None:
        key = text_of("--github-dir", self._directory.key)
        try:
            auth = AppAuth(app_id=app.app_id, private_key=key, clock=self._clock)
        except (ValueError, TypeError):
            raise BadSetting(
                f"--github-dir: {self._directory.key} is damaged. Remove the directory and connect again"
            ) from None
        api = GitHub(self._transport, app=auth, clock=self._clock, budget=Budget(self._clock))
        link, last_event = f"{app.html_url}/installations/new", ""
        missing = f"the App is not installed yet: {link}. Install it, then run the command again"
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(within):
                while True:
                    try:
                        where = [each.account.login for each in await api.installations()]
                        event, text = "install", f"install the App: {link}"
                    except _PASSING as error:
                        where = []
                        event, text = "no-answer", f"GitHub: {harmless(str(error))}; retrying"
                    wanted = app.organisation.lower()
                    if any(not wanted or name.lower() == wanted for name in where):
                        names = ", ".join(where)
                        self._progress("installed", f"installed at {names}", accounts=where)
                        return
                    if event != last_event:
                        self._progress(event, text, url=link)
                        last_event = event
                    await self._clock.sleep(_CHECK_EVERY)
        raise NotConnected(
            missing
            if last_event == "install"
            else "GitHub did not respond in time. Run the command again"
        )
