"""Judges the fleet on this machine: its components, health conditions, ports, and GitHub.

Invariant: a check that was not asked for says so, and is not ok.
"""

from runyard.hosts.doctor.plans.everywhere import EXTRAS
from runyard.hosts.doctor.plans.findings import (
    Finding,
    Findings,
    Given,
    Verdict,
    advice,
    command,
    ok,
    problem,
    unknown,
    warning,
)
from runyard.hosts.doctor.plans.reasons import Found

_LOGS = advice("read the log in the directory logs of the data directory")
_UNASKED = Found.MACHINE_UNASKED.because()


def components(given: Given) -> Findings:
    """Judge whether the fleet runs, and which components respond."""
    machine = given.facts.machine
    if machine is None:
        return unknown(_UNASKED)
    if machine.damaged:
        fix = advice("restore it from a backup, or move it away to start with an empty one")
        return problem(Found.MACHINE_DAMAGED.because(why=machine.damaged), fix)
    if not machine.running:
        return ok(Found.MACHINE_STOPPED.because())
    silent = [each.name for each in machine.components if not each.alive]
    if silent:
        restart = advice(
            "if the fleet was just ended or killed: look again in a minute, and start it with"
            f" `runyard up{given.facts.data_option}`"
        )
        fixes = (restart, _LOGS) if len(silent) == len(machine.components) else (_LOGS,)
        return problem(Found.COMPONENT_SILENT.because(names=", ".join(silent)), *fixes)
    return ok(Found.MACHINE_RUNS.because(count=len(machine.components)))


def conditions(given: Given) -> Findings:
    """Judge the server's health conditions: each that fails is a finding of its own."""
    machine = given.facts.machine
    if machine is None:
        return unknown(_UNASKED)
    if not machine.running:
        return ok(Found.CONDITIONS_NOT_ASKED.because())
    if machine.conditions is None:
        return unknown(Found.CONDITIONS_UNREAD.because(), _LOGS)
    if not machine.conditions:
        return ok(Found.CONDITIONS_WELL.because())
    return tuple(
        Finding(
            verdict=Verdict.PROBLEM if each.error else Verdict.WARNING,
            reason=Found.CONDITION_FAILS.because(title=each.title, code=each.code),
            fixes=(advice(each.fix),),
        )
        for each in machine.conditions
    )


def ports(given: Given) -> Findings:
    """Judge whether another program listens on a port that the fleet used before."""
    machine = given.facts.machine
    if machine is None:
        return unknown(_UNASKED)
    if machine.running:
        return ok(Found.PORTS_OWN.because(count=machine.ports))
    if not machine.ports:
        return ok(Found.PORTS_UNCHOSEN.because())
    if not machine.taken:
        return ok(Found.PORTS_FREE.because(count=machine.ports))
    return tuple(
        finding
        for name, port in machine.taken
        for finding in warning(
            Found.PORT_TAKEN.because(port=port, component=name),
            command(f"lsof -nP -iTCP:{port} -sTCP:LISTEN"),
            advice("stop that program before you start the fleet"),
        )
    )


def github(given: Given) -> Findings:
    """Judge what `runyard github check` found."""
    asked = given.facts.github
    if asked is None:
        return unknown(Found.GITHUB_UNASKED.because(), EXTRAS)
    if not asked.configured:
        return ok(Found.GITHUB_ABSENT.because())
    if asked.unusable:
        fix = command("runyard github check")
        return problem(Found.GITHUB_UNUSABLE.because(why=asked.unusable), fix)
    return tuple(
        Finding(
            verdict=line.verdict,
            reason=Found.GITHUB_LINE.because(what=line.what, found=line.found),
            fixes=(advice(line.fix),) if line.fix else (),
        )
        for line in asked.lines
    )
