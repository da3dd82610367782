"""Access control of the dashboard: tokens, cookies, host names; a correct token is never locked out."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from runyard.http.addresses import is_loopback
from runyard.http.messages import Request
from runyard.http.metrics_access import AccessError, host_of
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.web.access import (
    Access,
    same_origin,
    token_of_form,
)
from runyard.web.settings import Settings

TOKEN = "correct-horse-battery-staple"
OUTSIDE = Settings(listen="0.0.0.0", token=TOKEN)


def request(method: str = "GET", **headers: str) -> Request:
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Request(method=method, path="/", headers=pairs)


def virtual(scenario: Callable[[VirtualClock], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(VirtualClock())

    run_virtual(main(), seed=0)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (Settings(listen="0.0.0.0"), "shorter than 16"),
        (Settings(listen="127.0.0.1"), "shorter than 16"),
        (Settings(listen="0.0.0.0", token="short"), "shorter than 16"),
        (Settings(token=TOKEN, metrics_token="short"), "metrics is shorter than 16"),
        (Settings(token=TOKEN, metrics_token=TOKEN), "can change things"),
    ],
    ids=["any", "loopback", "short", "metrics", "same"],
)
def test_an_open_dashboard_cannot_be_set_up(settings: Settings, told: str) -> None:
    async def scenario(clock: VirtualClock) -> None:
        with pytest.raises(AccessError, match=told):
            Access(settings, clock=clock)

    virtual(scenario)


@pytest.mark.parametrize("listen", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_a_job_on_this_machine_needs_the_token_for_all_but_metrics(listen: str) -> None:
    async def scenario(clock: VirtualClock) -> None:
        access = Access(Settings(listen=listen, token=TOKEN), clock=clock)
        for host in ("127.0.0.1:80", "localhost", "[::1]:8080", "LOCALHOST:1"):
            assert access.accepts_host(request(host=host))
            for method in ("GET", "HEAD", "PATCH", "POST", "PUT", "DELETE", "patch"):
                assert not await access.allows(request(method, host=host))
            assert await access.allows(request(host=host, authorization=f"Bearer {TOKEN}"))
            assert await access.metrics_refusal(request(host=host)) is None

    virtual(scenario)


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:80", "[::2]:80"]
)
def test_a_rebound_name_is_not_ours(host: str) -> None:
    async def scenario(clock: VirtualClock) -> None:
        access = Access(Settings(token=TOKEN), clock=clock)
        assert not access.accepts_host(request(host=host))
        for refusal in (access.refusal, access.metrics_refusal):
            answer = await refusal(request(host=host, authorization=f"Bearer {TOKEN}"))
            assert answer is not None and answer.status == 421

    virtual(scenario)


@pytest.mark.parametrize(
    "header",
    ["x-forwarded-for", "x-real-ip", "forwarded", "host", "x-forwarded-host"],
)
def test_no_header_makes_a_stranger_local(header: str) -> None:
    async def scenario(clock: VirtualClock) -> None:
        access = Access(OUTSIDE, clock=clock)
        pairs = ((header, "127.0.0.1"),)
        assert not await access.allows(Request(method="GET", path="/", headers=pairs))

    virtual(scenario)


def test_a_proxy_in_front_of_loopback_needs_the_token() -> None:
    async def scenario(clock: VirtualClock) -> None:
        settings = Settings(names=("Fleet.Example",), token=TOKEN)
        access = Access(settings, clock=clock)
        proxied = request(host="fleet.example")
        assert access.accepts_host(proxied)
        assert not await access.allows(proxied)
        assert await access.metrics_refusal(proxied) is not None
        assert await access.allows(request(host="fleet.example", authorization=f"Bearer {TOKEN}"))

    virtual(scenario)


@pytest.mark.parametrize("method", ["PATCH", "POST", "PUT", "DELETE", "patch"])
def test_a_page_on_another_port_changes_nothing_with_the_browsers_session(method: str) -> None:
    async def scenario(clock: VirtualClock) -> None:
        access = Access(Settings(token=TOKEN), clock=clock)
        here = "127.0.0.1:8080"
        cookie = access.session_cookie().partition(";")[0]
        own = ({"sec_fetch_site": "same-origin"}, {"origin": f"http://{here}"}, {})
        for headers in own:
            assert await access.allows(request(method, host=here, cookie=cookie, **headers))
        others = (
            {"sec_fetch_site": "same-site"},
            {"sec_fetch_site": "cross-site"},
            {"origin": "http://127.0.0.1:9999"},
            {"origin": "null"},
        )
        for headers in others:
            asking = request(method, host=here, cookie=cookie, **headers)
            assert not await access.allows(asking), headers

    virtual(scenario)


def test_two_servers_on_one_machine_do_not_overwrite_each_others_session() -> None:
    async def scenario(clock: VirtualClock) -> None:
        one = Access(Settings(token=TOKEN), clock=clock)
        other = Access(Settings(token="another-token-altogether"), clock=clock)
        assert one.cookie != other.cookie
        both = "; ".join(each.session_cookie().partition(";")[0] for each in (one, other))
        for access in (one, other):
            assert await access.allows(request(host="127.0.0.1:1", cookie=both))

    virtual(scenario)


def test_guessing_gets_slower_and_the_right_token_does_not_wait() -> None:
    async def scenario(clock: VirtualClock) -> None:
        access = Access(OUTSIDE, clock=clock)

        async def guess(number: int) -> None:
            assert not await access.check_token(f"guess number {number} of many")

        async with asyncio.TaskGroup() as group:
            for number in range(12):
                group.create_task(guess(number))
            await clock.sleep(0.01)
            before = clock.monotonic()
            assert await access.check_token(TOKEN)
            assert clock.monotonic() == before
        took = clock.monotonic()
        assert 2.9 < took < 3.2  # twelve guesses at once, four a second
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(guess(number))
        assert clock.monotonic() - took < 3.5  # slow, but never longer than a person would wait

    virtual(scenario)


def test_a_session_ends_with_its_time_and_with_its_token() -> None:
    async def scenario(clock: VirtualClock) -> None:
        access = Access(OUTSIDE, clock=clock)
        cookie = access.session_cookie().partition(";")[0]
        asking = request(cookie=f"other=1; {cookie}")
        assert await access.allows(asking)
        replica = Access(msgspec.structs.replace(OUTSIDE, listen="192.0.2.1"), clock=clock)
        assert await replica.allows(asking)
        rotated = Access(
            msgspec.structs.replace(OUTSIDE, token="another-token-altogether"), clock=clock
        )
        assert not await rotated.allows(asking)
        await clock.sleep(OUTSIDE.session + 1)
        assert not await access.allows(asking)

    virtual(scenario)


@pytest.mark.parametrize(
    "value",
    ["", ".", "9999999999.", "9999999999.00", "-1.x", "٣.x", "1e9.x", "x" * 5000, "9" * 400 + ".x"],
)
def test_a_forged_session_is_refused(value: str) -> None:
    async def scenario(clock: VirtualClock) -> None:
        access = Access(OUTSIDE, clock=clock)
        assert not await access.allows(request(cookie=f"{access.cookie}={value}"))

    virtual(scenario)


def test_a_longer_life_cannot_be_signed_for_by_a_shorter_one() -> None:
    async def scenario(clock: VirtualClock) -> None:
        access = Access(OUTSIDE, clock=clock)
        expires, _, signature = (
            access.session_cookie().partition(";")[0].partition("=")[2].partition(".")
        )
        longer = f"{access.cookie}={int(expires) + 1}.{signature}"
        assert not await access.allows(request(cookie=longer))

    virtual(scenario)


def test_over_tls_the_cookie_is_bound_to_it() -> None:
    async def scenario(clock: VirtualClock) -> None:
        cookie = Access(msgspec.structs.replace(OUTSIDE, secure=True), clock=clock).session_cookie()
        assert cookie.startswith("__Host-runyard-")
        assert cookie.endswith("; Secure")
        assert "Domain" not in cookie

    virtual(scenario)


@pytest.mark.parametrize(
    ("body", "token"),
    [
        (b"token=a%20b", "a b"),
        (b"", ""),
        (b"other=1", ""),
        (b"\xff\xfe", ""),
        (b"token=" + b"x" * 5000, ""),
        (b"&".join([b"a=1"] * 50) + b"&token=x", ""),
    ],
    ids=["plain", "empty", "other", "bytes", "long", "many"],
)
def test_a_form_that_makes_no_sense_has_no_token(body: bytes, token: str) -> None:
    assert token_of_form(Request(method="POST", path="/login", body=body)) == token


@pytest.mark.parametrize(
    ("headers", "ours"),
    [
        ({}, True),
        ({"origin": "http://a.example", "host": "a.example"}, True),
        ({"origin": "http://b.example", "host": "a.example"}, False),
        ({"origin": "null", "host": "a.example"}, False),
        ({"sec_fetch_site": "cross-site", "host": "a.example"}, False),
        ({"sec_fetch_site": "same-origin", "host": "a.example"}, True),
    ],
)
def test_a_form_of_another_site_is_refused(headers: dict[str, str], ours: bool) -> None:
    assert same_origin(request(**headers)) is ours


@pytest.mark.parametrize(
    ("header", "host"),
    [("A.b:1", "a.b"), ("[::1]:80", "::1"), ("::1", "::1"), ("a", "a"), (" a:1 ", "a")],
)
def test_a_host_is_read_without_its_port(header: str, host: str) -> None:
    assert host_of(header) == host


def test_an_address_that_only_looks_like_loopback_is_not() -> None:
    assert not any(map(is_loopback, ("127.0.0.1.nip.example", "0.0.0.0", "::", "localhost.x", "")))
