"""Tests that a registry that lies, floods or redirects gets no secret and does no harm."""

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.tart_images import MANIFEST, digest_of, tart_image
from tests.vm.oci.fake_registry import BASIC, PASSWORD, TOKEN, FakeRegistry, FakeServer
from tests.vm.oci.test_registry import IMAGE, OTHER, Known, client, within

from runyard.clock import RealClock
from runyard.http.tls import Files, issue_server, make_authority
from runyard.vm.contract import DriverFailed, ImageMissing, Unauthorized, Unreachable, VmError
from runyard.vm.oci import fetching
from runyard.vm.oci.challenges import Challenge, challenges, pull_scope
from runyard.vm.oci.credentials import Chain
from runyard.vm.oci.manifest import LARGEST, NotAnImage, sizes
from runyard.vm.oci.reference import Reference, parse
from runyard.vm.oci.registry import Registry, Settings

Answering = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


def redirecting(target: str, status: int = 307) -> Answering:
    async def answer(request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=status, headers={"Location": target})

    return answer


def secrets_in(text: str) -> list[str]:
    return [each for each in (PASSWORD, TOKEN, BASIC, BASIC[6:]) if each in text]


# ── content ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_manifest_with_another_digest_is_refused() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async def swapped(request: web.Request) -> web.StreamResponse | None:
            headers = {"Docker-Content-Digest": IMAGE.digest}
            return web.Response(body=OTHER.manifest, headers=headers)

        fake.override = swapped
        for reference in (fake.push(IMAGE), f"{fake.address}/acme/macos@{IMAGE.digest}"):
            with pytest.raises(DriverFailed, match="another digest"):
                await client(fake).inspect(reference)

    within(scenario)


def test_a_header_that_contradicts_the_manifest_is_refused() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async def lying(request: web.Request) -> web.StreamResponse | None:
            if request.method == "HEAD":
                return web.Response(status=405)
            headers = {"Docker-Content-Digest": OTHER.digest}
            return web.Response(body=IMAGE.manifest, headers=headers)

        fake.override = lying
        with pytest.raises(DriverFailed, match="another digest"):
            await client(fake).inspect(fake.push(IMAGE))

    within(scenario)


def test_an_endless_manifest_is_not_read_to_the_end() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        sent = 0

        async def endless(request: web.Request) -> web.StreamResponse | None:
            nonlocal sent
            stream = web.StreamResponse()
            await stream.prepare(request)
            while request.method == "GET" and sent < 20 * LARGEST:
                await stream.write(b" " * (1 << 20))
                sent += 1 << 20
            return stream

        fake.override = endless
        with pytest.raises(DriverFailed, match="larger than 4096 KiB"):
            await client(fake).inspect(fake.push(IMAGE))
        assert sent < 5 * LARGEST

    within(scenario)


def test_an_endless_token_is_not_read_to_the_end() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async def large(request: web.Request) -> web.StreamResponse | None:
            return web.Response(body=b" " * (1 << 20)) if request.path == "/token" else None

        fake.override = large
        with pytest.raises(DriverFailed, match="larger than 256 KiB"):
            await client(fake, Known()).inspect(fake.push(IMAGE))

    within(scenario, FakeRegistry("bearer"))


LAYER = {"mediaType": "application/vnd.cirruslabs.tart.disk.v2", "size": 1}


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        ({"schemaVersion": 2, "layers": 3}, "cannot be read"),
        ({"schemaVersion": 2, "layers": [LAYER | {"size": -1}]}, "cannot be read"),
        ({"schemaVersion": 2, "layers": [LAYER | {"size": 1 << 60}]}, "cannot be read"),
        ({"schemaVersion": 2, "layers": []}, "no layers"),
        ({"schemaVersion": 1, "layers": [LAYER]}, "no layers"),
        ({"schemaVersion": 2}, "no layers"),
        ({"schemaVersion": 2, "manifests": []}, "several platforms"),
        (
            {"mediaType": "application/vnd.oci.image.index.v1+json", "layers": [LAYER]},
            "several platforms",
        ),
    ],
)
def test_what_is_no_vm_image_is_not_pulled(content: object, cause: str) -> None:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    with pytest.raises(NotAnImage, match=cause):
        sizes(body)

    async def scenario(fake: FakeRegistry) -> None:
        async def other(request: web.Request) -> web.StreamResponse | None:
            headers = {"Docker-Content-Digest": digest_of(body), "Content-Type": MANIFEST}
            return web.Response(body=body, headers=headers)

        fake.override = other
        with pytest.raises(ImageMissing, match="tart push"):
            await client(fake).inspect(fake.push(IMAGE))

    within(scenario)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_manifest_or_an_error(content: bytes) -> None:
    with pytest.raises(NotAnImage):
        sizes(content)


# ── redirects ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_credentials_do_not_follow_a_redirect_to_another_server(status: int) -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async with FakeRegistry() as mirror:
            mirror.push(IMAGE)

            async def moved(request: web.Request) -> web.StreamResponse | None:
                if not request.headers.get("Authorization"):
                    return None
                target = f"{mirror.url}{request.path}"
                return web.Response(status=status, headers={"Location": target})

            fake.override = moved
            image = await client(fake, Known()).inspect(fake.push(IMAGE))
            assert image.reference.digest == IMAGE.digest
            assert fake.used(BASIC)
            assert {each.authorization for each in mirror.seen} == {""}

    within(scenario, FakeRegistry("basic"))


def test_without_the_check_of_the_origin_they_would_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_same_origin", lambda one, other: True)
    with pytest.raises(AssertionError, match="Basic"):
        test_credentials_do_not_follow_a_redirect_to_another_server(307)


def test_credentials_follow_a_redirect_on_the_same_server() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async def moved(request: web.Request) -> web.StreamResponse | None:
            if not request.path.startswith("/v2/old/"):
                return None
            return web.Response(
                status=307, headers={"Location": request.path.replace("old", "acme")}
            )

        fake.push(IMAGE)
        fake.override = moved
        assert await client(fake, Known()).inspect(f"{fake.address}/old/macos")

    within(scenario, FakeRegistry("basic"))


def test_a_server_behind_a_redirect_gets_no_credentials_by_asking() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async with FakeRegistry("basic") as other:
            other.push(IMAGE)

            async def moved(request: web.Request) -> web.StreamResponse | None:
                location = f"{other.url}{request.path}"
                return web.Response(status=307, headers={"Location": location})

            fake.override = moved
            known = Known()
            with pytest.raises(Unauthorized):
                await client(fake, known).inspect(fake.push(IMAGE))
            assert known.asked == []
            assert not other.used(BASIC)

    within(scenario)


def test_redirects_in_a_circle_end() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        fake.override = redirecting("?again")
        with pytest.raises(DriverFailed, match="redirects more than 5 times"):
            await client(fake).inspect(fake.push(IMAGE))
        assert len(fake.seen) == 6

    within(scenario)


@pytest.mark.parametrize(
    "target", ["", "file:///etc/passwd", "ftp://x/", "http://", "http://x:99999/", "http://[/"]
)
def test_a_redirect_to_no_server_is_refused(target: str) -> None:
    async def scenario(fake: FakeRegistry) -> None:
        fake.override = redirecting(target)
        with pytest.raises(DriverFailed, match="redirects"):
            await client(fake).inspect(fake.push(IMAGE))

    within(scenario)


# ── token servers ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("realm", ["nonsense", "file:///token", "http://", "http://a b/", "//x/"])
def test_a_token_server_that_is_none_is_refused(realm: str) -> None:
    async def scenario(fake: FakeRegistry) -> None:
        fake.realm = realm
        with pytest.raises(DriverFailed, match="no valid token server"):
            await client(fake, Known()).inspect(fake.push(IMAGE))

    within(scenario, FakeRegistry("bearer"))


@pytest.mark.parametrize(
    "answer", ["", "{}", "[]", '{"token": 3}', '{"token": ""}', '{"token": "a\\r\\nX: y"}']
)
def test_a_token_that_is_none_is_refused(answer: str) -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async def odd(request: web.Request) -> web.StreamResponse | None:
            return web.Response(text=answer) if request.path == "/token" else None

        fake.override = odd
        with pytest.raises(DriverFailed, match="something else than a token"):
            await client(fake, Known()).inspect(fake.push(IMAGE))
        assert not any("X: y" in each.authorization for each in fake.seen)

    within(scenario, FakeRegistry("bearer"))


def test_a_token_server_that_redirects_takes_the_password_nowhere() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async with FakeServer() as other:

            async def moved(request: web.Request) -> web.StreamResponse | None:
                if request.path != "/token":
                    return None
                return web.Response(status=307, headers={"Location": f"{other.url}/token"})

            fake.override = moved
            with pytest.raises(VmError):
                await client(fake, Known()).inspect(fake.push(IMAGE))
            assert other.seen == []

    within(scenario, FakeRegistry("bearer"))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", ()),
        ("Basic", (Challenge("basic", {}),)),
        ('Basic realm="a, b"', (Challenge("basic", {"realm": "a, b"}),)),
        ('BEARER Realm="x",Service=y', (Challenge("bearer", {"realm": "x", "service": "y"}),)),
        (r'Bearer realm="a\"b"', (Challenge("bearer", {"realm": 'a"b'}),)),
        (
            'Basic realm="one", Bearer realm="two",scope="s"',
            (
                Challenge("basic", {"realm": "one"}),
                Challenge("bearer", {"realm": "two", "scope": "s"}),
            ),
        ),
        ('Bearer realm="x",realm="y"', (Challenge("bearer", {"realm": "x"}),)),
        ('="x"', ()),
    ],
)
def test_a_challenge_is_read_with_commas_quotes_and_neighbours(
    header: str, expected: tuple[Challenge, ...]
) -> None:
    assert challenges([header]) == expected


@given(st.text(alphabet='Bearlm=",\\ \tx', max_size=60))
def test_any_header_is_read(header: str) -> None:
    for each in challenges([header]):
        assert each.scheme == each.scheme.lower()


@pytest.mark.parametrize("piece", ['a="', "a=", 'a="\\', "a ", "a,", "a= ", 'a="b",', "<{}>=b,"])
def test_a_long_header_costs_no_more_than_its_beginning(piece: str) -> None:
    begin = "Bearer " + "".join(piece.replace("<{}>", f"p{number}") for number in range(3000))
    longer = begin + piece * 100_000
    used = time.process_time()
    found = challenges([longer])
    assert time.process_time() - used < 1.0, "of the processor; a millisecond is usual"
    assert found[0].scheme == "bearer"
    assert found == challenges([longer[:8192]]), "the rest is not read"


@given(st.text(max_size=40))
def test_a_scope_never_asks_for_more_than_to_pull(suggested: str) -> None:
    for each in (suggested, f"repository:{suggested}:*"):
        assert pull_scope(each, "acme/macos").endswith(":pull")
        assert " " not in pull_scope(each, "acme/macos")


@pytest.mark.parametrize("header", [None, "", "Negotiate", 'Digest realm="x"'])
def test_an_unknown_way_to_ask_is_named(header: str | None) -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async def odd(request: web.Request) -> web.StreamResponse | None:
            return web.Response(
                status=401, headers={} if header is None else {"WWW-Authenticate": header}
            )

        fake.override = odd
        known = Known()
        with pytest.raises(DriverFailed, match="neither by 'Bearer' nor by 'Basic'"):
            await client(fake, known).inspect(fake.push(IMAGE))
        assert known.asked == []

    within(scenario)


# ── what is shown ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 418, 429, 500, 503])
@pytest.mark.parametrize("scheme", ["basic", "bearer"])
def test_no_error_repeats_what_a_registry_wrote(status: int, scheme: str) -> None:
    async def scenario(fake: FakeRegistry) -> None:
        async def echo(request: web.Request) -> web.StreamResponse | None:
            authorization = request.headers.get("Authorization", "")
            if not authorization or request.path == "/token":
                return None
            errors = [{"code": authorization, "message": authorization}]
            headers = {"WWW-Authenticate": authorization, "Retry-After": authorization}
            return web.json_response({"errors": errors}, status=status, headers=headers)

        fake.override = echo
        with pytest.raises(VmError) as caught:
            await client(fake, Known()).inspect(fake.push(IMAGE))
        error: BaseException | None = caught.value
        while error is not None:
            assert secrets_in(str(error)) == []
            error = error.__cause__ or error.__context__

    within(scenario, FakeRegistry(scheme))


@contextmanager
def speaking(answer: bytes) -> Iterator[str]:
    """A server that answers every connection with these bytes and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nBasic c2VjcmV0\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ncontent-length: Basic c2VjcmV0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * (1 << 20),
    ],
    ids=["nothing", "ssh", "chunks", "cut", "length", "headers"],
)
def test_what_is_no_registry_is_unreachable_and_not_quoted(answer: bytes) -> None:
    with speaking(answer) as address:
        registry = Registry(Chain(), RealClock(), Settings(insecure=frozenset({address})))
        with pytest.raises(Unreachable) as caught:
            asyncio.run(registry.inspect(f"{address}/acme/macos"))
    assert "c2VjcmV0" not in str(caught.value)


# ── TLS ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts for a server on loopback and for a client that trusts it."""
    now = time.time()
    authority = make_authority("tests", now=now)
    pair = issue_server(authority, ["127.0.0.1"], now=now)
    files = Files(tmp_path / "certificate.pem", tmp_path / "key.pem")
    files.certificate.write_bytes(pair.certificate)
    files.key.write_bytes(pair.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key)
    return server, ssl.create_default_context(cadata=authority.certificate.decode())


def test_a_registry_is_asked_over_tls(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server, trusting = tls

    async def scenario(fake: FakeRegistry) -> None:
        made = []

        def context() -> ssl.SSLContext:
            made.append(1)
            return trusting

        fake.realm = f"https://{fake.address}/token"
        registry = Registry(Chain(Known()), RealClock(), tls=context)
        image = await registry.inspect(fake.push(IMAGE))
        assert image.reference.digest == IMAGE.digest
        assert len(made) == 1

    within(scenario, FakeRegistry("bearer", tls=server))


def test_a_certificate_of_an_unknown_authority_is_refused(
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    async def scenario(fake: FakeRegistry) -> None:
        known = Known()
        with pytest.raises(Unreachable, match="failed to verify certificate"):
            await Registry(Chain(known), RealClock()).inspect(fake.push(IMAGE))
        assert fake.seen == []
        assert known.asked == []

    within(scenario, FakeRegistry("basic", tls=tls[0]))


def test_a_plain_registry_is_not_asked_unless_it_is_declared_insecure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Reference, "on_loopback", False)  # tests open no other connections

    async def scenario(fake: FakeRegistry) -> None:
        with pytest.raises(Unreachable, match="declare it insecure"):
            await Registry(Chain(Known()), RealClock()).inspect(fake.push(IMAGE))
        others = Settings(insecure=frozenset({"127.0.0.1", "127.0.0.1:1"}))
        with pytest.raises(Unreachable):
            await Registry(Chain(Known()), RealClock(), others).inspect(fake.push(IMAGE))
        assert fake.seen == []

    within(scenario, FakeRegistry("basic"))


def test_a_registry_on_loopback_without_tls_needs_no_declaration() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        registry = Registry(Chain(Known()), RealClock())
        image = await registry.inspect(fake.push(IMAGE))
        assert image.reference.digest == IMAGE.digest and image.insecure
        assert (await registry.download(str(image.reference))).insecure

    within(scenario, FakeRegistry("basic"))


def test_credentials_of_a_registry_on_loopback_go_to_no_other_host_without_tls() -> None:
    async def scenario(fake: FakeRegistry) -> None:
        fake.realm = "http://tokens.invalid/token"
        with pytest.raises(Unreachable, match="declare it insecure"):
            await Registry(Chain(Known()), RealClock()).inspect(fake.push(IMAGE))
        assert [each.authorization for each in fake.seen] == [""]

    within(scenario, FakeRegistry("bearer"))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("127.1.2.3", True),
        ("127.0.0.1.example.org", False),
        ("localhost.example.org", False),
        ("registry.example.org:5000", False),
    ],
)
def test_only_a_registry_on_loopback_may_be_asked_without_tls(host: str, expected: bool) -> None:
    assert parse(f"{host}/a/b").on_loopback is expected


def test_a_secure_registry_sends_no_request_to_a_plain_server(
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server, trusting = tls

    async def scenario(fake: FakeRegistry) -> None:
        async with FakeRegistry("bearer") as plain:
            plain.push(IMAGE)
            reference = fake.push(IMAGE)
            fake.realm = f"{plain.url}/token"
            registry = Registry(Chain(Known()), RealClock(), tls=lambda: trusting)
            with pytest.raises(DriverFailed, match="a token server without TLS"):
                await registry.inspect(reference)
            fake.override = redirecting(f"{plain.url}/v2/acme/macos/manifests/latest")
            with pytest.raises(DriverFailed, match="an address without TLS"):
                await registry.inspect(reference)
            assert plain.seen == []

    within(scenario, FakeRegistry("bearer", tls=server))


def test_a_large_image_has_a_manifest_within_the_bound() -> None:
    """500 GB in chunks of 512 MiB: the bound is far away."""
    image = tart_image(disk=b"x" * 1000, chunk=1)
    assert len(image.manifest) < LARGEST / 4
