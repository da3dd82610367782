"""Tests that a VM with a network of its own gets out, reaches nothing of this machine, and leaves no helper behind."""

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec
import pytest
from tests.conftest import Absent
from tests.vm.guest_harness import JIT, TOKEN, Server
from tests.vm.process_harness import ProcessHarness, Way, home, networked, run_on

from runyard.vm.contract import DriverFailed
from runyard.vm.process import networks, probe
from runyard.vm.process.addresses import one_of_each, own_addresses
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.limits import Limits
from runyard.vm.shim.processes import descendants, marked, table

BOXED: tuple[Way, ...] = ("bwrap-users", "bwrap")
_LINK = (
    f"198.18.{os.getpid() >> 6 & 255}"  # a link of this process alone: tests run at the same time
)
_HOST = 4 * (os.getpid() & 63)
OUTSIDE, BESIDE = (
    f"{_LINK}.{_HOST + 1}",
    f"{_LINK}.{_HOST + 2}",
)  # another machine, and our side of its link
NETWORK = "198.51.100"  # only in a namespace of a test's own
_replace = msgspec.structs.replace


def found(way: Way, absent: Absent) -> Isolation:
    held = networked(way)
    if isinstance(held, str):
        absent(f"networks of their own for VMs as processes, {way}", f"{held}; see tools/system.sh")
    return held


class Listener:
    """A server on this machine that accepts connections and counts them."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.accepted = 0
        self._socket = socket.create_server((address, 0))
        self.address, self.port = self._socket.getsockname()[:2]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            self.accepted += 1
            with client:
                client.sendall(b"hello\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


# A guest that tries to connect to each of TARGETS, then writes which it reached.
CALLER = """#!/bin/sh
exec "$RUNYARD_PYTHON" -I -S - <<'END'
import os, socket
with open(os.environ["RUNYARD_ENV_DIR"] + "/tuist.env") as file:
    env = dict(line.rstrip().split("=", 1) for line in file)
with open(os.environ["RUNYARD_STATUS_DIR"] + "/reached", "w") as file:
    for target in env["TARGETS"].split():
        host, port = target.rsplit(":", 1)
        try:
            with socket.create_connection((host, int(port)), timeout=5) as link:
                file.write(target + " " + link.recv(9).decode())
        except OSError:
            pass
END
"""


async def reached(harness: ProcessHarness, *targets: str, name: str = "caller") -> list[str]:
    """Which of the targets a guest can connect to."""
    directory = await harness.create(name, TARGETS=" ".join(targets))
    await harness.driver.start(name)
    await harness.exited(name)
    lines = (directory.status / "reached").read_text().splitlines()
    return [line.split()[0] for line in lines]


def own() -> tuple[str, ...]:
    return one_of_each(own_addresses(Path("/proc/net/fib_trie").read_text()))


@contextlib.contextmanager
def a_machine_of_its_own(absent: Absent) -> Iterator[None]:
    """Moves this thread into a new network namespace: as a machine that has nothing but loopback."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        absent("ip, as root", "apt-get install iproute2, and run the tests as root too")
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/self/ns/net").open() as before:
        assert libc.unshare(0x40000000) == 0, os.strerror(ctypes.get_errno())  # CLONE_NEWNET
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            assert libc.setns(before.fileno(), 0) == 0, os.strerror(ctypes.get_errno())


# ── what a job reaches ──────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("way", BOXED)
def test_a_guest_cannot_reach_this_machine(way: Way, absent: Absent) -> None:
    held = found(way, absent)
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(Listener(each)) for each in ("127.0.0.1", *own())]
        targets = [f"{each.address}:{each.port}" for each in listeners]
        at_gateway = [f"10.0.2.{number}:{listeners[0].port}" for number in (2, 3, 100)]

        async def closed(harness: ProcessHarness) -> None:
            harness.put_image(CALLER)
            assert await reached(harness, *targets, *at_gateway) == []

        async def open_(harness: ProcessHarness) -> None:
            harness.put_image(CALLER)
            assert await reached(harness, *targets) == targets

        run_on(held, closed)
        assert [each.accepted for each in listeners] == [0] * len(listeners)
        run_on(_replace(held, network="host"), open_)


@pytest.mark.slow
@pytest.mark.parametrize("way", BOXED)
def test_a_guest_cannot_reach_this_machine_at_an_address_that_a_route_makes_its_own(
    way: Way, absent: Absent
) -> None:
    held = found(way, absent)
    with a_machine_of_its_own(absent):
        subprocess.run(["ip", "route", "add", "local", f"{NETWORK}.0/24", "dev", "lo"], check=True)
        with Listener("0.0.0.0") as listener:
            targets = [f"{NETWORK}.{number}:{listener.port}" for number in (0, 1, 77, 255)]

            async def scenario(harness: ProcessHarness, *, expected: list[str]) -> None:
                harness.put_image(CALLER)
                assert await reached(harness, *targets) == expected

            run_on(held, lambda harness: scenario(harness, expected=[]))
            run_on(
                _replace(held, network="host"), lambda harness: scenario(harness, expected=targets)
            )


# A guest that sends to loopback through its way out. No reply can come back, so it does not know what arrived; when the
# gateway has responded, everything before that was handled.
SENDER = """#!/bin/sh
exec "$RUNYARD_PYTHON" -I -S - <<'END'
import errno, os, socket, struct
with open(os.environ["RUNYARD_ENV_DIR"] + "/tuist.env") as file:
    env = dict(line.rstrip().split("=", 1) for line in file)
to_device = (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"tap0")
to_index = (socket.IPPROTO_IP, 50, struct.pack("!I", socket.if_nametoindex("tap0")))  # IP_UNICAST_IF
ways = [("TCP", socket.SOCK_STREAM, to_device), ("UDP", socket.SOCK_DGRAM, to_device)]
ways += [("UDP", socket.SOCK_DGRAM, to_index)]
held = []
for name, kind, option in ways:
    link = socket.socket(socket.AF_INET, kind)
    held.append(link)
    link.setblocking(False)
    link.setsockopt(*option)
    try:
        link.connect((env["ADDRESS"], int(env[name])))
        link.send(b"hello")
    except OSError:
        pass
with open("/proc/net/route") as file:
    routes = [line.split() for line in file.readlines()[1:]]
gate = [socket.inet_ntoa(struct.pack("<L", int(each[2], 16))) for each in routes if each[1] == "00000000"][0]
with socket.socket() as link, open(os.environ["RUNYARD_STATUS_DIR"] + "/gate", "w") as file:
    link.settimeout(30)
    file.write(errno.errorcode.get(link.connect_ex((gate, int(env["TCP"]))), "connected"))
END
"""


@pytest.mark.parametrize("way", BOXED)
@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9"])
def test_a_socket_bound_to_the_way_out_does_not_reach_the_hosts_loopback(
    way: Way, address: str, absent: Absent
) -> None:
    """The local route is another device's: through the gateway, slirp4netns would connect to the host's server."""
    held = found(way, absent)
    with Listener(address) as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind((address, 0))
        udp.setblocking(False)
        env = {"ADDRESS": address, "TCP": str(tcp.port), "UDP": str(udp.getsockname()[1])}

        async def scenario(harness: ProcessHarness) -> None:
            harness.put_image(SENDER)
            directory = await harness.create("vm", **env)
            await harness.driver.start("vm")
            await harness.exited("vm")
            assert (directory.status / "gate").read_text() in ("ENETUNREACH", "ECONNREFUSED")

        run_on(held, scenario)
        with pytest.raises(BlockingIOError):
            udp.recv(99)
    assert tcp.accepted == 0


LISTENING = """#!/bin/sh
exec "$RUNYARD_PYTHON" -I -S - <<'END'
import os, socket
server = socket.create_server(("0.0.0.0", 0))
with open(os.environ["RUNYARD_STATUS_DIR"] + "/up", "w") as file:
    file.write(f"{server.getsockname()[1]}\\n")
while True:
    server.accept()[0].sendall(b"hello\\n")
END
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", BOXED)
def test_a_guest_cannot_reach_another_vm_and_the_host_cannot_reach_a_guest(
    way: Way, absent: Absent
) -> None:
    async def scenario(harness: ProcessHarness, *, expected: bool) -> None:
        harness.put_image(
            '#!/bin/sh\ncd "$RUNYARD_VM_DIR/image" || exit 1\n'
            'grep -q TARGETS "$RUNYARD_ENV_DIR/tuist.env" && exec /bin/sh ./caller.sh\n'
            "exec /bin/sh ./listening.sh\n",
            **{"caller.sh": CALLER, "listening.sh": LISTENING},
        )
        await harness.create("listening")
        up = harness.pipe("listening", "up")
        await harness.driver.start("listening")
        port = int(await up.line())
        targets = [f"127.0.0.1:{port}", f"10.0.2.100:{port}", f"10.0.2.2:{port}"]
        assert (await reached(harness, *targets) == targets[:1]) is expected
        assert (await asyncio.to_thread(connects, port)) is expected

    def connects(port: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            return False
        return True

    held = found(way, absent)
    run_on(held, lambda harness: scenario(harness, expected=False))
    run_on(_replace(held, network="host"), lambda harness: scenario(harness, expected=True))


@contextlib.contextmanager
def outside(absent: Absent) -> Iterator[int]:
    """Another machine, as a network namespace at the other end of a link; yields the port of its server."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        absent("ip, as root", "apt-get install iproute2, and run the tests as root too")
    name = f"runyard-test-{os.getpid()}"
    near, far = f"ryn{os.getpid()}", f"ryf{os.getpid()}"

    def ip(*words: str) -> None:
        done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"

    server = (
        "import socket\ns = socket.create_server(('0.0.0.0', 0))\nprint(s.getsockname()[1], flush=True)\n"
        "while True:\n    s.accept()[0].sendall(b'hello\\n')\n"
    )
    ip("netns", "add", name)
    try:
        ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        ip("address", "add", f"{BESIDE}/30", "dev", near)
        ip("link", "set", near, "up")
        ip("-n", name, "address", "add", f"{OUTSIDE}/30", "dev", far)
        ip("-n", name, "link", "set", far, "up")
        argv = ["ip", "netns", "exec", name, "python3", "-c", server]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                yield int(process.stdout.readline())
            finally:
                process.kill()
    finally:
        # Deletes both ends now; with the namespace alone they would stay for a moment, under names that are used again.
        subprocess.run(["ip", "link", "delete", near], check=False, capture_output=True)
        ip("netns", "delete", name)


@pytest.mark.slow
@pytest.mark.parametrize("way", BOXED)
def test_a_guest_reaches_another_machine_but_not_our_side_of_the_link(
    way: Way, absent: Absent
) -> None:
    held = found(way, absent)
    with outside(absent) as port, Listener(BESIDE) as beside:
        targets = [f"{OUTSIDE}:{port}", f"{BESIDE}:{beside.port}"]

        async def scenario(harness: ProcessHarness) -> None:
            harness.put_image(CALLER)
            assert await reached(harness, *targets) == targets[:1]

        run_on(held, scenario)


@pytest.mark.parametrize("way", BOXED)
def test_names_are_resolved_where_the_guest_can_reach(way: Way, absent: Absent) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image('#!/bin/sh\ncp /etc/resolv.conf "$RUNYARD_STATUS_DIR/names"\n')
        directory = await harness.create("vm")
        await harness.driver.start("vm")
        await harness.exited("vm")
        first = (directory.status / "names").read_text().splitlines()[0]
        order = json.loads((directory.state / "order.json").read_bytes())
        assert first == f"nameserver {order['network']['subnet'].rpartition('.')[0]}.3"

    run_on(found(way, absent), scenario)


# ── the poller's way ────────────────────────────────────────────────────────────────────────────

# A job that asks through the poller's socket, if it can, and directly.
PRYING = r"""#!/bin/sh
"$RUNYARD_PYTHON" -I -S - <<'END'
import os, socket
def ask(kind, address, method, path):
    try:
        with socket.socket(kind) as link:
            link.settimeout(5)
            link.connect(address)
            link.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
            return link.recv(99).decode().split()[1]
    except OSError:
        return "none"
through = os.environ["RUNYARD_DISPATCH_SOCKET"]
path = "/" + os.environ["TUIST_RUNNER_DISPATCH_URL"].split("/", 3)[3]
port = int(os.environ["TUIST_RUNNER_DISPATCH_URL"].split(":")[2].split("/")[0])
with open("asked", "w") as file:
    print(ask(socket.AF_UNIX, through, "POST", path), file=file)
    print(ask(socket.AF_UNIX, through, "GET", path), file=file)
    print(ask(socket.AF_UNIX, through, "POST", "/api/v1/login-links"), file=file)
    print(ask(socket.AF_INET, ("127.0.0.1", port), "POST", path), file=file)
END
exit 5
"""


@pytest.mark.slow
@pytest.mark.parametrize("client", ["curl", "python"])
@pytest.mark.parametrize("way", BOXED)
def test_the_poller_polls_through_its_socket_and_the_job_gets_no_further(
    way: Way, client: str, absent: Absent
) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_guest_image(PRYING)
        with Server([(204, b""), JIT]) as server:
            env = {"RUNYARD_POLL_PAUSE": "0", "RUNYARD_JIT_FILE": "1"}
            env |= {"RUNYARD_NO_CURL": "1"} if client == "python" else {}
            directory = await harness.create(
                "vm", token=TOKEN, TUIST_RUNNER_DISPATCH_URL=server.url, **env
            )
            await harness.driver.start("vm")
            ended = await harness.exited("vm")
            assert ended.exit_code == 5, ended
            asked = (directory.work / "runner" / "asked").read_text().split()
            # Where poller and job are one user, the socket is open to both. It passes on one request: with a token.
            polled, *others = asked
            assert polled == ("none" if way == "bwrap-users" else "200")
            assert others == (["none"] * 3 if way == "bwrap-users" else ["403", "403", "none"])
            requests = server.requests[:2]
        assert all(each[2].get("authorization") == f"Bearer {TOKEN}" for each in requests)
        for file in (directory.state / "order.json", directory.state / "shim.log"):
            assert TOKEN not in file.read_text()

    run_on(found(way, absent), scenario)


def test_a_server_on_this_machine_gets_polls_by_a_name_that_does_not_say_so(absent: Absent) -> None:
    """As 127.1, a public name or a name with a domain can lead back to this machine; only its resolver knows."""

    async def scenario(harness: ProcessHarness) -> None:
        harness.put_guest_image("#!/bin/sh\nexit 5\n")
        with Server([JIT]) as server:
            url = server.url.replace("127.0.0.1", "127.1")
            env = {"RUNYARD_POLL_PAUSE": "0", "RUNYARD_JIT_FILE": "1", "RUNYARD_POLL_TIMEOUT": "5"}
            await harness.create("vm", token=TOKEN, TUIST_RUNNER_DISPATCH_URL=url, **env)
            await harness.driver.start("vm")
            assert await asyncio.to_thread(server.arrived.wait, 30), "no poll arrived"
            assert (await harness.exited("vm")).exit_code == 5
        assert server.requests[0][2]["authorization"] == f"Bearer {TOKEN}"

    run_on(found("bwrap-users", absent), scenario)


def test_a_poller_that_gives_up_ends_its_request_at_the_server(absent: Absent) -> None:
    """The server offers no job to a poller that is gone; it must notice that through the relay."""

    async def scenario(harness: ProcessHarness) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"http://127.0.0.1:{server.getsockname()[1]}/poll"
            harness.put_guest_image("#!/bin/sh\n")
            await harness.create("vm", token=TOKEN, TUIST_RUNNER_DISPATCH_URL=url)
            await harness.driver.start("vm")
            link, _ = await asyncio.to_thread(server.accept)
            with link:
                link.settimeout(30)
                assert link.recv(65536).startswith(b"POST /poll HTTP/1.1\r\n")
                await harness.driver.stop("vm", grace=30)
                while link.recv(65536):
                    pass

    run_on(found("bwrap-users", absent), scenario)


# ── its helpers ─────────────────────────────────────────────────────────────────────────────────

IDLE = '#!/bin/sh\necho up >"$RUNYARD_STATUS_DIR/up"\nexec sleep 86400\n'
URL = "http://127.0.0.1:9/poll"
UNWATCHED = Limits(disk_mb=0)  # or `du`, before it is executed, would look like a relay


def helpers(shim: int) -> dict[str, int]:
    """The processes that serve a VM's network, by name."""
    found: dict[str, int] = {}
    for process in descendants(shim, table()):
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        if b"slirp4netns" in words[0]:
            found["slirp4netns"] = process.pid
        elif process.parent == shim and b"run" in words:
            found["relay"] = process.pid
    return found


async def started(harness: ProcessHarness) -> tuple[int, dict[str, int]]:
    harness.put_image(IDLE)
    directory = await harness.create("vm", TUIST_RUNNER_DISPATCH_URL=URL)
    up = harness.pipe("vm", "up")
    await harness.driver.start("vm")
    await up.line()
    shim = int((directory.state / "started").read_text())
    return shim, helpers(shim)


def is_gone(pid: int) -> bool:
    return pid not in table()


@pytest.mark.parametrize("way", BOXED)
def test_the_helpers_end_with_their_vm(way: Way, absent: Absent) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        _, pids = await started(harness)
        assert sorted(pids) == ["relay", "slirp4netns"]
        await harness.driver.stop("vm", grace=0)
        assert [name for name, pid in pids.items() if not is_gone(pid)] == []
        assert (await harness.view("vm")).exit_reason == "powered off"

    run_on(found(way, absent), scenario, UNWATCHED)


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
@pytest.mark.parametrize("way", BOXED)
def test_the_helpers_of_a_killed_shim_are_reaped(way: Way, stopped: bool, absent: Absent) -> None:
    """A helper that is stopped cannot end by itself."""

    async def scenario(harness: ProcessHarness) -> None:
        shim, pids = await started(harness)
        path = str(harness.directory("vm").path)
        users = json.loads((harness.directory("vm").state / "order.json").read_bytes())["users"]
        assert pids["slirp4netns"] in [process.pid for process in marked(path, users)]
        for pid in pids.values() if stopped else ():
            os.kill(pid, signal.SIGSTOP)
        os.kill(shim, signal.SIGKILL)
        await harness.gone("vm")
        assert "shim was killed" in (await harness.exited("vm")).exit_reason
        assert [name for name, pid in pids.items() if not is_gone(pid)] == []
        assert marked(path, users) == []

    run_on(found(way, absent), scenario, UNWATCHED)


@pytest.mark.parametrize("helper", ["slirp4netns", "relay"])
def test_a_vm_whose_network_ended_is_ended_with_the_reason(helper: str, absent: Absent) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        _, pids = await started(harness)
        os.kill(pids[helper], signal.SIGKILL)
        ended = await harness.exited("vm")
        assert ended.exit_code is None
        assert ended.exit_reason.endswith(f"{helper} of its network ended")

    run_on(found("bwrap-users", absent), scenario, UNWATCHED)


def test_a_vm_outlives_its_agent_with_its_network(absent: Absent) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        _, pids = await started(harness)
        again = harness.reopened()
        (view,) = await again.list()
        assert view.state.value == "running"
        assert not any(is_gone(pid) for pid in pids.values())
        await again.stop("vm", grace=0)
        assert all(is_gone(pid) for pid in pids.values())

    run_on(found("bwrap-users", absent), scenario, UNWATCHED)


def failing(folder: Path) -> str:
    path = folder / "slirp4netns"
    path.write_text("#!/bin/sh\necho 'no tap for you' >&2\nexit 1\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("way", BOXED)
def test_a_guest_without_its_network_does_not_start(
    way: Way, tmp_path: Path, absent: Absent
) -> None:
    """The choice is made at the probe: a VM never falls back to the host's network."""
    broken = _replace(found(way, absent), slirp=failing(tmp_path))

    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image('#!/bin/sh\necho ran >"$RUNYARD_STATUS_DIR/ran"\n')
        directory = await harness.create("vm")
        await harness.driver.start("vm")
        ended = await harness.exited("vm")
        assert "slirp4netns cannot connect its network: no tap for you" in ended.exit_reason
        assert not (directory.status / "ran").exists()

    run_on(broken, scenario)


@pytest.mark.parametrize("text", [None, ""], ids=["unreadable", "empty"])
def test_a_guest_does_not_start_while_this_machines_addresses_are_unknown(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: Absent
) -> None:
    """Which addresses it must not reach is then unknown, too."""
    held = found("bwrap", absent)
    path = tmp_path / "fib_trie"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(networks, "_ADDRESSES", str(path))

    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image("#!/bin/sh\n")
        await harness.create("vm")
        with pytest.raises(DriverFailed, match=r"addresses.*cannot be read from.*host-network"):
            await harness.driver.start("vm")

    run_on(held, scenario)
    with home() as directory:
        chosen = asyncio.run(probe._with_network(directory, _replace(held, network="host"), "auto"))
    assert chosen.network == "host"
    assert "the host's network (this machine's addresses" in chosen.detail
