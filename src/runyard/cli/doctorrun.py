"""Makes the checks of `runyard doctor` and prints what they found.

Invariant: the output of a probe is never printed: it may name other programs, users and variables. What is printed is
made from reason codes, and cleaned for a terminal.
"""

import asyncio
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import msgspec

from runyard.cli.doctoragent import agent_of, agent_root, default_root, home_of
from runyard.cli.doctormachine import github_of, machine_of
from runyard.cli.doctorservice import AgentService, agent_services
from runyard.cli.doctorshow import TITLES, results_json, results_text
from runyard.cli.local_machine import machine_root
from runyard.cli.tables import show_json, show_table
from runyard.clock import Clock, RealClock
from runyard.hosts.doctor.checks import Check, Group, checks_for
from runyard.hosts.doctor.facts import gather
from runyard.hosts.doctor.inspections import nearest
from runyard.hosts.doctor.plans.findings import Facts, Findings, Verdict
from runyard.hosts.doctor.plans.ids import CheckId
from runyard.hosts.doctor.plans.next_step import next_step
from runyard.hosts.doctor.runner import Runner, environment
from runyard.text import harmless


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `runyard doctor`."""

    only: tuple[str, ...] = ()
    data: Path | None = None
    agent_data: Path | None = None
    listed: bool = False
    verbose: bool = False
    as_json: bool = False


def run(options: Options) -> bool:
    """Make the checks and print the findings; returns whether there is no problem."""
    clock = RealClock()
    facts = gather(data=machine_root(options.data), environ=os.environ, now=clock.now())
    facts = msgspec.structs.replace(
        facts,
        data_option=_option("--data", options.data),
        agent_option=_option("--agent-data", options.agent_data),
    )
    home = home_of(facts, os.environ)
    services = agent_services(home, os.environ)
    root = agent_root(options.agent_data, os.environ, home, services)
    facts = with_agents(facts, os.environ, root, services)
    checks = selected(options.only, checks_for(facts.platform))
    if options.listed:
        _list(checks, as_json=options.as_json)
        return True
    facts, results = asyncio.run(examine(facts, checks, clock, services=services))
    step = next_step(results, facts)
    if options.as_json:
        show_json(results_json(checks, results, step))
    else:
        click.echo(harmless(results_text(checks, results, step, verbose=options.verbose)))
    return not any(each.verdict is Verdict.PROBLEM for found in results.values() for each in found)


def _option(name: str, given: Path | None) -> str:
    return "" if given is None else f" {name} {shlex.quote(str(given.absolute()))}"


def with_agents(
    facts: Facts, environ: Mapping[str, str], root: Path, services: Sequence[AgentService]
) -> Facts:
    """The facts with the agents' directories; without TART_HOME here, tart's is that of the agent's service."""
    known = (root, default_root(home_of(facts, environ)), *(each.data for each in services))
    agents = tuple(dict.fromkeys(map(str, known)))
    tart = next((each.tart_home for each in services if each.data == root), "")
    if environ.get("TART_HOME") or not tart.startswith("/"):
        return msgspec.structs.replace(facts, agent_data=str(root), agents=agents)
    return msgspec.structs.replace(
        facts,
        agent_data=str(root),
        agents=agents,
        tart_home=tart,
        tart_disk=str(nearest(Path(tart))),
    )


def selected(only: tuple[str, ...], checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """The checks with these ids, or all."""
    known = {each.id.value for each in checks}
    for name in only:
        if name not in known:
            elsewhere = " on this system" if name in set(CheckId) else ""
            raise click.UsageError(
                f"there is no check {name!r}{elsewhere}. 'runyard doctor --list' shows the ids"
            )
    return tuple(each for each in checks if not only or each.id.value in only)


async def examine(
    facts: Facts,
    checks: tuple[Check, ...],
    clock: Clock,
    *,
    services: Sequence[AgentService] = (),
) -> tuple[Facts, dict[CheckId, Findings]]:
    """Ask the fleet, the agent and GitHub, then make the probes and have them judged."""
    ask = any(each.id is CheckId.GITHUB for each in checks)
    async with asyncio.TaskGroup() as group:
        machine = group.create_task(machine_of(Path(facts.data)))
        github = group.create_task(github_of(clock, ask=ask))
        agent = group.create_task(
            agent_of(
                facts,
                environment(os.environ),
                clock,
                home=home_of(facts, os.environ),
                services=services,
                ask=any(each.group is Group.HOST for each in checks),
            )
        )
    facts = msgspec.structs.replace(
        facts, machine=machine.result(), github=github.result(), agent=agent.result()
    )
    return facts, await Runner(facts, env=environment(os.environ)).run(checks)


def _list(checks: tuple[Check, ...], *, as_json: bool) -> None:
    if as_json:
        show_json(
            [
                {"id": each.id.value, "group": each.group.value, "question": each.id.template}
                for each in checks
            ]
        )
        return
    show_table(
        ("id", "question", "about"),
        [(each.id.value, each.id.template, TITLES[each.group]) for each in checks],
    )
