"""Tests that tags become digests, with a registry that behaves."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from tests.tart_images import tart_image
from tests.vm.oci.fake_registry import BASIC, PASSWORD, TOKEN, USER, FakeRegistry, failure

from runyard.clock import RealClock
from runyard.vm.contract import ImageMissing, Unauthorized, Unreachable
from runyard.vm.oci.credentials import Chain, Credentials, Source, Unavailable
from runyard.vm.oci.registry import LONGEST_REST, Registry, Settings

IMAGE = tart_image()
OTHER = tart_image(nvram=b"other")


class Later(RealClock):
    """A clock that can be put forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Known:
    """Credentials for every registry; counts lookups."""

    def __init__(self, password: str = PASSWORD) -> None:
        self.asked: list[str] = []
        self._password = password

    async def find(self, host: str) -> Credentials:
        self.asked.append(host)
        return Credentials(
            username=USER, password=self._password, source=Source.DOCKER_CONFIG, detail="a file"
        )


def client(
    fake: FakeRegistry, *providers: object, clock: RealClock | None = None, **settings: object
) -> Registry:
    insecure = frozenset({fake.address})
    return Registry(
        Chain(*providers), clock or RealClock(), Settings(insecure=insecure, **settings)
    )


def within(
    scenario: Callable[[FakeRegistry], Awaitable[None]], fake: FakeRegistry | None = None
) -> None:
    async def run() -> None:
        async with fake or FakeRegistry() as server:
            await scenario(server)

    asyncio.run(run())


# ── what a tag means ────────────────────────────────────────────────────────────────────────────────


def test_a_tag_becomes_the_digest_of_the_manifest_that_was_read() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        image = await client(fake).inspect(fake.push(IMAGE))
        assert str(image.reference) == f"{fake.address}/acme/macos@{IMAGE.digest}"
        assert image.sizes.bytes == IMAGE.bytes
        assert image.sizes.disk_bytes == 20_000
        assert image.source is None
        assert fake.asked == ["HEAD latest", f"GET {IMAGE.digest}"]

    within(scenario)


@pytest.mark.parametrize("how", ["no HEAD", "no header", "a header of another kind"])
def test_a_registry_that_does_not_say_the_digest_is_read(how: str) -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async def plain(request: web.Request) -> web.StreamResponse | None:
            digest = {} if how == "no header" else {"Docker-Content-Digest": "md5:abc"}
            return web.Response(body=IMAGE.manifest, headers=digest)

        reference = fake.push(IMAGE)
        fake.head = how != "no HEAD"
        fake.override = None if how == "no HEAD" else plain
        image = await client(fake).inspect(reference)
        assert image.reference.digest == IMAGE.digest
        assert fake.asked == ["HEAD latest", "GET latest"]

    within(scenario)


def test_a_known_tag_is_not_asked_for_again_until_it_is_old() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        clock = Later()
        registry = client(fake, clock=clock)
        reference = fake.push(IMAGE)
        first = await registry.resolve(reference)
        assert await registry.resolve(reference) == first
        assert len(fake.seen) == 2
        clock.ahead = 61
        assert await registry.resolve(reference) == first
        assert fake.asked[2:] == ["HEAD latest"]  # the manifest of a digest never changes
        fake.push(OTHER)
        clock.ahead = 122
        assert (await registry.resolve(reference)).reference.endswith(OTHER.digest)

    within(scenario)


def test_a_digest_is_resolved_without_a_request() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        registry = client(fake)
        pinned = f"{fake.address}/acme/macos@{IMAGE.digest}"
        found = await registry.resolve(pinned)
        assert (found.reference, found.bytes) == (pinned, 0)
        assert fake.seen == []
        fake.push(IMAGE)
        assert (await registry.inspect(pinned)).sizes.bytes == IMAGE.bytes
        assert (await registry.resolve(pinned)).bytes == IMAGE.bytes

    within(scenario)


def test_an_invalid_reference_reaches_no_registry() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        for text in ("sequoia", f"{fake.address}/acme/macos@sha256:abc", "https://a/b"):
            with pytest.raises(ImageMissing, match="image '"):
                await client(fake).resolve(text)
        assert fake.seen == []

    within(scenario)


def test_what_was_looked_up_long_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(fake: FakeRegistry) -> None:
        clock = Later()
        registry = client(fake, clock=clock)
        for number in range(5):
            tag = f"{fake.address}/acme/macos:{number}"
            fake.push(tart_image(nvram=str(number).encode()), "acme/macos", str(number))
            await registry.resolve(tag)
        assert len(registry._lookups) == 5
        assert len(registry._sizes) == 3
        clock.ahead = 61
        await registry.resolve(tag)
        assert list(registry._lookups) == [tag]

    monkeypatch.setattr("runyard.vm.oci.registry._KEPT", 3)
    within(scenario)


# ── together ────────────────────────────────────────────────────────────────────────────────────────


def test_many_who_ask_at_once_share_one_lookup() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        registry = client(fake, keep=0)
        reference = fake.push(IMAGE)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(registry.resolve(reference)) for _ in range(20)]
        assert {task.result().reference for task in tasks} == {
            f"{fake.address}/acme/macos@{IMAGE.digest}"
        }
        assert len(fake.seen) == 2

    within(scenario)


def test_many_who_ask_at_once_share_one_failure() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        registry = client(fake)
        reference = f"{fake.address}/acme/none:latest"
        results = await asyncio.gather(
            *(registry.resolve(reference) for _ in range(20)), return_exceptions=True
        )
        assert {type(each) for each in results} == {ImageMissing}
        assert len({id(each) for each in results}) == 20  # each has a traceback of its own
        assert len(fake.seen) == 2
        fake.push(IMAGE, "acme/none")
        assert await registry.resolve(reference)  # a failure is not remembered

    within(scenario)


def test_a_cancelled_lookup_does_not_cancel_those_who_wait_for_it() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        asked = asyncio.Event()
        blocked = asyncio.Event()

        async def slow(request: web.Request) -> web.StreamResponse | None:
            if not asked.is_set():
                asked.set()
                await blocked.wait()
            return None

        fake.override = slow
        registry = client(fake)
        reference = fake.push(IMAGE)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(registry.resolve(reference))
            await asked.wait()
            second = group.create_task(registry.resolve(reference))
            await asyncio.sleep(0)
            first.cancel()
            assert (await second).reference.endswith(IMAGE.digest)
        blocked.set()
        assert first.cancelled()

    within(scenario)


# ── credentials ─────────────────────────────────────────────────────────────────────────────────────


def test_a_public_image_needs_no_look_at_credentials() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        known = Known()
        assert (await client(fake, known).inspect(fake.push(IMAGE))).source is None
        assert known.asked == []
        assert not fake.used(BASIC)

    within(scenario)


def test_basic_credentials_are_sent_when_the_registry_asks_for_them() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        known = Known()
        image = await client(fake, known).inspect(fake.push(IMAGE))
        assert (image.source, image.source_detail) == (Source.DOCKER_CONFIG, "a file")
        assert known.asked == [fake.address]
        assert fake.asked == ["HEAD latest", "HEAD latest", f"GET {IMAGE.digest}"]
        assert [each.authorization for each in fake.seen] == ["", BASIC, BASIC]

    within(scenario, FakeRegistry("basic"))


@pytest.mark.parametrize(
    ("suggested", "asked"),
    [
        ("repository:acme/macos:pull", "repository:acme/macos:pull"),
        ("repository:acme/macos:pull,push,delete", "repository:acme/macos:pull"),
        ("repository:mirror/acme/macos:pull", "repository:mirror/acme/macos:pull"),
        ("registry:catalog:*", "repository:acme/macos:pull"),
        ("", "repository:acme/macos:pull"),
    ],
)
def test_only_the_right_to_pull_is_asked_for(suggested: str, asked: str) -> None:
    async def scenario(fake: FakeRegistry) -> None:
        fake.scope = suggested
        assert (await client(fake, Known()).inspect(fake.push(IMAGE))).source is not None
        [token] = [each for each in fake.seen if each.path == "/token"]
        assert token.query == {"scope": asked, "service": "fake"}

    within(scenario, FakeRegistry("bearer"))


def test_the_password_goes_to_the_token_server_and_the_token_to_the_registry() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async with FakeRegistry("bearer") as tokens:
            fake.realm = f"{tokens.url}/token?account=x"
            await client(fake, Known()).inspect(fake.push(IMAGE))
            assert [each.authorization for each in tokens.seen] == [BASIC]
            assert tokens.seen[0].query["account"] == "x"
            assert [each.authorization for each in fake.seen] == ["", *([f"Bearer {TOKEN}"] * 2)]

    within(scenario, FakeRegistry("bearer"))


def test_a_public_image_behind_a_token_server_needs_no_password() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        fake.anonymous = True
        image = await client(fake).inspect(fake.push(IMAGE))
        assert image.source is None
        assert fake.used(f"Bearer {TOKEN}")

    within(scenario, FakeRegistry("bearer"))


@pytest.mark.parametrize("scheme", ["basic", "bearer"])
def test_a_wrong_password_names_the_source_and_is_asked_once(scheme: str) -> None:
    async def scenario(fake: FakeRegistry) -> None:
        wrong = "wr0ng-p4ss"
        with pytest.raises(Unauthorized) as caught:
            await client(fake, Known(wrong)).resolve(fake.push(IMAGE))
        text = str(caught.value)
        assert "docker-config (a file)" in text
        assert "401" in text
        assert f"{fake.address}/acme/macos:latest" in text
        assert wrong not in text
        assert len(fake.seen) == 2

    within(scenario, FakeRegistry(scheme))


class Locked:
    async def find(self, host: str) -> None:
        raise Unavailable("the Keychain is locked: unlock it")


@pytest.mark.parametrize("scheme", ["basic", "bearer"])
def test_missing_credentials_are_an_error_that_says_what_was_tried(scheme: str) -> None:
    async def scenario(fake: FakeRegistry) -> None:
        with pytest.raises(Unauthorized) as caught:
            await client(fake, Locked()).resolve(fake.push(IMAGE))
        text = str(caught.value)
        assert f"tart login {fake.address}" in text
        assert "the Keychain is locked: unlock it" in text

    within(scenario, FakeRegistry(scheme))


def test_a_right_that_is_missing_is_no_missing_image() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async def denied(request: web.Request) -> web.StreamResponse | None:
            return failure(403, "DENIED") if request.headers.get("Authorization") else None

        fake.override = denied
        with pytest.raises(Unauthorized, match="403"):
            await client(fake, Known()).resolve(fake.push(IMAGE))

    within(scenario, FakeRegistry("basic"))


# ── failures that pass ──────────────────────────────────────────────────────────────────────────────


def test_a_missing_image_has_the_registry_s_code() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        fake.push(IMAGE)
        with pytest.raises(ImageMissing, match=r"404 MANIFEST_UNKNOWN") as caught:
            await client(fake).resolve(f"{fake.address}/acme/macos:typo")
        assert PASSWORD not in str(caught.value)

    within(scenario)


@pytest.mark.parametrize("status", [429, 500, 502, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [("120", 120), ("Thu, 01 Jan 1970 00:05:00 GMT", 200), ("999999999", LONGEST_REST)],
)
def test_a_registry_that_asks_for_a_pause_gets_it(status: int, header: str, seconds: float) -> None:
    class Stopped(Later):
        def now(self) -> float:
            return 100.0

    async def scenario(fake: FakeRegistry) -> None:
        async def busy(request: web.Request) -> web.StreamResponse:
            return failure(status, "TOOMANYREQUESTS", {"Retry-After": header})

        clock = Stopped()
        registry = client(fake, clock=clock)
        reference = fake.push(IMAGE)
        fake.override = busy
        with pytest.raises(Unreachable, match=rf"retry in {seconds:.0f} s"):
            await registry.resolve(reference)
        fake.override = None
        clock.ahead = seconds - 1
        with pytest.raises(Unreachable, match="asked to be left alone"):
            await registry.resolve(f"{fake.address}/acme/other")
        assert len(fake.seen) == 1
        clock.ahead = seconds + 1
        assert await registry.resolve(reference)

    within(scenario)


@pytest.mark.parametrize("header", ["", "soon", "-5", "1e9", "Thu, 01 Jan 1970 00:00:01 GMT"])
def test_a_failure_without_a_pause_may_be_retried(header: str) -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async def busy(request: web.Request) -> web.StreamResponse:
            return failure(503, "UNAVAILABLE", {"Retry-After": header})

        registry = client(fake)
        reference = fake.push(IMAGE)
        fake.override = busy
        with pytest.raises(Unreachable, match="retry later"):
            await registry.resolve(reference)
        fake.override = None
        assert await registry.resolve(reference)

    within(scenario)


def test_a_busy_token_server_is_no_wrong_password() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async def busy(request: web.Request) -> web.StreamResponse | None:
            return failure(429, "TOOMANYREQUESTS") if request.path == "/token" else None

        fake.override = busy
        with pytest.raises(Unreachable, match=r"token server 127\.0\.0\.1 answered 429"):
            await client(fake, Known()).resolve(fake.push(IMAGE))

    within(scenario, FakeRegistry("bearer"))


def test_a_registry_that_is_off_is_unreachable() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        registry, reference = client(fake), fake.push(IMAGE)
        await fake.__aexit__(None, None, None)
        with pytest.raises(Unreachable, match="connection refused"):
            await registry.resolve(reference)

    within(scenario)


def test_a_registry_without_an_answer_is_given_up_in_time() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async def never(request: web.Request) -> web.StreamResponse:
            await asyncio.Event().wait()
            raise AssertionError

        fake.override = never
        with pytest.raises(Unreachable, match=r"no answer within 0\.2 s|i/o timeout"):
            await client(fake, deadline=0.2).resolve(fake.push(IMAGE))

    within(scenario)


def test_the_manifest_of_a_registry_is_asked_for_in_every_form() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        accepted = []

        async def note(request: web.Request) -> web.StreamResponse | None:
            accepted.append(request.headers["Accept"])
            return None

        fake.override = note
        await client(fake).resolve(fake.push(IMAGE))
        for each in accepted:
            assert "application/vnd.oci.image.manifest.v1+json" in each
            assert "application/vnd.docker.distribution.manifest.v2+json" in each

    within(scenario)


def test_a_manifest_s_sizes_may_be_absent() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        for text in ("x", "-1", "1" * 40):
            name = {"org.cirruslabs.tart.uncompressed-disk-size": text}
            image = tart_image(annotations=name)
            assert json.loads(image.manifest)["annotations"].items() >= name.items()
            found = await client(fake).inspect(fake.push(image))
            assert found.sizes.disk_bytes == 0

    within(scenario)
