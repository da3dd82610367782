"""The page in a real browser: it updates itself, works without scripts, obeys its policy and fits on a phone."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from playwright.async_api import Browser, Page, ViewportSize, async_playwright, expect
from tests.web.web_harness import EVIL, QUICK, TOKEN, Site, site

DESKTOP: ViewportSize = {"width": 1360, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
Scenario = Callable[[Site, Browser], Awaitable[None]]

pytestmark = pytest.mark.slow
expect.set_options(timeout=20_000)


def browse(scenario: Scenario, url: str, chromium: str, **changes: object) -> None:
    async def main() -> None:
        settings = msgspec.structs.replace(QUICK, **changes)
        async with asyncio.timeout(100), site(url, settings) as web, async_playwright() as tool:
            browser = await tool.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            try:
                await fleet(web)
                await scenario(web, browser)
            finally:
                await browser.close()

    asyncio.run(main())


async def fleet(web: Site) -> None:
    await web.pool("mac", replicas=4)
    await web.pool("linux", os="linux", dispatchLabel="linux", image="registry/linux@sha256:12345")
    await web.host("mini-1")
    for number in range(3):
        web.slot(await web.pod(f"mac-{number}"), f"mac-{number}")
    await web.pod("mac-9", image="vm:0")
    matrix = "integration tests (macOS 26, Xcode 26.1, shard 3 of 9)"
    web.job(1001, repository="acme/app", name=matrix, workflow="Nightly compatibility")
    web.job(1002, repository=f"acme/{EVIL}")


@asynccontextmanager
async def opened(
    web: Site, browser: Browser, *, script: bool = True, dark: bool = False, size: ViewportSize
) -> AsyncIterator[tuple[Page, list[str]]]:
    """A page and everything that the browser complains about."""
    context = await browser.new_context(
        java_script_enabled=script, color_scheme="dark" if dark else "light", viewport=size
    )
    page = await context.new_page()
    complaints: list[str] = []
    page.on("console", lambda told: complaints.append(told.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
    if web.token:
        await context.request.get(await web.login_link())  # shares its cookies with the page
    await page.goto(web.url)
    try:
        yield page, complaints
    finally:
        await context.close()


def test_the_page_follows_the_fleet_without_a_complaint(database_url: str, chromium: str) -> None:
    async def scenario(web: Site, browser: Browser) -> None:
        async with opened(web, browser, size=DESKTOP) as (page, complaints):
            await expect(page.locator("#live")).to_have_text("live")
            await expect(page.locator("#pools tbody tr")).to_have_count(2)
            await expect(page.locator("#runners tbody tr")).to_have_count(4)
            await page.evaluate("document.querySelector('#runners tbody tr').marked = 1")
            web.job(4711, repository="acme/new")
            await expect(page.get_by_text("acme/new")).to_be_visible()
            await expect(page.locator("#waiting-jobs tbody tr")).to_have_count(3)
            kept = await page.evaluate("document.querySelector('#runners tbody tr').marked")
            assert kept == 1  # what did not change was not replaced
            web.execute("DELETE FROM jobs WHERE job_id = 4711")
            await expect(page.get_by_text("acme/new")).to_have_count(0)
            assert EVIL in await page.locator("#waiting-jobs").inner_text()
            assert complaints == []

    browse(scenario, database_url, chromium)


def test_a_lost_connection_is_shown_and_restored(database_url: str, chromium: str) -> None:
    async def scenario(web: Site, browser: Browser) -> None:
        async with opened(web, browser, size=DESKTOP) as (page, _):
            await expect(page.locator("#live")).to_have_text("live")
            await page.context.set_offline(True)
            web.dashboard._pages.close()
            await expect(page.locator("#live")).to_have_text("reconnecting")
            web.dashboard._pages._closed = False
            await page.context.set_offline(False)
            await expect(page.locator("#live")).to_have_text("live")

    browse(scenario, database_url, chromium)


def test_the_page_needs_no_script(database_url: str, chromium: str) -> None:
    async def scenario(web: Site, browser: Browser) -> None:
        async with opened(web, browser, script=False, size=DESKTOP) as (page, complaints):
            await expect(page.locator("#runners tbody tr")).to_have_count(4)
            await expect(page.locator("#live")).to_have_text("reloads every 5 s")
            web.job(4711, repository="acme/new")
            await expect(page.get_by_text("acme/new")).to_be_visible()
            assert complaints == []

    browse(scenario, database_url, chromium)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_nothing_hangs_out_of_the_page(
    database_url: str, chromium: str, dark: bool, size: ViewportSize, tmp_path: Path
) -> None:
    async def scenario(web: Site, browser: Browser) -> None:
        async with opened(web, browser, dark=dark, size=size) as (page, complaints):
            await expect(page.locator("#live")).to_have_text("live")
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0
            await page.screenshot(path=shot(tmp_path, dark=dark, size=size), full_page=True)
            assert complaints == []

    browse(scenario, database_url, chromium)


BROKEN = """() => {
    const broken = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const node = texts.currentNode;
        for (const word of node.data.matchAll(/[\\p{L}\\p{N}_]+/gu)) {
            const range = document.createRange();
            range.setStart(node, word.index);
            range.setEnd(node, word.index + word[0].length);
            const lines = [...range.getClientRects()].filter((box) => box.width > 0);
            if (new Set(lines.map((box) => Math.round(box.top))).size > 1) broken.push(word[0]);
        }
    }
    return broken;
}"""
CLIPPED = """() => [...document.querySelectorAll("main *")].filter((element) => {
    const style = getComputedStyle(element);
    const hidden = style.overflowX !== "visible" && !element.closest("thead");
    return hidden && element.scrollWidth > element.clientWidth + 1 && style.textOverflow !== "ellipsis";
}).map((element) => element.outerHTML)"""
LONG = {
    "names of one word": ("acme/" + "a" * 90, "n" * 200, "w" * 200, "r" * 63),
    "ordinary names": (
        "practice/playground",
        "integration tests (macOS 26, Xcode 26.1, shard 3 of 9)",
        "Nightly compatibility",
        "mac-xcode-26-runner-1f9e8d7c",
    ),
}


@pytest.mark.parametrize("names", LONG.values(), ids=LONG)
def test_no_word_is_broken_in_the_middle(
    database_url: str, chromium: str, names: tuple[str, str, str, str]
) -> None:
    repository, name, workflow, runner = names

    async def scenario(web: Site, browser: Browser) -> None:
        web.slot(await web.pod(runner), runner, state="executing")
        for number, state in enumerate(("queued", "running", "queued"), start=2000):
            web.job(number, repository=repository, state=state, name=name, workflow=workflow)
        web.execute("UPDATE jobs SET runner_name = %s, started_at = runyard_now()", runner)
        web.execute("UPDATE slots SET executing_job = 2001 WHERE pod_name = %s", runner)
        async with opened(web, browser, size=DESKTOP) as (page, _):
            await expect(page.locator("#waiting-jobs tbody tr")).to_have_count(4)
            for width in (1920, 1360, 1201, 1000, 961, 800, 390, 320):
                await page.set_viewport_size({"width": width, "height": 900})
                assert await page.evaluate(BROKEN) == [], width
                assert await page.evaluate(CLIPPED) == [], width
                wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, width

    browse(scenario, database_url, chromium)


def test_a_jobs_name_leads_to_its_run(database_url: str, chromium: str) -> None:
    async def scenario(web: Site, browser: Browser) -> None:
        async with opened(web, browser, size=DESKTOP) as (page, complaints):
            row = page.locator("#waiting-jobs tbody tr", has_text="1001")
            run = row.get_by_role("link", name="integration tests")
            await expect(run).to_have_attribute(
                "href", "https://github.example/acme/app/actions/runs/77/job/1001"
            )
            await expect(run).to_have_attribute("rel", "noopener noreferrer")
            await expect(row).to_contain_text("acme/app · Nightly compatibility")
            hostile = page.locator("#waiting-jobs tbody tr", has_text="1002")
            await expect(hostile.get_by_role("link")).to_have_count(1)  # its own record only
            assert complaints == []

    browse(scenario, database_url, chromium, github="https://github.example")


def test_the_token_opens_the_page_and_logging_out_closes_it(
    database_url: str, chromium: str
) -> None:
    async def scenario(web: Site, browser: Browser) -> None:
        async with opened(web, browser, size=PHONE) as (page, _):
            await page.get_by_label("Token").fill("not-the-token-at-all")
            await page.get_by_role("button").click()
            await expect(page.get_by_text("Wrong token.")).to_be_visible()
            await page.get_by_label("Token").fill(TOKEN)
            await page.get_by_role("button").click()
            await expect(page.locator("#live")).to_have_text("live")
            assert await page.evaluate("document.cookie") == ""  # no script can read it
            await page.get_by_role("button", name="Log out").click()
            await expect(page.get_by_label("Token")).to_be_visible()

    browse(scenario, database_url, chromium, listen="0.0.0.0")


def test_a_login_link_on_another_sites_page_opens_the_dashboard_once(
    database_url: str, chromium: str
) -> None:
    async def scenario(web: Site, browser: Browser) -> None:
        link = await web.login_link()
        page = await (await browser.new_context()).new_page()
        await page.set_content(f'<a href="{link}">a message with the link</a>')
        await page.get_by_role("link").click()
        await expect(page.locator("#live")).to_have_text("live")
        assert page.url == f"{web.url}/"
        other = await (await browser.new_context()).new_page()
        await other.goto(link)
        await expect(other.get_by_label("Token")).to_be_visible()

    browse(scenario, database_url, chromium)


def shot(tmp_path: Path, *, dark: bool, size: ViewportSize) -> Path:
    """Where the snapshot goes: beside the path in RUNYARD_SCREENSHOT, or nowhere that stays."""
    name = f"{'dark' if dark else 'light'}-{size['width']}"
    wanted = os.environ.get("RUNYARD_SCREENSHOT", "")
    if not wanted:
        return tmp_path / f"{name}.png"
    path = Path(wanted)
    return path if name == f"light-{DESKTOP['width']}" else path.with_stem(f"{path.stem}-{name}")
