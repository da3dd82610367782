"""`runyard up --demo`: a machine, a story told on it, and the machine's end."""

import random
from collections.abc import Callable

from runyard.clock import Clock
from runyard.db.pooled import open_pool
from runyard.embedded.up.demo.eyes import Eyes
from runyard.embedded.up.demo.jobs import daemon_marker
from runyard.embedded.up.demo.story import DemoFailed, JobState, Outcome, Story
from runyard.embedded.up.hosts import driver_for
from runyard.embedded.up.machine import Machine
from runyard.embedded.up.people import People
from runyard.http.client import HttpTransport


async def tell_story(
    machine: Machine,
    *,
    clock: Clock,
    rng: random.Random,
    tell: Callable[[str], None],
    show: Callable[[tuple[JobState, ...]], None],
) -> Outcome:
    """Tell it on a machine that is up; raises `DemoFailed` or `NotHealed`."""
    run = rng.randbytes(4).hex()
    transport = HttpTransport(machine.urls.github)
    isolation = (await driver_for(machine.layout, machine.hosts[0], clock=clock)).isolation
    tell(f"isolation: {isolation.kind} ({isolation.detail})")
    try:
        async with open_pool(machine.conninfo, clock=clock, rng=rng, max_size=2) as database:
            github = People(transport, token=machine.secrets.people_token)
            eyes = Eyes(
                machine,
                database=database,
                github=github,
                clock=clock,
                marker=daemon_marker(run),
            )
            outcome = await Story(eyes, clock=clock, run=run, tell=tell, show=show).tell()
    finally:
        await transport.close()
    return _judged(outcome, isolation.kind, tell)


def _judged(outcome: Outcome, isolation: str, tell: Callable[[str], None]) -> Outcome:
    """What the nosy job could see must fit what this machine promises."""
    for finding in outcome.findings:
        tell(f"found out by a job: {finding}")
    if "token: yes" in outcome.findings or "token: no" not in outcome.findings:
        raise DemoFailed("a job could see the dispatch token, or did not say that it could not")
    if isolation != "none" and "neighbour: no" not in outcome.findings:
        raise DemoFailed("a job could read its neighbour's directory although it was isolated")
    return outcome
