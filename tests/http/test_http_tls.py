"""A host trusts only its own control plane, and keys are readable by their owner only."""

import asyncio
import ssl
from pathlib import Path

import pytest
from tests.http.peers import answer, carried, scripted, serving, stream

from runyard.http import tls
from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.messages import Request, Response, Stream
from runyard.http.server import CLIENT_CERT_CN, CLIENT_CERT_O

GET = Request(method="GET", path="/")
DAY = 86400.0
NAMES = ("127.0.0.1", "localhost", "::1")


@pytest.fixture(scope="module")
def now() -> float:
    from runyard.clock import RealClock  # noqa: PLC0415 - verification compares with the machine's own clock

    return RealClock().now()


@pytest.fixture(scope="module")
def authority(now: float) -> tls.Pair:
    return tls.make_authority(now=now)


@pytest.fixture
def server_files(tmp_path: Path, authority: tls.Pair, now: float) -> tls.Files:
    return tls.ensure_server(tmp_path, authority, NAMES, now=now)[0]


async def echo(request: Request) -> Response:
    lines = [f"{k}={v}" for k, v in request.headers if k.startswith("x-runyard")]
    return Response(status=200, body="\n".join(lines).encode())


def test_a_request_goes_through_and_nothing_is_left_open(authority, server_files) -> None:
    async def scenario() -> None:
        context = tls.server_context(server_files)
        async with (
            serving(echo, tls=context) as server,
            carried(server.url, tls=tls.client_context(authority.certificate)) as transport,
        ):
            assert server.url.startswith("https://127.0.0.1:")
            for _ in range(3):
                assert (await answer(transport, GET)).status == 200

    asyncio.run(scenario())


def test_a_stream_is_cut_and_closed_over_tls_too(authority, server_files) -> None:
    async def scenario() -> None:
        closed = asyncio.Event()

        class Once:
            sent = False

            def __aiter__(self) -> "Once":
                return self

            async def __anext__(self) -> bytes:
                if self.sent:
                    await asyncio.Event().wait()
                self.sent = True
                return b"1\n"

        async def handler(_: Request) -> Stream:
            return Stream(Once(), on_close=closed.set)

        context = tls.server_context(server_files)
        async with (
            serving(handler, tls=context) as server,
            carried(server.url, tls=tls.client_context(authority.certificate)) as transport,
        ):
            got = await stream(transport, Request(method="GET", path="/", query=(("watch", "1"),)))
            assert await anext(got.__aiter__()) == b"1\n"
            await got.aclose()
            await closed.wait()

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("wrong", ["authority", "name", "expired", "plain server", "public trust"])
def test_a_server_that_cannot_be_trusted_is_never_sent_anything(
    wrong: str, method: str, authority, now: float, tmp_path: Path
) -> None:
    names = ("elsewhere.invalid",) if wrong == "name" else NAMES
    made = now - 400 * DAY if wrong == "expired" else now
    pair = tls.issue_server(authority, names, now=made)
    trusted = tls.make_authority(now=now) if wrong == "authority" else authority
    context = None if wrong == "public trust" else tls.client_context(trusted.certificate)
    received: list[bytes] = []

    async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        received.append(await reader.read(1000) if wrong != "plain server" else b"")

    async def scenario() -> None:
        own = tls.server_context(tls.write_pair(tmp_path, "server", pair))
        own = None if wrong == "plain server" else own
        async with scripted(script, tls=own) as (url, _):
            url = url.replace("http:", "https:")
            async with carried(url, tls=context) as transport:
                with pytest.raises(NotSent):
                    await transport.send(Request(method=method, path="/", body=b"x"), timeout=20)
        assert b"HTTP" not in b"".join(received)

    asyncio.run(scenario())


def test_a_plain_http_client_gets_no_answer_of_a_tls_server(server_files) -> None:
    async def scenario() -> None:
        async with serving(echo, tls=tls.server_context(server_files)) as server:
            url = server.url.replace("https", "http")
            async with carried(url) as transport:
                with pytest.raises(OutcomeUnknown):
                    await transport.send(GET, timeout=20)

    asyncio.run(scenario())


@pytest.mark.parametrize("required", [True, False])
def test_a_client_is_identified_by_its_certificate(
    required: bool, authority, server_files, now: float, tmp_path: Path
) -> None:
    pair = tls.issue_client(authority, "host:mini-1", ("hosts", "macs"), now=now)
    files = tls.write_pair(tmp_path, "client", pair)

    async def scenario() -> None:
        context = tls.server_context(server_files, clients=authority.certificate, required=required)
        client = tls.client_context(authority.certificate, files=files)
        forged = Request(method="GET", path="/", headers=((CLIENT_CERT_CN, "admin"),))
        async with serving(echo, tls=context) as server:
            async with carried(server.url, tls=client) as transport:
                assert (await answer(transport, forged)).body.decode().splitlines() == [
                    f"{CLIENT_CERT_O}=hosts",
                    f"{CLIENT_CERT_O}=macs",
                    f"{CLIENT_CERT_CN}=host:mini-1",
                ]
            bare = tls.client_context(authority.certificate)
            async with carried(server.url, tls=bare) as transport:
                if required:
                    with pytest.raises((NotSent, OutcomeUnknown)):
                        await transport.send(forged, timeout=20)
                else:
                    assert (await answer(transport, forged)).body == b""

    asyncio.run(scenario())


def test_a_client_certificate_of_another_authority_is_refused(
    authority, server_files, now: float, tmp_path: Path
) -> None:
    other_authority = tls.issue_client(tls.make_authority(now=now), "admin", now=now)
    not_a_client = tls.issue_server(authority, ("admin",), now=now)

    async def scenario() -> None:
        context = tls.server_context(server_files, clients=authority.certificate)
        async with serving(echo, tls=context) as server:
            for name, pair in (("other_authority", other_authority), ("server", not_a_client)):
                files = tls.write_pair(tmp_path, name, pair)
                client = tls.client_context(authority.certificate, files=files)
                async with carried(server.url, tls=client) as transport:
                    with pytest.raises((NotSent, OutcomeUnknown)):
                        await transport.send(GET, timeout=20)

    asyncio.run(scenario())


def test_old_versions_of_tls_are_refused(authority, server_files) -> None:
    old = tls.client_context(authority.certificate)
    assert old.minimum_version == ssl.TLSVersion.TLSv1_2
    assert tls.server_context(server_files).minimum_version == ssl.TLSVersion.TLSv1_2


# ── storing ─────────────────────────────────────────────────────────────────────────────────────────


def test_keys_can_be_read_by_their_owner_only(tmp_path: Path, now: float) -> None:
    folder = tmp_path / "tls"
    authority = tls.ensure_authority(folder, now=now)
    tls.ensure_server(folder, authority, NAMES, now=now)
    assert sorted(path.name for path in folder.iterdir()) == [
        "ca.crt",
        "ca.key",
        "server.crt",
        "server.key",
    ]
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in folder.glob("*.key"):
        assert path.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in repr(authority).encode()


def test_valid_certificates_are_not_replaced(tmp_path: Path, now: float) -> None:
    authority = tls.ensure_authority(tmp_path, now=now)
    assert tls.ensure_authority(tmp_path, now=now + DAY) == authority
    files, new = tls.ensure_server(tmp_path, authority, NAMES, now=now)
    assert new
    before = files.certificate.read_bytes()
    assert tls.ensure_server(tmp_path, authority, NAMES[:1], now=now + 200 * DAY) == (files, False)
    assert files.certificate.read_bytes() == before


@pytest.mark.parametrize("defect", ["old", "name", "authority", "damaged", "no-key"])
def test_an_unusable_server_certificate_is_replaced(
    defect: str, tmp_path: Path, now: float
) -> None:
    authority = tls.ensure_authority(tmp_path, now=now)
    files, _ = tls.ensure_server(tmp_path, authority, NAMES, now=now)
    before = files.certificate.read_bytes()
    names = (*NAMES, "mini.local") if defect == "name" else NAMES
    if defect == "authority":
        authority = tls.make_authority(now=now)
    elif defect == "damaged":
        files.certificate.write_bytes(before[:100])
    elif defect == "no-key":
        files.key.unlink()
    later = now + 250 * DAY if defect == "old" else now
    assert tls.ensure_server(tmp_path, authority, names, now=later) == (files, True)
    assert files.certificate.read_bytes() != before
    tls.server_context(files)


def test_certificates_of_a_wrong_clock_are_replaced(tmp_path: Path, now: float) -> None:
    early = tls.ensure_authority(tmp_path, now=now + 10 * DAY)
    tls.ensure_server(tmp_path, early, NAMES, now=now + 10 * DAY)
    healed = tls.ensure_authority(tmp_path, now=now)
    assert healed.key == early.key
    assert not tls.renewal_due(healed.certificate, now=now)
    files, new = tls.ensure_server(tmp_path, healed, NAMES, now=now)
    assert new
    assert not tls.renewal_due(files.certificate.read_bytes(), now=now)


def test_a_renewed_authority_is_still_the_one_that_hosts_trust(tmp_path: Path, now: float) -> None:
    made = now - 3000 * DAY
    old = tls.ensure_authority(tmp_path, now=made)
    renewed = tls.ensure_authority(tmp_path, now=now)
    assert renewed.certificate != old.certificate
    assert renewed.key == old.key
    files, _ = tls.ensure_server(tmp_path, renewed, NAMES, now=now)

    async def scenario() -> None:
        async with serving(echo, tls=tls.server_context(files)) as server:
            for known in (old, renewed):
                client = tls.client_context(known.certificate)
                async with carried(server.url, tls=client) as transport:
                    assert (await answer(transport, GET)).status == 200

    asyncio.run(scenario())


def test_a_renewed_certificate_is_shown_to_the_next_connection(
    authority, now: float, tmp_path: Path
) -> None:
    files = tls.write_pair(
        tmp_path, "server", tls.issue_server(authority, NAMES, now=now - 400 * DAY)
    )

    async def scenario() -> None:
        context = tls.server_context(files)
        client = tls.client_context(authority.certificate)
        async with (
            serving(echo, tls=context) as server,
            carried(server.url, tls=client) as transport,
        ):
            with pytest.raises(NotSent):
                await transport.send(GET, timeout=20)
            assert tls.ensure_server(tmp_path, authority, NAMES, now=now) == (files, True)
            tls.read_again(context, files)
            assert (await answer(transport, GET)).status == 200

    asyncio.run(scenario())


def test_an_interrupted_first_start_is_finished(tmp_path: Path, now: float) -> None:
    authority = tls.ensure_authority(tmp_path, now=now)
    (tmp_path / "ca.crt").unlink()
    again = tls.ensure_authority(tmp_path, now=now)
    assert again.key == authority.key
    assert tls.ensure_authority(tmp_path, now=now) == again


@pytest.mark.parametrize("damage", ["certificate", "key", "another key", "key gone"])
def test_a_damaged_authority_is_not_replaced(damage: str, tmp_path: Path, now: float) -> None:
    tls.ensure_authority(tmp_path, now=now)
    if damage == "certificate":
        (tmp_path / "ca.crt").write_bytes(b"nonsense")
    elif damage == "key":
        (tmp_path / "ca.key").write_bytes(b"nonsense")
    elif damage == "another key":
        (tmp_path / "ca.key").write_bytes(tls.make_authority(now=now).key)
    else:
        (tmp_path / "ca.key").unlink()
    with pytest.raises(tls.TlsError, match="damaged") as caught:
        tls.ensure_authority(tmp_path, now=now)
    assert "restore" in caught.value.fix


def test_unusable_files_are_reported_with_a_fix(tmp_path: Path) -> None:
    files = tls.Files(tmp_path / "a.crt", tmp_path / "a.key")
    with pytest.raises(tls.TlsError, match="cannot be used"):
        tls.server_context(files)
    with pytest.raises(tls.TlsError, match="authority"):
        tls.client_context(b"nonsense")
    with pytest.raises(ValueError, match="name"):
        tls.issue_server(tls.make_authority(now=0.0), (), now=0.0)
