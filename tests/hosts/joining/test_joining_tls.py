"""Tests over real TLS: who is trusted before the secret is sent, and what the listener takes."""

import asyncio
import os
import random
import ssl
from pathlib import Path

import pytest
from tests.hosts.joining.joinsupport import MACHINE, NODES, Main, listening

from runyard.hosts.joining import client, enrolling
from runyard.hosts.joining.accounts import revoke
from runyard.hosts.joining.client import JoinFailed, base_url
from runyard.hosts.joining.membership import Joined, MembershipFiles, NotJoined
from runyard.hosts.joining.passing import Answer
from runyard.hosts.joining.renewal import Renewal
from runyard.http.connection_limits import ConnectionLimits, Limits
from runyard.http.messages import Request, Response
from runyard.http.tls import LEAF_DAYS, make_authority, public_key_hash
from runyard.kube.client import Kube
from runyard.kube.connect import connect
from runyard.kube.errors import Unauthorized
from runyard.kube.kinds import NODES as NODE_KIND
from runyard.kube.kubeconfig import find_config
from runyard.wire.joining import AUTHORITY, Credential, JoinToken, is_machine_id

DAY = 86400.0


class Impostor:
    """Another machine that answers at the URL, with an authority to show, and stores what it is sent."""

    def __init__(self, shown: bytes) -> None:
        self.shown = shown
        self.bodies: list[bytes] = []

    async def handle(self, request: Request) -> Response:
        self.bodies.append(request.body)
        shown = self.shown if request.path == AUTHORITY else b""
        return Response(status=200, body=shown)


async def enroll(url: str, token: JoinToken, name: str = "mini-2") -> Joined:
    return await enrolling.join(await enrolling.meet(url, token), token, name=name, machine=MACHINE)


def files_of(folder: Path, joined: Joined) -> MembershipFiles:
    files = MembershipFiles(folder)
    files.write(joined, labels="", driver="auto")
    return files


# ── joining ─────────────────────────────────────────────────────────────────────────────────────────


def test_what_joining_writes_is_a_kubeconfig_that_works_and_is_private(tmp_path: Path) -> None:
    async def test() -> None:
        main = Main()
        await main.prepare()
        async with listening(main, tmp_path / "main") as (url, _):
            files = files_of(tmp_path / "host", await enroll(url, await main.token()))
            modes = {each.name: each.stat().st_mode & 0o777 for each in files.folder.iterdir()}
            assert {name for name, mode in modes.items() if mode != 0o600} == {"authority.crt"}
            assert files.folder.stat().st_mode & 0o777 == 0o700
            assert files.credential() not in files.kubeconfig.read_text()
            found = find_config(str(files.kubeconfig), environ={}, home=tmp_path)
            transport = connect(found, clock=main.clock, environ={})
            body = {"metadata": {"name": "mini-2"}}
            made = await Kube(transport).create(NODE_KIND, body)
            await transport.close()
            assert made["metadata"]["name"] == "mini-2"

    asyncio.run(test())


SHOWN = {  # what an impostor shows, and the code of the refusal
    "its own authority": "authority-wrong",
    "the right authority": "not-reached",  # its certificate is not signed by that one
    "no authority": "not-a-control-plane",
    "the right and its own": "not-a-control-plane",
    "its own and the right": "not-a-control-plane",
    "the right and its own as trusted": "not-reached",  # of another form, which OpenSSL reads, too
    "the right one in words": "not-reached",
}


def shown_by(impostor: bytes, right: bytes) -> dict[str, bytes]:
    trusted = impostor.replace(b" CERTIFICATE-", b" TRUSTED CERTIFICATE-")
    return {
        "its own authority": impostor,
        "the right authority": right,
        "no authority": b"<html>",
        "the right and its own": right + impostor,
        "its own and the right": impostor + right,
        "the right and its own as trusted": right + trusted,
        "the right one in words": b"words\n" + right + b"words\n",
    }


@pytest.mark.parametrize("shows", SHOWN)
def test_an_impostor_is_noticed_before_the_secret_is_sent(shows: str, tmp_path: Path) -> None:
    async def test() -> None:
        real, other = Main(), Main(make_authority("other", now=0.0 + Main().clock.now()))
        await real.prepare()
        token = await real.token()
        shown = shown_by(other.authority.certificate, real.authority.certificate)
        impostor = Impostor(shown[shows])
        async with listening(other, tmp_path, handler=impostor.handle) as (url, _):
            with pytest.raises(JoinFailed) as failed:
                await enroll(url, token)
        assert token.secret.encode() not in b"".join(impostor.bodies)
        assert failed.value.code == SHOWN[shows]
        assert [each.state(0.0) for each in await real.tokens.all()] == ["valid"]

    asyncio.run(test())


def test_an_authority_with_words_around_it_is_stored_without_them(tmp_path: Path) -> None:
    async def test() -> None:
        main = Main()
        await main.prepare()

        async def wordy(request: Request) -> Answer:
            if request.path != AUTHORITY:
                return await main.front.handle(request)
            return Response(status=200, body=b"words\n" + main.authority.certificate)

        async with listening(main, tmp_path / "main", handler=wordy) as (url, _):
            files = files_of(tmp_path / "host", await enroll(url, await main.token()))
        assert (files.folder / "authority.crt").read_bytes() == main.authority.certificate

    asyncio.run(test())


@pytest.mark.parametrize("damage", ["another one too", "another one", "none"])
def test_stored_authorities_that_no_join_wrote_are_not_trusted(damage: str, tmp_path: Path) -> None:
    own, other = (make_authority(name, now=1e9).certificate for name in ("own", "other"))
    credential = Credential(name="mini-2", token="t", expires=1.0)
    joined = Joined(
        url="https://m:1",
        authority=own.decode(),
        pin=public_key_hash(own),
        credential=credential,
    )
    files = files_of(tmp_path, joined)
    assert files.authority() == own.decode()
    content = {"another one too": own + other, "another one": other, "none": b"<html>"}[damage]
    (files.folder / "authority.crt").write_bytes(content)
    with pytest.raises(NotJoined, match="Join again"):
        files.authority()


def test_a_main_machine_of_another_version_is_named_before_the_secret_is_sent(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        main = Main()
        await main.prepare()
        bodies: list[bytes] = []

        async def older(request: Request) -> Answer:
            bodies.append(request.body)
            known = request.path == AUTHORITY
            return await main.front.handle(request) if known else Response(status=404)

        token = await main.token()
        async with listening(main, tmp_path, handler=older) as (url, _):
            with pytest.raises(JoinFailed, match="same version") as failed:
                await enroll(url, token)
        assert failed.value.code == "unexpected-response"
        assert token.secret.encode() not in b"".join(bodies)

    asyncio.run(test())


def test_the_pin_holds_when_the_authority_is_renewed_with_its_key() -> None:
    now = Main().clock.now()
    old = make_authority(now=now)
    renewed = make_authority(now=now + DAY, key=old.key)
    assert old.certificate != renewed.certificate
    assert public_key_hash(old.certificate) == public_key_hash(renewed.certificate)
    assert public_key_hash(make_authority(now=now).certificate) != public_key_hash(old.certificate)


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("https://10.0.0.1:8444", "https://10.0.0.1:8444"),
        ("10.0.0.1:8444", "https://10.0.0.1:8444"),
        ("https://[::1]:8444/", "https://[::1]:8444"),
    ],
)
def test_a_url_may_be_typed_without_its_scheme(typed: str, url: str) -> None:
    assert base_url(typed) == url


@pytest.mark.parametrize(
    "typed",
    [
        *("http://10.0.0.1:8444", "https://10.0.0.1", "https://a:99999", "https://a:1/path", ""),
        *("https://a:1?x=1", "https://me:hush@10.0.0.1:8444", "https://me:hush@10.0.0.1:x"),
    ],
)
def test_a_url_that_cannot_be_the_listener_is_refused_with_its_code(typed: str) -> None:
    with pytest.raises(JoinFailed) as failed:
        base_url(typed)
    assert failed.value.code == "url-invalid" and "hush" not in str(failed.value)


def test_a_machine_that_does_not_answer_is_one_error_with_its_code() -> None:
    with pytest.raises(JoinFailed) as failed:
        asyncio.run(enroll("https://127.0.0.1:1", JoinToken("0" * 10, "0" * 40, "0" * 64)))
    assert failed.value.code == "not-reached"


@pytest.mark.parametrize(
    ("ahead", "words"),
    [(10 * DAY, "is not valid yet"), (-(LEAF_DAYS + 1) * DAY, "has expired")],
    ids=["behind", "ahead"],
)
def test_a_wrong_clock_is_not_reported_as_a_firewall(
    ahead: float, words: str, tmp_path: Path
) -> None:
    async def test() -> None:
        main = Main()
        main.clock.ahead = ahead  # by the clock of the main machine, which dates its certificate
        await main.prepare()
        token = await main.token()
        async with listening(main, tmp_path) as (url, _):
            with pytest.raises(JoinFailed, match=f"{words} by the clock of this machine") as failed:
                await enroll(url, token)
        said = str(failed.value)
        assert failed.value.code == "clock-wrong" and "sntp" in said and "firewall" not in said
        assert [each.state(main.clock.now()) for each in await main.tokens.all()] == ["valid"]

    asyncio.run(test())


async def no_tls(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


def test_why_nothing_answers_is_a_plain_sentence() -> None:
    async def said(url: str) -> str:
        with pytest.raises(JoinFailed) as failed:
            await enroll(url, JoinToken("0" * 10, "0" * 40, "0" * 64))
        assert failed.value.code == "not-reached"
        return str(failed.value)

    async def test() -> None:
        refused = await said("https://127.0.0.1:1")
        assert "https://127.0.0.1:1 cannot be reached: connection refused." in refused
        server = await asyncio.start_server(no_tls, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            without = await said(f"https://127.0.0.1:{port}")
        assert "what answers there does not speak TLS" in without
        assert "ssl" not in without and "Error" not in without

    asyncio.run(test())


# ── renewing ────────────────────────────────────────────────────────────────────────────────────────


def test_the_credential_is_renewed_when_it_is_a_day_old_and_read_without_a_restart(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        main = Main()
        await main.prepare()
        async with listening(main, tmp_path / "main") as (url, _):
            files = files_of(tmp_path / "host", await enroll(url, await main.token()))
            found = find_config(str(files.kubeconfig), environ={}, home=tmp_path)
            transport = connect(found, clock=main.clock, environ={})
            kube, renewal, first = (
                Kube(transport),
                Renewal(files, clock=main.clock),
                files.credential(),
            )
            await kube.create(NODE_KIND, {"metadata": {"name": "mini-2"}})
            assert not await renewal.step()
            main.clock.ahead = 1.01 * DAY
            assert await renewal.step()
            assert files.credential() != first
            os.utime(files.token, (main.clock.now(), main.clock.now()))
            assert not await renewal.step()
            main.clock.ahead = 30.5 * DAY  # the first one has expired
            await kube.get(NODE_KIND, "mini-2")
            await transport.close()

    asyncio.run(test())


def test_a_main_machine_that_was_away_for_weeks_is_asked_again(tmp_path: Path) -> None:
    async def test() -> None:
        main = Main()
        await main.prepare()
        async with listening(main, tmp_path / "main") as (url, _):
            files = files_of(tmp_path / "host", await enroll(url, await main.token()))
            port = int(url.rpartition(":")[2])
        main.clock.ahead = 28 * DAY
        renewal, before = Renewal(files, clock=main.clock), files.credential()
        with pytest.raises(JoinFailed) as failed:
            await renewal.step()
        assert (failed.value.code, files.credential()) == ("not-reached", before)
        async with listening(main, tmp_path / "main", port=port):
            assert await renewal.step()

    asyncio.run(test())


def test_a_removed_host_keeps_its_files_and_says_that_it_was_removed(tmp_path: Path) -> None:
    async def test() -> None:
        main = Main()
        await main.prepare()
        async with listening(main, tmp_path / "main") as (url, _):
            files = files_of(tmp_path / "host", await enroll(url, await main.token()))
            await revoke(main.kube, "mini-2")
            main.clock.ahead = 2 * DAY
            with pytest.raises(JoinFailed) as failed:
                await Renewal(files, clock=main.clock).step()
            assert failed.value.code == "host-credential-revoked"
            found = find_config(str(files.kubeconfig), environ={}, home=tmp_path)
            transport = connect(found, clock=main.clock, environ={})
            with pytest.raises(Unauthorized):
                await Kube(transport).get(NODE_KIND, "mini-2")
            await transport.close()

    asyncio.run(test())


def test_a_machine_that_did_not_join_is_told_how(tmp_path: Path) -> None:
    files = MembershipFiles(tmp_path)
    with pytest.raises(NotJoined):
        files.read()
    with pytest.raises(NotJoined):
        files.credential()


def test_the_identifier_of_a_machine_stays(tmp_path: Path) -> None:
    files = MembershipFiles(tmp_path)
    first = files.machine(random.Random(1))
    assert first == files.machine(random.Random(2))
    assert is_machine_id(first)


@pytest.mark.parametrize("content", ["", "half\n", "0" * 31])
def test_a_damaged_identifier_is_replaced_by_one_that_can_join(
    content: str, tmp_path: Path
) -> None:
    files = MembershipFiles(tmp_path)
    files.machine(random.Random(1))
    (files.folder / "machine").write_text(content)
    assert is_machine_id(files.machine(random.Random(2)))


# ── the listener ────────────────────────────────────────────────────────────────────────────────────


def test_the_certificate_is_renewed_while_the_listener_serves(tmp_path: Path) -> None:
    async def test() -> None:
        main = Main()
        main.clock.ahead = -LEAF_DAYS * DAY * 0.8  # when the listener started
        async with listening(main, tmp_path) as (url, certificate):
            authority, first = main.authority.certificate.decode(), await shown(url)
            assert not certificate.renew(now=main.clock.now())
            main.clock.ahead = 0.0
            assert certificate.renew(now=main.clock.now())
            assert await shown(url) != first
            request = Request(method="GET", path="/healthz")
            transport = client.transport_to(url, authority)
            try:
                assert (await transport.send(request, timeout=10)).status == 200
            finally:
                await transport.close()

    asyncio.run(test())


async def shown(url: str) -> bytes:
    """The certificate that a server shows."""
    host, _, port = url.removeprefix("https://").rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return bytes(found)


def test_one_address_cannot_take_all_connections(tmp_path: Path) -> None:
    async def test() -> None:
        main = Main()
        await main.prepare()
        limits = ConnectionLimits(Limits(all=8, address=2))
        async with listening(main, tmp_path, limits=limits) as (url, _):
            transports = [
                client.transport_to(url, main.authority.certificate.decode()) for _ in range(3)
            ]
            request = Request(method="GET", path=NODES)
            outcomes = await asyncio.gather(
                *(each.send(request, timeout=10) for each in transports), return_exceptions=True
            )
            refused = [each for each in outcomes if isinstance(each, Exception)]
            assert (len(refused), limits.size) == (1, 2)
            for each in transports:
                await each.close()
            for _ in range(1000):
                if not limits.size:
                    break
                await asyncio.sleep(0)
            again = client.transport_to(url, main.authority.certificate.decode())
            assert (await again.send(request, timeout=10)).status == 401
            await again.close()

    asyncio.run(test())


def test_connections_are_counted_by_address_and_in_all() -> None:
    limits = ConnectionLimits(Limits(all=3, address=2))
    assert [limits.enter(each) for each in ("a", "a", "a", "b", "c")] == [
        True,
        True,
        False,
        True,
        False,
    ]
    limits.leave("a")
    assert (limits.enter("c"), limits.size) == (True, 3)
