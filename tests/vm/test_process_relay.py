"""Tests which requests a relay passes on, and what a VM's addresses are."""

import contextlib
import socket
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from runyard.http import tls
from runyard.vm.process import relay
from runyard.vm.process.addresses import (
    connects_its_own_way,
    free_subnet,
    ipv4_lack,
    is_local,
    name_server,
    one_of_each,
    own_addresses,
    resolv_conf,
)
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.layout import VmDirectory
from runyard.vm.process.networks import network_order
from runyard.vm.process.relay import Refused, checked, listen, pass_on

RELAY: dict[str, Any] = {
    "allow": [["POST", "/poll"], ["GET", "/job"]],
    "authority": "127.0.0.1:8080",
    "host": "127.0.0.1",
    "port": 8080,
    "tls": False,
}


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, "Host: evil.example", *headers]).encode("latin-1")


def test_a_request_is_written_anew_from_what_was_checked() -> None:
    sent = head(
        "POST /poll?wait=25 HTTP/1.1",
        "authorization: Bearer secret",
        "Content-Length: 2",
        "Cookie: session=1",
        "X-Forwarded-For: 10.0.0.1",
        "Connection: keep-alive",
        "Prefer: wait=25",
    )
    request, length = checked(sent, RELAY)
    assert request.decode().split("\r\n") == [
        "POST /poll?wait=25 HTTP/1.1",
        "Host: 127.0.0.1:8080",
        "authorization: Bearer secret",
        "prefer: wait=25",
        "Content-Length: 2",
        "Connection: close",
        "",
        "",
    ]
    assert length == 2


REFUSED = {
    "another path": (head("POST /api/v1/login-links HTTP/1.1"), 403),
    "another method": (head("GET /poll HTTP/1.1"), 403),
    "a longer path": (head("POST /poll/ HTTP/1.1"), 403),
    "an encoded path": (head("POST /%70oll HTTP/1.1"), 403),
    "a path that climbs": (head("POST /poll/../api HTTP/1.1"), 403),
    "another server": (head("POST http://127.0.0.1:6443/poll HTTP/1.1"), 400),
    "a tunnel": (head("CONNECT 127.0.0.1:6443 HTTP/1.1"), 400),
    "a fragment": (head("POST /poll#x HTTP/1.1"), 400),
    "a blank in the target": (head("POST /poll /api HTTP/1.1"), 400),
    "another version": (head("POST /poll HTTP/2.0"), 400),
    "a body of unknown length": (head("POST /poll HTTP/1.1", "Transfer-Encoding: chunked"), 400),
    "two lengths": (head("POST /poll HTTP/1.1", "Content-Length: 1", "content-length: 2"), 400),
    "a negative length": (head("POST /poll HTTP/1.1", "Content-Length: -1"), 400),
    "a huge length": (head("POST /poll HTTP/1.1", "Content-Length: 99999999999"), 413),
    "a folded header": (head("POST /poll HTTP/1.1", " folded: x"), 400),
    "a header with a newline": (head("POST /poll HTTP/1.1", "prefer: a\nx: y"), 400),
    "no header's name": (head("POST /poll HTTP/1.1", "nothing"), 400),
}


@pytest.mark.parametrize(("sent", "status"), REFUSED.values(), ids=REFUSED)
def test_nothing_else_is_passed_on(sent: bytes, status: int) -> None:
    with pytest.raises(Refused) as refused:
        checked(sent, RELAY)
    assert refused.value.status == status


def exchanged(
    sent: bytes, *, answer: bytes, over: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> tuple[bytes, bytes]:
    """What the server got, and what the guest got, when the guest sends these bytes."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        relay = RELAY | {"port": server.getsockname()[1], "host": host, "tls": over is not None}

        def serve() -> None:
            try:
                link, _ = server.accept()
                link = link if over is None else over.wrap_socket(link, server_side=True)
            except OSError:  # no connection came, or its client refused the certificate
                return
            with link:
                received.append(link.recv(65536))
                link.sendall(answer)

        guest, inner = socket.socketpair()
        with guest, inner:
            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            guest.sendall(sent)
            pass_on(inner, relay)
            inner.shutdown(socket.SHUT_WR)
            got = b"".join(iter(lambda: guest.recv(65536), b""))
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
    return b"".join(received), got


def test_a_second_request_on_a_connection_is_not_passed_on() -> None:
    first = b"POST /poll HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
    answer = b"HTTP/1.1 204 No Content\r\n\r\n"
    received, got = exchanged(first, answer=answer)
    assert received.endswith(b"\r\n\r\n{}") and got == answer
    received, got = exchanged(first + b"POST /api HTTP/1.1\r\n\r\n", answer=answer)
    assert received == b"" and got.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("trusted", "host", "expected"),
    [(True, "localhost", 204), (True, "127.0.0.1", 502), (False, "localhost", 502)],
    ids=["trusted", "another name", "unknown authority"],
)
def test_a_request_over_tls_is_sent_to_a_verified_server_only(
    trusted: bool, host: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request has the poller's token: it must not go to a server that is not the URL's."""
    authority = tls.make_authority(now=time.time())
    pair = tls.issue_server(authority, ["localhost"], now=time.time())
    context = tls.server_context(tls.write_pair(tmp_path, "server", pair))
    other = tls.make_authority(now=time.time())
    known = tmp_path / "known.crt"
    known.write_bytes((authority if trusted else other).certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(known))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    received, got = exchanged(
        b"POST /poll HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n",
        answer=b"HTTP/1.1 204 No Content\r\n\r\n",
        over=context,
        host=host,
    )
    assert got.startswith(f"HTTP/1.1 {expected} ".encode())
    assert (b"Bearer secret" in received) is (expected == 204)


def test_a_relay_goes_on_after_a_thread_could_not_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the VM's limit of processes a request fails; the ones after it must not."""
    start, failures = threading.Thread.start, iter(range(20))  # more than connections at once

    def limited(self: threading.Thread) -> None:
        if next(failures, None) is None:
            start(self)
        else:
            raise RuntimeError("can't start new thread")

    answers = []
    with listen({"folder": str(tmp_path), "name": "dispatch", "user": -1}) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):  # the listener's end
                relay._accept(listener, RELAY)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        monkeypatch.setattr(threading.Thread, "start", limited)
        for _ in range(21):
            with socket.socket(socket.AF_UNIX) as guest:
                guest.settimeout(10)
                guest.connect(str(tmp_path / "dispatch"))
                try:
                    guest.sendall(b"GET /other HTTP/1.1\r\n\r\n")
                    answers.append(guest.recv(99)[:12])
                except (BrokenPipeError, ConnectionResetError):
                    answers.append(b"")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert answers == [*[b""] * 20, b"HTTP/1.1 403"]


def test_a_socket_can_be_deep_below_the_root(tmp_path: Path) -> None:
    """A Unix socket's path has at most 107 bytes; a data directory may be deeper."""
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    for _ in range(2):  # a VM whose start is repeated
        with listen({"folder": str(folder), "name": "dispatch", "user": -1}):
            assert (folder / "dispatch").is_socket()
    assert (folder / "dispatch").stat().st_mode & 0o777 == 0o600


# ── addresses ───────────────────────────────────────────────────────────────────────────────────

FIB_TRIE = """Main:
  +-- 0.0.0.0/0 3 0 4
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
     +-- 192.0.2.0/24 2 0 1
        |-- 192.0.2.0
           /24 link UNICAST
        |-- 192.0.2.7
           /32 host LOCAL
Local:
        |-- 192.0.2.7
           /32 host LOCAL
        |-- 172.17.0.1
           /32 host LOCAL
"""
ROUTE = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
DEFAULT = "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
TAKEN = "eth0\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"


def test_the_hosts_addresses_are_those_without_loopback() -> None:
    assert own_addresses(FIB_TRIE) == ("192.0.2.7", "172.17.0.1")
    assert own_addresses("|-- 127.0.0.1\n/32 host LOCAL\n") == ()
    with pytest.raises(ValueError, match="no address"):
        own_addresses("Main:\n")


# Local routes that no interface's address belongs to: of networks, one with a TOS, one in another table; and a
# transparent proxy's, which leads there for marked packets only.
ANYIP = """        |-- 198.51.100.0
           /24 host LOCAL
           /32 host LOCAL
        |-- 203.0.113.64
           /26 host LOCAL tos=16
Id 100:
     |-- 0.0.0.0
        /0 host LOCAL
     |-- 198.18.0.0
        /15 host LOCAL
"""


def test_networks_that_are_the_hosts_own_are_found_whole() -> None:
    networks = ("198.51.100.0/24", "198.51.100.0", "203.0.113.64/26", "198.18.0.0/15")
    assert own_addresses(FIB_TRIE + ANYIP) == ("192.0.2.7", "172.17.0.1", *networks)
    all_of_them = "Local:\n     |-- 0.0.0.0\n        /0 host LOCAL\n"
    assert own_addresses(all_of_them) == ("0.0.0.0/0",)


def test_a_network_of_the_hosts_own_is_tried_elsewhere_than_at_its_first_address() -> None:
    assert one_of_each(("192.0.2.7", "198.51.100.0/24", "203.0.113.0/31")) == (
        "192.0.2.7",
        "198.51.100.128",
        "203.0.113.1",
    )


def test_a_subnet_never_hides_a_network_of_the_host() -> None:
    assert free_subnet(ROUTE + DEFAULT) == "10.0.2.0/24"
    assert free_subnet(ROUTE + DEFAULT + TAKEN) == "10.213.2.0/24"
    assert free_subnet(ROUTE + DEFAULT, ("192.0.2.7", "10.0.0.0/16")) == "10.213.2.0/24"
    assert name_server("10.213.2.0/24") == "10.213.2.3"


def test_a_guest_resolves_names_as_the_host_does_but_at_its_own_server() -> None:
    host = "# by dhcp\nnameserver 127.0.0.53\nnameserver 192.0.2.1\nsearch a.example b.example\n"
    expected = "nameserver 10.0.2.3\nsearch a.example b.example\n"
    assert resolv_conf(host, "10.0.2.0/24") == expected


IPV6 = f"{'0' * 32} 00 {'0' * 32} 00 fd{'0' * 29}1 00000400 00000003 00000000 00000003 eth0\n"
NO_IPV6 = f"{'0' * 32} 00 {'0' * 32} 00 {'0' * 32} ffffffff 00000001 00000000 00200200 lo\n"
HALF = "tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n"
REJECTING = "*\t00000000\t00000000\t0200\t0\t0\t0\t00000000\t0\t0\t0\n"
BY_ROUTE = "this machine's default route is IPv6, and a VM's own network is IPv4"
BY_NAMES = "all name servers of this machine are IPv6, and a VM's own network is IPv4"
LACKS = {
    "both": (("", DEFAULT, IPV6), ""),
    "IPv4 only": (("", DEFAULT, NO_IPV6), ""),
    "a VPN": (("", TAKEN + HALF, IPV6), ""),
    "neither": (("", TAKEN, NO_IPV6), ""),
    "IPv6 only": (("", TAKEN, NO_IPV6 + IPV6), BY_ROUTE),
    "IPv4 rejected": (("", REJECTING, IPV6), BY_ROUTE),
    "no file": (("", "", ""), ""),
    "names by IPv6": (("nameserver 2001:db8::1\nnameserver fe80::1%eth0\n", DEFAULT, ""), BY_NAMES),
    "names by both": (("nameserver 2001:db8::1\nnameserver 192.0.2.1\n", DEFAULT, ""), ""),
    "no names": (("# nameserver 2001:db8::1\nsearch a.example\n", DEFAULT, ""), ""),
}


@pytest.mark.parametrize(("texts", "expected"), LACKS.values(), ids=LACKS)
def test_what_a_host_has_by_ipv6_alone_its_vms_would_lose(
    texts: tuple[str, str, str], expected: str
) -> None:
    names, route, ipv6_route = texts
    assert ipv4_lack(names=names, route=ROUTE + route, ipv6_route=ipv6_route) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="networks of their own are Linux's")
def test_a_poller_with_its_own_proxy_or_certificates_connects_by_itself(tmp_path: Path) -> None:
    """A relay uses neither; where the server is known to be on this machine, there is no other way."""
    directory = VmDirectory(tmp_path / "vm")
    directory.path.mkdir()

    def relayed(url: str, **env: str) -> list[str]:
        order = network_order(
            directory,
            Isolation(network="own"),
            users=(),
            dispatch_url=url,
            dispatch_direct=connects_its_own_way(env),
        )
        assert order is not None
        return [each["host"] for each in order["relays"]]

    remote, here = "https://runyard.example/poll", "http://127.0.0.1:8080/poll"
    assert relayed(remote) == relayed(remote, HTTPS_PROXY="", NO_PROXY="*") == ["runyard.example"]
    assert relayed("http://[2001:db8::1]:8080/poll") == ["2001:db8::1"]
    for name in ("https_proxy", "HTTPS_PROXY", "ALL_PROXY", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        assert relayed(remote, **{name: "x"}) == []
        assert relayed(here, **{name: "x"}) == ["127.0.0.1"]
    for unusable in ("", "poll", "https:///poll", "http://a.example:x/poll", "http://[a/poll"):
        assert relayed(unusable) == []


LOCAL = {
    "http://127.0.0.1:8080/poll": True,
    "http://127.9.9.9/": True,
    "http://[::1]:8080/": True,
    "http://localhost:8080/": True,
    "http://runner.localhost/": True,
    "https://192.0.2.7/": True,
    "http://MINI-1:8080/": True,
    "http://192.0.2.8/": False,
    "http://198.51.100.77:8080/": True,
    "http://198.51.101.1/": False,
    "http://[2001:db8::1]/": False,
    "https://runyard.example/": False,
    "": False,
}


@pytest.mark.parametrize(("url", "local"), LOCAL.items(), ids=LOCAL)
def test_only_practice_servers_on_this_machine_get_a_relay(url: str, local: bool) -> None:
    assert is_local(url, own=("192.0.2.7", "198.51.100.0/24"), host_name="Mini-1") is local
