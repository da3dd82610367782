"""Creates a GitHub App by GitHub's manifest flow: serves a page on loopback, gets GitHub's code, saves the App's files.

The page shows what the App may do and posts the manifest to GitHub; GitHub asks the user, creates the App and redirects
the browser back with a code; the code is exchanged, once, for the App's key and secrets.

Invariants:
- The code is accepted only with the random `state` of this run, so no other site can make us use an App of its own.
- The page is served only under a loopback name, at a random path that other users of this machine cannot guess (it
  contains the `state`), has no script, and is gone when the command ends.
- No page, URL or output contains a secret.
"""

import asyncio
import hmac
import html
from collections.abc import Awaitable, Callable

import msgspec

from runyard.github import manifest
from runyard.github.errors import GitHubError
from runyard.http.addresses import is_loopback
from runyard.http.messages import Request, Response
from runyard.http.metrics_access import host_of
from runyard.http.routes import Route, Routes
from runyard.http.server import Timeouts, listen

BACK = "/created"
_STYLE = "body{font:16px/1.5 system-ui;max-width:42rem;margin:3rem auto}button{font:inherit}"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The App to create."""

    name: str
    organisation: str
    webhook: str
    api: str
    state: str
    page_path: str  # the page's random path, without the slash


class NotSaved(Exception):
    """The App was created, but its key, which GitHub shows once, could not be saved."""


Exchange = Callable[[str], Awaitable[str]]  # a code → where the App is installed


class Page:
    """The local page that starts and ends the flow."""

    def __init__(self, wanted: Wanted, *, exchange: Exchange) -> None:
        self._wanted = wanted
        self._exchange = exchange
        self._url = ""
        self._lock = asyncio.Lock()
        self._installed_at = ""
        self.done = asyncio.Event()
        self.lost: NotSaved | None = None

    async def open(self, *, port: int) -> tuple[str, Callable[[], Awaitable[None]]]:
        """Serve on loopback; returns the URL and a function that stops the server."""
        table = Routes(
            "runyard github connect",
            "v1",
            (
                Route("GET", f"/{self._wanted.page_path}", self._begin),
                Route("GET", BACK, self._back),
            ),
        )

        async def handle(request: Request) -> Response:
            if not is_loopback(host_of(request.header("host"))):
                return _page(421, "<p>This page is served under loopback names only.</p>")
            answer = await table.handle(request)
            assert isinstance(answer, Response)
            return answer

        listening = await listen(handle, port=port, timeouts=Timeouts(close=1.0))
        self._url = listening.url
        return f"{listening.url}/{self._wanted.page_path}", listening.close

    async def _begin(self, _: Request) -> Response:
        wanted = self._wanted
        body = manifest.manifest(
            wanted.name,
            organisation=wanted.organisation,
            webhook=wanted.webhook,
            redirect=self._url + BACK,
            homepage=wanted.webhook.removesuffix("/webhooks/github") or "https://runyard.invalid",
        )
        target = manifest.registration(
            wanted.api, organisation=wanted.organisation, state=wanted.state
        )
        rights = "".join(
            f"<li>{html.escape(name)}: {html.escape(level)}</li>"
            for name, level in sorted(body["default_permissions"].items())
        )
        hook = html.escape(wanted.webhook) or "none: deliveries are fetched from GitHub"
        text = (
            f"<h1>A GitHub App for your runners</h1><p>GitHub will ask you to create the App"
            f" <b>{html.escape(wanted.name)}</b>{_whose(wanted.organisation)}. It may:</p><ul>{rights}</ul>"
            f"<p>Webhook: {hook}</p>"
            f'<form method="post" action="{html.escape(target, quote=True)}">'
            f'<input type="hidden" name="manifest" value="{_quoted(body)}">'
            "<button>Continue to GitHub</button></form>"
        )
        return _page(200, text, posts=True)

    async def _back(self, request: Request) -> Response:
        given = request.param("state").encode("utf-8", "surrogatepass")
        if not hmac.compare_digest(given, self._wanted.state.encode()):
            text = "<p>This request did not start here. Open the URL that the command printed.</p>"
            return _page(403, text)
        async with (
            self._lock
        ):  # the code is exchanged once, also if the browser repeats the request
            if not self.done.is_set():
                try:
                    self._installed_at = await self._exchange(request.param("code"))
                except GitHubError as error:
                    words = html.escape(str(error))
                    again = f'<p><a href="/{self._wanted.page_path}">Try again</a></p>'
                    return _page(502, f"<p>GitHub rejected the code: {words}</p>{again}")
                except NotSaved as error:
                    self.lost = error
                self.done.set()
        if self.lost is not None:
            return _page(500, f"<p>{html.escape(str(self.lost))}</p>")
        link = html.escape(self._installed_at, quote=True)
        text = (
            "<h1>The App is created</h1><p>Its key is saved on this machine, readable by you only. Now install it"
            f' in the account whose jobs shall run here:</p><p><a href="{link}">{link}</a></p>'
        )
        return _page(200, text)


def _whose(organisation: str) -> str:
    return f" for {html.escape(organisation)}" if organisation else " for your account"


def _quoted(body: dict[str, object]) -> str:
    return html.escape(msgspec.json.encode(body).decode(), quote=True)


def _page(status: int, text: str, *, posts: bool = False) -> Response:
    """One page; the one that `posts` has no `form-action`.

    Browsers apply `form-action` to every redirect after the form, too: to a login on another host, and to the one back
    to us. Which hosts these are, only GitHub knows. The page has one form, and no text of others in it.
    """
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
    )
    if not posts:
        policy += "; form-action 'none'"
    document = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>runyard</title>'
        f"<style>{_STYLE}</style>{text}</html>"
    )
    headers = (
        ("content-type", "text/html; charset=utf-8"),
        ("content-security-policy", policy),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
    )
    return Response(status=status, headers=headers, body=document.encode())
