"""Measures the Kubernetes client and the embedded API, and fails if a target is missed.

    python -m benches.kube.run [pods]      prints target, measured value and verdict; exits with 1 if a target is missed

Targets are ratios to a limit measured in the same run: aiohttp and msgspec alone, or the real server. Each number is
the best of some rounds. The real server is a kube-apiserver without controllers, with an etcd that syncs its disk by
default: the best case for it. The embedded API runs as in `runyard up`, with its journal, roles and controllers. Both
get the same load from the same program.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from benches import table
from benches.kube import watch_server
from benches.kube.embedded_server import ADMIN
from benches.kube.load import Measured
from benches.kube.mirror_client import Cost

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))
import controlplane  # noqa: E402  lives in tools, which is no package

ROUNDS = 3
LISTED = 10_000
EVENTS = 60_000
WATCHERS = 50
CREATORS = 16

T = TypeVar("T")


class Served(msgspec.Struct, frozen=True):
    url: str
    ca: Path
    token: str
    pids: tuple[int, ...]

    def cpu(self) -> float:
        """CPU seconds of the server; 0 if they cannot be measured."""
        return sum(_cpu_of(pid) for pid in self.pids)


def _cpu_of(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def embedded(folder: Path) -> Iterator[Served]:
    folder.mkdir()
    command = [sys.executable, "-m", "benches.kube.embedded_server", str(folder)]
    pipe = subprocess.PIPE
    # In its own session, like the real server's processes: some kernels distribute CPU time by session.
    with subprocess.Popen(
        command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as process:
        assert process.stdin and process.stdout
        try:
            url = process.stdout.readline().strip()
            assert url, "the embedded API did not start"
            yield Served(url, folder / "ca.crt", ADMIN, (process.pid,))
        finally:
            process.stdin.close()
    assert process.returncode == 0, "the embedded API failed; see above"


class Syncing(controlplane.ControlPlane):
    """A control plane whose etcd syncs every write to disk, as the embedded API does."""

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        kept = [each for each in arguments if not each.startswith("--unsafe-no-fsync")]
        return super()._start(program, *kept)


@contextmanager
def real(assets: controlplane.Assets, folder: Path) -> Iterator[Served]:
    with Syncing(assets, folder, controllers=False, scheduler=False) as plane:
        ca = folder / "bench-ca.crt"
        ca.write_bytes(plane.authority.certificate)
        yield Served(plane.url, ca, controlplane.ADMIN, tuple(plane.pids))


class Loaded(msgspec.Struct, frozen=True):
    found: Measured
    cpu_ms: float  # CPU time of the server for each creation


def _child(type_: type[T], module: str, *arguments: object) -> T:
    command = [sys.executable, "-m", f"benches.kube.{module}", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, check=True, start_new_session=True
    )
    return msgspec.json.decode(done.stdout, type=type_)


def load(served: Served, *, pods: int, watchers: int) -> Loaded:
    given = (served.url, served.ca, served.token)
    before = served.cpu()
    found = _child(Measured, "load", *given, pods, watchers, CREATORS)
    return Loaded(found, (served.cpu() - before) * 1000 / pods)


def bench_client(home: Path) -> list[table.Row]:
    return [*bench_list(home), bench_watch()]


def bench_list(home: Path) -> list[table.Row]:
    """Compare listing and indexing with reading the same list by aiohttp and msgspec alone."""
    with embedded(home / "listed") as served:
        size = load(served, pods=LISTED, watchers=1).found.bytes_per_event
        given = (served.url, served.ca, served.token, LISTED)
        costs, bare = [], []
        for _ in range(ROUNDS):
            bare.append(_child(Cost, "mirror_client", "bare-list", *given))
            costs.append(_child(Cost, "mirror_client", "list", *given))
    assert all(each.count == LISTED for each in bare), "the bare client read another list"
    name = f"list and index {LISTED:,} Pods of {size / 1000:.1f} KB"
    ours, limit = min(cost.cpu for cost in costs), min(cost.cpu for cost in bare)
    say(f"{name}: {ours:.2f} s of CPU; read and decoded alone: {limit:.2f} s")
    peak, least = max(cost.peak_mb for cost in costs), min(cost.peak_mb for cost in bare)
    alone = "reading and decoding alone"
    return [
        table.at_most(f"{name}: CPU, to {alone}", ours / limit, 1.0, "times", inclusive=True),
        table.at_most(
            f"{name}: peak of {peak:.0f} MB, to {alone}", peak / least, 1.0, "times", inclusive=True
        ),
    ]


def bench_watch() -> table.Row:
    """Compare following a watch with reading and decoding its lines alone."""
    body = b"".join(watch_server.lines(EVENTS))
    costs, bare = [], []
    for _ in range(ROUNDS):
        for what, found in (("bare-watch", bare), ("watch", costs)):
            with watch_server.serve_watch(body) as url:
                found.append(_child(Cost, "mirror_client", what, url, EVENTS))
    assert all(each.count == EVENTS for each in bare), "the bare client missed events"
    size = len(body) / EVENTS
    ours, limit = (max(EVENTS / cost.cpu for cost in each) for each in (costs, bare))
    say(f"watch events of {size / 1000:.1f} KB: {ours:,.0f}/s of one core; alone {limit:,.0f}/s")
    name = f"watch events through reflector and mirror: {ours:,.0f}/s of CPU, to decoding alone"
    return table.at_least(name, ours / limit, 0.5, "times")


def bench_api(home: Path, pods: int) -> list[table.Row]:
    assets = _assets()
    ours: list[Loaded] = []
    theirs: list[Loaded] = []
    for turn in range(ROUNDS):  # alternately, so that other load on the machine affects both
        with embedded(home / f"ours-{turn}") as served:
            ours.append(load(served, pods=pods, watchers=WATCHERS))
        _print_load("embedded", ours[-1])
        assert not ours[-1].found.lost, "a watcher missed events"
        if assets is not None:
            with real(assets, home / f"theirs-{turn}") as served:
                theirs.append(load(served, pods=pods, watchers=WATCHERS))
            _print_load("real", theirs[-1])
    best = max(each.found.creates_per_second for each in ours)
    shape = f"embedded API, {pods:,} Pods x {WATCHERS} watchers"
    delay = min(each.found.delay_p99 for each in ours) * 1000
    rows = []
    if theirs:
        other = min(each.found.delay_p99 for each in theirs) * 1000
        name = f"{shape}: watch delay p99 {delay:.1f} ms, to the real server's {other:.1f} ms"
        rows.append(table.at_most(name, delay / other, 2.0, "times", inclusive=True))
        limit = max(each.found.creates_per_second for each in theirs)
        because = "the real server's best"
        rows.append(table.at_least(f"{shape}: creates", best, limit, "/s", because=because))
    else:
        why = f"not measured: no real server; {controlplane.HOW} (ours: {best:,.0f}/s)"
        rows.append(table.unmeasured(f"{shape}: creates", ">= the real server's", why))
        rows.append(table.unmeasured(f"{shape}: watch delay p99", "<= 2 times the real one's", why))
    return rows


def _assets() -> controlplane.Assets | None:
    found = controlplane.find_assets(os.environ)
    if found is None:
        say(f"*** there is no kube-apiserver on this machine; {controlplane.HOW} builds one")
    return found


def _print_load(server_name: str, loaded: Loaded) -> None:
    found = loaded.found
    say(
        f"{server_name}: {found.creates_per_second:,.0f} creates/s, {loaded.cpu_ms:.1f} ms of CPU each;"
        f" events after the answer: p50 {found.delay_p50 * 1000:.1f} ms,"
        f" p99 {found.delay_p99 * 1000:.1f} ms;"
        f" after the request was sent: p99 {found.since_sent_p99 * 1000:.0f} ms"
        f"; watches that were cut {found.resumed}, and lost {found.lost}"
    )


def say(text: str) -> None:
    print(text, flush=True)


NOTES = [
    "Each the best of some rounds; memory the worst. Alone: the same bytes read by aiohttp and decoded by msgspec.",
    "The real server syncs its disk, as ours does, and has no controllers beside it.",
    "The delay counts from the answer of a creation to its event at each watcher, at full speed.",
]


def main() -> int:
    pods = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    say(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="runyard-bench-") as name:
        rows = bench_client(Path(name)) + bench_api(Path(name), pods)
    return table.show(rows, NOTES)


if __name__ == "__main__":
    sys.exit(main())
