"""`runyard github connect` in a real browser: the button leads to GitHub and back, whatever lies on the way."""

import asyncio
import contextlib
import html
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import parse_qsl

import msgspec
import pytest
from playwright.async_api import Browser, async_playwright, expect
from tests.cli.github_harness import SOON, Lines, connecting, practice

from runyard.embedded.github.core import GithubCore
from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response
from runyard.http.server import listen

pytestmark = pytest.mark.slow

WEB_PATH = "/git"  # of a GitHub Enterprise Server that is not at the root of its host
Answer = Callable[[Request], Response | None]


@contextlib.asynccontextmanager
async def front(core: GithubCore, answer: Answer) -> AsyncIterator[str]:
    """The same GitHub under another address; `answer` may respond to a request before it does."""

    async def handle(request: Request) -> Response:
        path = request.path.removeprefix(f"{WEB_PATH}/api/v3").removeprefix(WEB_PATH)
        return answer(request) or await core.handle(msgspec.structs.replace(request, path=path))

    listening = await listen(handle)
    try:
        yield listening.url
    finally:
        await listening.close()


@contextlib.asynccontextmanager
async def browser(program: str) -> AsyncIterator[Browser]:
    async with async_playwright() as tool:
        found = await tool.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield found
        finally:
            await found.close()


def straight_back(_: str) -> Answer:
    return lambda _: None


def by_a_login_elsewhere(url: str) -> Answer:
    """Like an organisation's single sign-on: the form is redirected to another host first."""

    def answer(request: Request) -> Response | None:
        if request.method != "POST" or not request.path.endswith("/settings/apps/new"):
            return None
        state = request.param("state")
        target = f"{url}{request.path.removeprefix(WEB_PATH)}?state={state}"
        return Response(status=307, headers=(("location", target),))

    return answer


def after_a_question(_: str) -> Answer:
    """Like GitHub: a page of its own asks first, and its form creates the App."""

    def answer(request: Request) -> Response | None:
        asked = request.method != "POST" or not request.path.endswith("/settings/apps/new")
        if asked or request.param("sure"):
            return None
        manifest = html.escape(dict(parse_qsl(request.body.decode()))["manifest"], quote=True)
        action = f"{request.path}?state={request.param('state')}&amp;sure=1"
        page = (
            f'<!doctype html><link rel="icon" href="data:,"><form method="post" action="{action}">'
            f'<input type="hidden" name="manifest" value="{manifest}"><button>Create</button></form>'
        )
        headers = (("content-type", "text/html; charset=utf-8"),)
        return Response(status=200, headers=headers, body=page.encode())

    return answer


WAYS = {
    "straight back": (straight_back, ""),
    "after a question of GitHub": (after_a_question, ""),
    "by a login on another host": (by_a_login_elsewhere, ""),
    "a GitHub below a path": (straight_back, f"{WEB_PATH}/api/v3"),
}


@pytest.mark.parametrize(("way", "path"), WAYS.values(), ids=WAYS)
def test_the_button_works_in_a_browser_that_applies_the_pages_policy_to_redirects(
    way: Callable[[str], Answer], path: str, tmp_path: Path, app_keys: KeyPair, chromium: str
) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(SOON),
            practice(app_keys) as (core, url),
            front(core, way(url)) as github,
            browser(chromium) as found,
        ):
            directory, lines = tmp_path / "github", Lines()
            where = ("--github-url", github + path, "--github-dir", str(directory))
            argv = ("--org", "acme", "--wait", "20", *where)
            running = asyncio.create_task(asyncio.to_thread(connecting, lines, *argv))
            page = await found.new_page()
            complaints: list[str] = []
            page.on("console", lambda told: complaints.append(told.text))
            await page.goto(str((await lines.next())["url"]))
            await page.get_by_role("button", name="Continue to GitHub").click()
            if way is after_a_question:
                await page.get_by_role("button", name="Create").click()
            await expect(page.get_by_role("heading", name="The App is created")).to_be_visible()
            assert (await lines.next())["event"] == "made"
            asked = await lines.next()
            link = page.get_by_role("link", name="/installations/new")
            await expect(link).to_have_attribute("href", str(asked["url"]))
            core.install("acme")  # as who follows the link does
            assert await running == 0
            assert (directory / "app.json").exists()
            assert complaints == []

    asyncio.run(main())
