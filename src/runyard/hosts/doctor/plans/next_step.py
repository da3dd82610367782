"""Chooses the next step for a new user from what the checks have found.

Invariant: only the checks that ran decide. What stops everything else comes first, what is nice to have last.
"""

from collections.abc import Mapping

import msgspec

from runyard.hosts.doctor.plans.everywhere import EXTRAS, NATIVE
from runyard.hosts.doctor.plans.findings import Facts, Findings, Verdict
from runyard.hosts.doctor.plans.host import start_of
from runyard.hosts.doctor.plans.hosting import Agent
from runyard.hosts.doctor.plans.ids import CheckId
from runyard.hosts.doctor.plans.reasons import Found, Next
from runyard.hosts.doctor.plans.tart import INSTALL
from runyard.wire.reasons import Reason


class NextStep(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now, and the command for it."""

    reason: Reason
    command: str


def next_step(results: Mapping[CheckId, Findings], facts: Facts) -> NextStep:
    """The first step that is not done yet."""
    every = [each for found in results.values() for each in found]
    codes = {each.reason.code for each in every}
    if Found.PYTHON_TRANSLATED in codes:
        return NextStep(reason=Next.NATIVE_PYTHON.because(), command=NATIVE.do)
    if Found.TART_ABSENT in codes:
        return NextStep(reason=Next.INSTALL_TART.because(), command=INSTALL.do)
    if Found.EXTRAS_MISSING in codes:
        return NextStep(reason=Next.INSTALL_EXTRAS.because(), command=EXTRAS.do)
    wrong = [each.reason.code for each in every if each.verdict is Verdict.PROBLEM]
    if any(code is not Found.AGENT_STOPPED for code in wrong):
        return NextStep(reason=Next.FIX.because(count=len(wrong)), command=_again(facts))
    fleet = facts.machine is not None and facts.machine.running
    if facts.agent is not None and facts.agent.used and not fleet:
        return _of_the_host(facts.agent, _again(facts))
    return _of_the_fleet(facts)


def _again(facts: Facts) -> str:
    return f"runyard doctor{facts.data_option}{facts.agent_option}"


def _of_the_host(agent: Agent, again: str) -> NextStep:
    """What a machine that is a host does not do is start a fleet of its own beside it."""
    if agent.joined is None and not agent.running:
        return NextStep(reason=Next.START_LEFT.because(), command=again)
    if agent.joined is None:
        return NextStep(reason=Next.LIST_NODES.because(), command="kubectl get nodes")
    url = agent.joined.url
    if not agent.running:
        return NextStep(reason=Next.START_AGENT.because(url=url), command=start_of(agent))
    return NextStep(reason=Next.LIST_HOSTS.because(url=url), command="runyard host list")


def _of_the_fleet(facts: Facts) -> NextStep:
    machine, github = facts.machine, facts.github
    connected = github is not None and github.configured
    up, where = "runyard up --github" if connected else "runyard up", facts.data_option
    if machine is None or not machine.running:
        return NextStep(reason=Next.START.because(), command=up + where)
    if machine.real_github:
        return NextStep(reason=Next.OPEN_DASHBOARD.because(), command=f"runyard dashboard{where}")
    if connected:
        return NextStep(reason=Next.USE_GITHUB.because(), command=up + where)
    return NextStep(reason=Next.CONNECT_GITHUB.because(), command="runyard github connect")
