"""`runyard up --demo`: starts a machine, runs the demo's scenario on it, and ends the machine."""

import random
from collections.abc import Callable

from runyard.clock import Clock
from runyard.components.hosting import open_host
from runyard.db.pooled import open_pool
from runyard.embedded.up.demo.events import DemoListener
from runyard.embedded.up.demo.jobs import daemon_marker
from runyard.embedded.up.demo.observer import Observer
from runyard.embedded.up.demo.scenario import DemoFailed, DemoScenario, Outcome
from runyard.embedded.up.hosts import wanted_driver
from runyard.embedded.up.machine import Machine
from runyard.embedded.up.practice_client import PracticeClient
from runyard.http.client import HttpTransport
from runyard.wire import names


async def run_scenario(
    machine: Machine,
    *,
    clock: Clock,
    rng: random.Random,
    listener: DemoListener,
) -> Outcome:
    """Runs the scenario on a machine that is up; raises `DemoFailed` or `NotRecovered`."""
    run = rng.randbytes(4).hex()
    transport = HttpTransport(machine.urls.github)
    opened = await open_host(wanted_driver(machine.layout, machine.hosts[0]), clock=clock)
    isolation = dict(opened.traits.labels).get(names.NODE_ISOLATION, "")
    listener.report(f"isolation: {opened.detail}")
    try:
        async with open_pool(machine.conninfo, clock=clock, rng=rng, max_size=2) as database:
            github = PracticeClient(transport, token=machine.secrets.practice_token)
            observer = Observer(
                machine,
                database=database,
                github=github,
                clock=clock,
                marker=daemon_marker(run),
            )
            outcome = await DemoScenario(observer, clock=clock, run=run, listener=listener).report()
    finally:
        await transport.close()
    return _judged(outcome, isolation, listener.report)


def _judged(outcome: Outcome, isolation: str, report: Callable[[str], None]) -> Outcome:
    """Checks that what the probing job could read fits this machine's isolation."""
    for finding in outcome.findings:
        report(f"reported by a job: {finding}")
    found = [tuple(finding.split(": ", 1)) for finding in outcome.findings]
    if ("token", "yes") in found or ("token", "no") not in found:
        raise DemoFailed("a job could read the dispatch token, or did not report whether it could")
    if isolation != "none" and ("neighbour", "no") not in found:
        raise DemoFailed("a job could read its neighbour's directory although it was isolated")
    return outcome
