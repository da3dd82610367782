"""Judges the agent on this machine: whether its service runs, reaches the main machine, and may still use it.

Invariants:
- Nothing of a credential but its dates and what the main machine says of it gets into a finding.
- A machine without an agent is as it should be; so is an agent with a kubeconfig of its own, whose service is not ours.
"""

from shlex import quote

from runyard.hosts.doctor.plans.everywhere import EXTRAS, SKEW_FAIL, SKEW_WARN, set_clock
from runyard.hosts.doctor.plans.findings import (
    Findings,
    Fix,
    Given,
    advice,
    command,
    ok,
    problem,
    unknown,
    warning,
)
from runyard.hosts.doctor.plans.hosting import Agent, Joined, Login, Reach, Service
from runyard.hosts.doctor.plans.reasons import Found

DAY = 86400.0
# The agent renews a credential that is a day old, and a main machine may be away for a while.
_NOT_RENEWED, _SOON = 3 * DAY, 7 * DAY
_UNASKED = Found.AGENT_UNASKED.because()
_OTHER_CLOCK = advice("if it is right here, set the clock of the main machine")
_AGAIN = advice(
    "join again: on the main machine, runyard host token; then here the command that it prints"
)


def agent(given: Given) -> Findings:
    """Judge whether the agent runs, and starts again at boot."""
    found = given.facts.agent
    if found is None:
        return unknown(_UNASKED, EXTRAS)
    if found.damaged:
        return problem(Found.AGENT_DAMAGED.because(why=found.damaged), _AGAIN)
    if found.joined is None:
        return _of_cluster(found)
    if not found.running:
        return problem(Found.AGENT_STOPPED.because(ended=_ended(found)), *_starts(found))
    if found.service is None:
        return unknown(Found.AGENT_SERVICE_UNKNOWN.because(why=found.unmanaged))
    return _served(found.service)


def _of_cluster(found: Agent) -> Findings:
    if found.running:
        return ok(Found.AGENT_OF_CLUSTER.because(data=found.data))
    if found.left:
        return warning(
            Found.AGENT_LEFT.because(data=found.data),
            advice(
                "start it again as before, with this directory: it takes over what it has left;"
                " if it is not wanted any more, remove the directory"
            ),
        )
    return ok(Found.AGENT_ABSENT.because(data=found.data))


def _served(service: Service) -> Findings:
    if not service.installed:
        return warning(
            Found.AGENT_NO_SERVICE.because(),
            advice(
                "join again without --no-service, which installs the service:"
                " on the main machine, runyard host token; then here the command that it prints"
            ),
        )
    if not service.pid:
        reason = Found.AGENT_BESIDE_SERVICE.because(name=service.name)
        return warning(
            reason, advice("stop the agent that was started by hand"), command(service.start)
        )
    if service.boot:
        reason = Found.AGENT_NOT_AT_BOOT.because(name=service.name)
        return warning(reason, command(service.boot))
    return ok(Found.AGENT_RUNS.because(name=service.name))


def _ended(found: Agent) -> str:
    service = found.service
    if service is None:
        return "its service cannot be asked"
    if not service.installed:
        return "no service is installed"
    return (
        f"its service ended with {service.last_exit}"
        if service.last_exit
        else "its service is stopped"
    )


def start_of(found: Agent) -> str:
    """The command that starts the agent of a host that joined; empty for any other agent."""
    if found.service is not None and found.service.installed:
        return found.service.start
    return found.joined.start if found.joined else ""


def _starts(found: Agent) -> tuple[Fix, ...]:
    return (command(start_of(found)), *_log(found.service))


def _log(service: Service | None) -> tuple[Fix, ...]:
    """How its user sees what it has logged; only a service's log has a known place."""
    return (command(f"tail -n 20 {quote(service.log)}"),) if service and service.log else ()


def main_machine(given: Given) -> Findings:
    """Judge whether the main machine responds, and gives jobs to this host.

    Programs started from a terminal are never kept from the local network, so this does not show what macOS lets the
    agent do; another check does.
    """
    found = given.facts.agent
    if found is None:
        return unknown(_UNASKED, EXTRAS)
    joined = found.joined
    if joined is None:
        return ok(Found.MAIN_NONE.because())
    match joined.reach:
        case Reach.AWAY:
            return problem(
                Found.MAIN_AWAY.because(url=joined.url),
                advice("on the main machine: runyard up --listen, with the address in that URL"),
                advice("look for a firewall in between; if the address has changed, join again"),
            )
        case Reach.OTHER:
            return problem(Found.MAIN_OTHER.because(url=joined.url), _AGAIN)
        case Reach.UNDATED:
            fixes = (set_clock(given.facts.platform), _OTHER_CLOCK)
            return problem(Found.MAIN_UNDATED.because(url=joined.url), *fixes)
        case Reach.REACHED:
            pass
    wrong = _clocks(joined, given.facts.platform)
    if joined.drained:
        fix = advice(f"on the main machine: runyard host undrain {joined.name}")
        wrong += warning(Found.MAIN_DRAINED.because(name=joined.name), fix)
    return wrong or ok(Found.MAIN_REACHED.because(url=joined.url))


def _clocks(joined: Joined, platform: str) -> Findings:
    """Judge the clock of this machine by that of the main machine; nothing if it is right."""
    if joined.skew is None or abs(joined.skew) < SKEW_WARN:
        return ()
    worse = problem if abs(joined.skew) >= SKEW_FAIL else warning
    reason = Found.MAIN_CLOCK.because(skew=joined.skew, url=joined.url)
    return worse(reason, set_clock(platform), _OTHER_CLOCK)


def credential(given: Given) -> Findings:
    """Judge the credential of a host that joined: its age, its end, and whether it was revoked."""
    found = given.facts.agent
    if found is None:
        return unknown(_UNASKED, EXTRAS)
    joined = found.joined
    if joined is None:
        return ok(Found.CREDENTIAL_NONE.because())
    if not joined.stored:
        return problem(Found.CREDENTIAL_MISSING.because(), _AGAIN)
    left = None if joined.expires is None else joined.expires - given.facts.now
    if left is not None and left <= 0:
        return problem(Found.CREDENTIAL_EXPIRED.because(days=-left / DAY), _AGAIN)
    if joined.login is Login.REFUSED:
        return problem(Found.CREDENTIAL_REVOKED.because(), _AGAIN)
    return _dated(found, joined, left)


def _dated(found: Agent, joined: Joined, left: float | None) -> Findings:
    days, ends = joined.age / DAY, -1.0 if left is None else left / DAY
    if left is None:
        if joined.login is Login.ACCEPTED:
            return ok(Found.CREDENTIAL_ACCEPTED.because(days=days))
        return unknown(Found.CREDENTIAL_UNASKED.because(days=days))
    if joined.age >= _NOT_RENEWED or left < _SOON:
        return warning(Found.CREDENTIAL_OLD.because(days=days, left=ends), *_renews(found))
    if joined.login is Login.UNASKED:
        return unknown(Found.CREDENTIAL_UNCHECKED.because(days=days, left=ends))
    return ok(Found.CREDENTIAL_GOOD.because(days=days, left=ends))


def _renews(found: Agent) -> tuple[Fix, ...]:
    if not found.running:
        return (command(start_of(found)),)
    return (
        advice("the agent renews it while it reaches the main machine; if it does not, join again"),
        *_log(found.service),
    )
