"""Draws a simulated fleet live in a terminal: hosts and their VMs, pools, the queue, current faults."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from runyard.vm.contract import VmState

if TYPE_CHECKING:
    from runyard.sim.fleet import Fleet
    from runyard.sim.hosts import SimHost

FRAMES = 12  # frames per second of real time
STORY = 9
_LOOKS = {
    "polling": ("idle", "green"),
    "armed": ("armed", "yellow"),
    "running": ("works", "bold cyan"),
    "hung": ("hangs", "bold red"),
    "ended": ("ends", "dim"),
}


@contextmanager
def screen() -> Iterator[Callable[["Fleet"], None]]:
    """Show a fleet repeatedly, at most `FRAMES` times per second."""
    last = 0.0
    with Live(refresh_per_second=FRAMES, transient=True) as screen:

        def show(fleet: "Fleet") -> None:
            nonlocal last
            if time.perf_counter() - last >= 1.0 / FRAMES:
                last = time.perf_counter()
                screen.update(draw(fleet))

        yield show


def draw(fleet: "Fleet") -> RenderableType:
    """Draw one frame."""
    now = int(fleet.clock.monotonic())
    title = f"seed {fleet.shape.seed}   {now // 3600:02d}:{now // 60 % 60:02d}:{now % 60:02d}"
    hosts = Columns([_host(fleet, host) for host in fleet.hosts.values()], equal=True)
    return Group(
        Panel(hosts, title=title, title_align="left"),
        Columns([_pools(fleet), _components(fleet), _counts(fleet)], expand=True),
        _events(fleet),
    )


def _host(fleet: "Fleet", host: "SimHost") -> Panel:
    lines = Text()
    guests = {guest.vm: guest for guest in fleet.guests.values()}
    for view in host.driver.views():
        guest = guests.get(view.name)
        if guest is not None:
            word, style = _LOOKS[guest.state]
            lines.append(f"● {word}\n", style)
        elif view.state is VmState.EXITED:
            lines.append("○ over\n", "dim")
        else:
            lines.append("◌ boots\n", "blue")
    for _ in range(len(host.driver.views()), fleet.shape.seats):
        lines.append("· free\n", "dim")
    state = "green" if host.process.alive else "red"
    if host.cut or not host.powered:
        state = "bold red"
    return Panel(lines, title=host.name, border_style=state, width=16)


def _pools(fleet: "Fleet") -> Panel:
    table = Table(box=None, padding=(0, 1))
    for column in ("pool", "idle", "works", "wanted"):
        table.add_column(column)
    for pool in fleet.shape.pools:
        states = Counter(guest.state for guest in fleet.guests.values() if guest.pool == pool.name)
        wanted = str(fleet.shape.seats_of(pool))
        table.add_row(pool.name, str(states["polling"]), str(states["running"]), wanted)
    waiting = fleet.ledger.waiting()
    for tenant in fleet.shape.tenants:
        table.add_row(f"{tenant.name} queued", str(waiting.get(tenant.name, 0)), "", "")
    return Panel(table, title="pools and queue", title_align="left")


def _components(fleet: "Fleet") -> Panel:
    lines = Text()
    processes = [replica.process for replica in fleet.replicas]
    for process in (*processes, fleet.operator, fleet.kube_process):
        style, word = ("green", "up") if process.alive else ("bold red", "down")
        lines.append(f"{process.name:<10} {word:<5} {process.starts} starts\n", style)
    for name, down in (
        ("github", fleet.github.faults.outage),
        ("postgres", any(database.down for database in fleet.databases)),
    ):
        lines.append(f"{name:<10} {'down' if down else 'up'}\n", "bold red" if down else "green")
    return Panel(lines, title="parts", title_align="left")


def _counts(fleet: "Fleet") -> Panel:
    jobs = fleet.github.jobs().values()
    lines = Text()
    for name, count in (
        ("jobs", len(jobs)),
        ("well", sum(job.conclusion == "success" for job in jobs)),
        ("cancelled", sum(job.conclusion == "cancelled" for job in jobs)),
        ("failed by fault", sum(job.conclusion == "failure" for job in jobs)),
        ("faults", fleet.counts["faults"]),
        ("checks", fleet.invariants.checks),
        ("transactions", fleet.counts["transactions"]),
    ):
        lines.append(f"{name:<16}{count:>8}\n")
    return Panel(lines, title="counted", title_align="left")


def _events(fleet: "Fleet") -> Panel:
    lines = Text()
    for at, what in list(fleet.story)[-STORY:]:
        lines.append(f"{int(at) // 3600:02d}:{int(at) // 60 % 60:02d}:{int(at) % 60:02d}  ", "dim")
        lines.append(f"{what}\n")
    going_on = ", ".join(sorted(fleet.disturbed)) or "nothing"
    return Panel(lines, title=f"current faults: {going_on}", title_align="left")
