"""Runs `runyard operator`: reads files and checks flags, makes its clients, and starts the component."""

import contextlib
import random

from runyard.cli.cluster import cluster, kubernetes_name
from runyard.cli.lifecycle import announce, process_name, run_component, stop_on_signal, until
from runyard.cli.operator import Flags
from runyard.cli.options import BadSetting
from runyard.cli.probesocket import probe_socket
from runyard.cli.serverfiles import http_url, transport_to
from runyard.clock import RealClock
from runyard.components import operator as component
from runyard.components.operator import Candidate
from runyard.kube.client import Kube
from runyard.pools.deps import Deps
from runyard.pools.settings import Settings
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger, configure, get_logger
from runyard.telemetry.meter import Meter
from runyard.wire import names
from runyard.wire.paths import DISPATCH


def run(flags: Flags) -> None:
    """Run one replica until a signal stops it."""
    configure(level=flags.log_level, json=flags.as_json)
    run_component(_live(flags))


async def _live(flags: Flags) -> None:

    ending, name = stop_on_signal(), process_name(flags.name)
    log = get_logger("operator", operator=name)
    async with contextlib.AsyncExitStack() as stack:
        deps = _deps(flags, settings_of(flags), stack, log=log)
        socket = probe_socket(flags.listen, flags.metrics_token_file, clock=deps.clock)
        stack.callback(socket.sock.close)

        def ready(urls: tuple[str, ...]) -> None:
            text = f"operating as {name}, probes at {urls[0]}"
            announce(text, as_json=flags.as_json, event="operating", url=urls[0], name=name)

        candidate = _candidate(flags, name)
        await until(ending, component.serve(deps, (socket,), ready=ready, candidate=candidate))


def _candidate(flags: Flags, name: str) -> Candidate | None:

    if not flags.leader_elect:
        return None
    identity = f"{name}_{random.SystemRandom().getrandbits(64):016x}"
    namespace = kubernetes_name("--controller-namespace", flags.controller_namespace)
    return Candidate(identity=identity, namespace=namespace)


def _deps(
    flags: Flags, settings: Settings, stack: contextlib.AsyncExitStack, *, log: Logger
) -> Deps:

    clock = RealClock()
    kube, token = cluster(flags.kubeconfig, clock=clock, agent=names.CONTROLLER_ACCOUNT)
    stack.push_async_callback(kube.close)
    server = None
    if flags.server_url:
        server = transport_to(
            "--server-url", flags.server_url, ca=flags.server_ca_file, ca_flag="--server-ca-file"
        )
        stack.push_async_callback(server.close)
    return Deps(
        kube=Kube(kube, agent=names.CONTROLLER_ACCOUNT),
        server=server,
        token=token,
        clock=clock,
        rng=random.SystemRandom(),
        meter=Meter(),
        log=log,
        settings=settings,
        health=Health(clock, conditions.ALL),
        freshness=Freshness(clock),
    )


def settings_of(flags: Flags) -> Settings:
    """How the operator is set up by these flags; `BadSetting` says what is wrong with them."""

    if not flags.server_url and not flags.dispatch_url:
        raise BadSetting(
            "--server-url is missing: runners poll it for jobs. Give the dispatch server's URL"
        )
    for flag, url in (
        ("--dispatch-url", flags.dispatch_url),
        ("--dispatch-internal-url", flags.dispatch_internal_url),
    ):
        if url:
            http_url(flag, url)
    return Settings(
        namespace=kubernetes_name("--namespace", flags.namespace),
        dispatch_url=flags.dispatch_url or http_url("--server-url", flags.server_url) + DISPATCH,
        dispatch_internal_url=flags.dispatch_internal_url,
    )
