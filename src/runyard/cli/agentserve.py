"""Runs a node agent until a signal stops it: for `runyard agent` and `tart-kubelet`, which differ in their flags."""

import contextlib
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from runyard.cli.cluster import cluster
from runyard.cli.lifecycle import stop_on_signal, until
from runyard.cli.options import BadSetting
from runyard.cli.serverfiles import authority
from runyard.clock import Clock, RealClock
from runyard.components import agent as component
from runyard.components.hosting import open_host
from runyard.components.probing import ProbeSocket
from runyard.embedded.lock import DirectoryInUse, DirectoryLock, DirectoryStuck
from runyard.kube.client import Kube
from runyard.node.deps import Deps
from runyard.node.records import Records
from runyard.node.settings import Settings
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger, get_logger
from runyard.telemetry.meter import Meter
from runyard.vm.archives import FOLDER, Archive, BadArchive, provided
from runyard.vm.contract import VmError
from runyard.vm.registry import Opened, Wanted
from runyard.wire import names

Beside = Callable[[Coroutine[Any, Any, None], Deps], Coroutine[Any, Any, None]]
"""Runs the agent together with what this kind of host needs beside it."""
Watched = Callable[[Kube, Health, Logger], Kube]
"""The same client, with what this kind of host notices about its requests."""


class HostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One host, as its flags describe it."""

    node: str
    data: Path  # of records and VMs; this agent's alone
    kubeconfig: str
    wanted: Wanted
    settings: Callable[[Opened], Settings]
    archive: Archive | None = None  # of the runner, for VMs whose image has none


async def serve_host(
    plan: HostPlan,
    sockets: tuple[ProbeSocket, ...],
    *,
    ready: Callable[[tuple[str, ...], Opened], None],
    beside: Beside | None = None,
    watched: Watched | None = None,
) -> None:
    """Serve the host until a signal; `BadSetting` says why it cannot start."""
    ending, clock = stop_on_signal(), RealClock()
    async with contextlib.AsyncExitStack() as stack:
        for each in sockets:
            stack.callback(each.sock.close)
        kube, _ = cluster(plan.kubeconfig, clock=clock, agent=names.NODE_AGENT)
        stack.push_async_callback(kube.close)
        stack.callback(_locked(plan.data).release)
        archive = await _provided(plan, clock)
        opened = await _opened(plan, clock)
        health, log = Health(clock, conditions.ALL), get_logger("agent", node=plan.node)
        client = Kube(kube, agent=names.NODE_AGENT)
        deps = Deps(
            kube=client if watched is None else watched(client, health, log),
            driver=opened.driver,
            records=Records(plan.data / "records"),
            clock=clock,
            rng=random.SystemRandom(),
            meter=Meter(),
            log=log,
            settings=msgspec.structs.replace(plan.settings(opened), runner_archive=archive),
            health=health,
            freshness=Freshness(clock),
        )
        work = component.serve(deps, sockets, ready=lambda urls: ready(urls, opened))
        await until(ending, work if beside is None else beside(work, deps))


def server_ca(path: Path | None) -> str:
    """The certificates in the file of `--server-ca-file`; empty without one."""
    return "" if path is None else authority("--server-ca-file", path)


def runner_archive(source: str, sha256: str) -> Archive | None:
    """The archive of `--runner-archive` and `--runner-sha256`; `BadSetting` if it cannot be one."""
    if not source:
        if sha256:
            raise BadSetting(
                "--runner-sha256 is of the archive that --runner-archive names. Give that too"
            )
        return None
    archive = Archive(source=source, sha256=sha256)
    try:
        archive.check()
    except BadArchive as error:
        raise BadSetting(f"--runner-archive, --runner-sha256: {error}") from None
    return archive


async def _provided(plan: HostPlan, clock: Clock) -> str:
    """The path of the runner's archive; empty without one."""
    if plan.archive is None:
        return ""
    log = get_logger("agent", node=plan.node)
    try:
        path = await provided(plan.archive, plan.data / FOLDER, clock=clock, report=log.info)
    except BadArchive as error:
        raise BadSetting(f"--runner-archive: {error}") from None
    return str(path)


async def _opened(plan: HostPlan, clock: Clock) -> Opened:
    try:
        return await open_host(plan.wanted, clock=clock)
    except VmError as error:
        raise BadSetting(f"--driver {plan.wanted.driver}: {error}") from None


def _locked(data: Path) -> DirectoryLock:
    """Create the data directory and lock it for this agent."""
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BadSetting(
            f"--data: {data} cannot be used ({error.strerror}). Use a directory that you can write to"
        ) from None
    lock = DirectoryLock(data)
    try:
        lock.acquire()
    except (DirectoryInUse, DirectoryStuck):
        raise BadSetting(
            f"--data: {data} is used by another agent. Stop that agent, or use another directory"
        ) from None
    return lock
