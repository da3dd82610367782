"""The App manifest flow, from this machine: a page on loopback, GitHub's code, the App's files.

The page shows what will be asked for and posts the manifest to GitHub; GitHub asks the person, makes the App and sends
the browser back here with a code; the code is traded, once, for the App's key and secrets.

Invariants:
- The code is believed only with the `state` that this very run made up: nobody else can hand us an App of theirs.
- The page answers under a name of loopback alone, at an address that nobody else on this machine can guess (it shows
  the `state`), runs no script, and is gone when the command ends.
- A secret is in no page, no address and no line of output.
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
from runyard.http.routes import Route, Routes
from runyard.http.server import Patience, listen
from runyard.web.access import host_of

BACK = "/created"
_STYLE = "body{font:16px/1.5 system-ui;max-width:42rem;margin:3rem auto}button{font:inherit}"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The App that shall be."""

    name: str
    organisation: str
    webhook: str
    api: str
    state: str
    door: str  # the page's path, without the slash


class NotKept(Exception):
    """The App was made, and what GitHub tells of it only once could not be written down."""


Trade = Callable[[str], Awaitable[str]]  # a code → where the App is installed


class Page:
    """What the person's browser sees."""

    def __init__(self, wanted: Wanted, *, trade: Trade) -> None:
        self._wanted = wanted
        self._trade = trade
        self._url = ""
        self._lock = asyncio.Lock()
        self._installed_at = ""
        self.done = asyncio.Event()
        self.lost: NotKept | None = None

    async def open(self, *, port: int) -> tuple[str, Callable[[], Awaitable[None]]]:
        """Serve on loopback; the address, and what ends it."""
        table = Routes(
            "runyard github connect",
            "v1",
            (Route("GET", f"/{self._wanted.door}", self._begin), Route("GET", BACK, self._back)),
        )

        async def handle(request: Request) -> Response:
            if not is_loopback(host_of(request.header("host"))):
                return _page(421, "<p>This page goes by the name of this machine alone.</p>")
            answer = await table.handle(request)
            assert isinstance(answer, Response)
            return answer

        listening = await listen(handle, port=port, patience=Patience(close=1.0))
        self._url = listening.url
        return f"{listening.url}/{self._wanted.door}", listening.close

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
        hook = html.escape(wanted.webhook) or "none: deliveries are fetched from GitHub's own log"
        text = (
            f"<h1>A GitHub App for your runners</h1><p>GitHub will ask you to make the App"
            f" <b>{html.escape(wanted.name)}</b>{_whose(wanted.organisation)}. It may:</p><ul>{rights}</ul>"
            f"<p>Webhook: {hook}</p>"
            f'<form method="post" action="{html.escape(target, quote=True)}">'
            f'<input type="hidden" name="manifest" value="{_quoted(body)}">'
            "<button>Go to GitHub and make it</button></form>"
        )
        return _page(200, text, form=manifest.web_of(wanted.api))

    async def _back(self, request: Request) -> Response:
        given = request.param("state").encode("utf-8", "surrogatepass")
        if not hmac.compare_digest(given, self._wanted.state.encode()):
            text = (
                "<p>This did not begin here. Start again from the page that the command opened.</p>"
            )
            return _page(403, text)
        async with self._lock:  # a browser that asks twice trades once
            if not self.done.is_set():
                try:
                    self._installed_at = await self._trade(request.param("code"))
                except GitHubError as error:
                    words = html.escape(str(error))
                    again = f'<p><a href="/{self._wanted.door}">Try again</a></p>'
                    return _page(502, f"<p>GitHub did not take the code: {words}</p>{again}")
                except NotKept as error:
                    self.lost = error
                self.done.set()
        if self.lost is not None:
            return _page(500, f"<p>{html.escape(str(self.lost))}</p>")
        link = html.escape(self._installed_at, quote=True)
        text = (
            "<h1>The App is there</h1><p>Its key is on this machine, for you alone. Now install it"
            f' where its runners shall work:</p><p><a href="{link}">{link}</a></p>'
        )
        return _page(200, text)


def _whose(organisation: str) -> str:
    return f" for {html.escape(organisation)}" if organisation else " for yourself"


def _quoted(body: dict[str, object]) -> str:
    return html.escape(msgspec.json.encode(body).decode(), quote=True)


def _page(status: int, text: str, *, form: str = "") -> Response:
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; form-action {form or chr(39) + 'none' + chr(39)};"
        " base-uri 'none'; frame-ancestors 'none'"
    )
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
