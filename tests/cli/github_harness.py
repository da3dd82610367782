"""A practice GitHub over HTTP for the commands that set one up, and the person who clicks through it."""

import asyncio
import contextlib
import html
import json
import queue
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.cli.server_harness import ask

from runyard.cli.main import cli
from runyard.cli.main import run as run_cli
from runyard.clock import RealClock
from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.deliveries import Delivery
from runyard.embedded.github.identity import KeyPair
from runyard.http.client import HttpTransport
from runyard.http.messages import Request, Response
from runyard.http.server import listen

APP_ID = 7
SOON = 100.0
_WAIT = ("--wait", "90")  # less than `SOON`: what hangs is seen as what it is


Bend = Callable[[Request, Response], Response]


def straight(_: Request, answer: Response) -> Response:
    return answer


@contextlib.asynccontextmanager
async def practice(keys: KeyPair, bend: Bend = straight) -> AsyncIterator[tuple[GithubCore, str]]:
    async def deliver(_: Delivery) -> int:
        return 502

    core = GithubCore(
        clock=RealClock(),
        rng=random.Random(1),
        app=PracticeApp(app_id=APP_ID, public_key=keys.public_pem, webhook_secret="hush"),
        deliver=deliver,
    )

    async def handle(request: Request) -> Response:
        return bend(request, await core.handle(request))

    listening = await listen(handle)
    try:
        yield core, listening.url
    finally:
        await listening.close()


def play(
    scenario: Callable[[GithubCore, str], Awaitable[None]], keys: KeyPair, bend: Bend = straight
) -> None:
    async def main() -> None:
        async with asyncio.timeout(SOON), practice(keys, bend) as (core, url):
            await scenario(core, url)

    asyncio.run(main())


class Lines:
    """Standard output that is read while it is written."""

    def __init__(self) -> None:
        self.seen: queue.Queue[str] = queue.Queue()
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self.seen.put(line)
        return len(text)

    def flush(self) -> None:
        pass

    async def next(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(await asyncio.to_thread(self.seen.get, timeout=SOON))
        return found


def connecting(lines: Lines, *argv: str) -> int:
    with contextlib.redirect_stdout(lines):
        return run_cli(
            cli, name="runyard", argv=["github", "connect", "--no-browser", "--json", *_WAIT, *argv]
        )


async def shown(url: str, path: str = "", **headers: str) -> Response:
    """The page at an address, or at another path of the same server."""
    parts = urlsplit(url)
    return await ask(
        f"{parts.scheme}://{parts.netloc}", "GET", path or parts.path or "/", **headers
    )


async def agree(url: str, *, state: str = "") -> Response:
    """What a person and their browser do: open the page, press the button, come back."""
    page = (await shown(url)).body.decode()
    action = html.unescape(re.findall(r'action="([^"]+)"', page)[0])
    manifest = html.unescape(re.findall(r'name="manifest" value="([^"]+)"', page)[0])
    target = urlsplit(action)
    way = HttpTransport(f"{target.scheme}://{target.netloc}")
    try:
        answer = await way.send(
            Request(
                method="POST",
                path=target.path,
                query=tuple(parse_qsl(target.query)),
                headers=(("content-type", "application/x-www-form-urlencoded"),),
                body=urlencode({"manifest": manifest}).encode(),
            ),
            timeout=SOON,
        )
    finally:
        await way.close()
    assert isinstance(answer, Response) and answer.status == 302, answer
    back = urlsplit(answer.header("location"))
    query = dict(parse_qsl(back.query))
    if state:
        query["state"] = state
    way = HttpTransport(f"{back.scheme}://{back.netloc}")
    try:
        got = await way.send(
            Request(method="GET", path=back.path, query=tuple(query.items())), timeout=SOON
        )
    finally:
        await way.close()
    assert isinstance(got, Response)
    return got
