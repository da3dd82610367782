"""Renders what `runyard doctor` found: pure functions from findings to text and JSON.

Problems come first, then warnings, then what is unknown; what is fine is counted, and shown with `--verbose`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runyard.hosts.doctor.checks import Check, Command, File, Group, Probe
from runyard.hosts.doctor.plans.findings import Finding, Findings, Fix, Verdict
from runyard.hosts.doctor.plans.ids import CheckId
from runyard.hosts.doctor.plans.next_step import NextStep
from runyard.wire.reasons import render

_PLURAL = {
    Verdict.PROBLEM: ("problem", "problems"),
    Verdict.WARNING: ("warning", "warnings"),
    Verdict.UNKNOWN: ("unknown", "unknown"),
    Verdict.OK: ("ok", "ok"),
}
TITLES = {
    Group.MAC: "this Mac",
    Group.TART: "tart",
    Group.LINUX: "this Linux host",
    Group.MACHINE: "this machine",
    Group.HOST: "the agent on this machine",
    Group.FLEET: "the fleet",
}
Results = Mapping[CheckId, Findings]


def counted(results: Results) -> dict[Verdict, int]:
    """How many findings there are of each verdict."""
    found = Counter(each.verdict for findings in results.values() for each in findings)
    return {verdict: found[verdict] for verdict in Verdict}


def results_json(checks: Sequence[Check], results: Results, step: NextStep) -> dict[str, Any]:
    """All findings, for scripts."""
    counts = counted(results)
    return {
        "ok": counts[Verdict.PROBLEM] == 0,
        "counts": {verdict.value: count for verdict, count in counts.items()},
        "findings": [
            {
                "check": check.id.value,
                "group": check.group.value,
                "question": check.id.template,
                "verdict": each.verdict.value,
                "reason": each.reason.slug,
                "detail": each.reason.fields,
                "text": render(each.reason),
                "fixes": list(each.fixes),
            }
            for check in checks
            for each in results[check.id]
        ],
        "next": {
            "reason": step.reason.slug,
            "text": render(step.reason),
            "command": step.command,
        },
    }


def results_text(
    checks: Sequence[Check], results: Results, step: NextStep, *, verbose: bool = False
) -> str:
    """All findings, for people."""
    shown = list(Verdict) if verbose else [each for each in Verdict if each is not Verdict.OK]
    blocks = [
        "\n".join(_block(verdict, checks, results, verbose=verbose))
        for verdict in shown
        if any(each.verdict is verdict for found in results.values() for each in found)
    ]
    last = f"Next: {render(step.reason)}\n  {step.command}"
    return "\n\n".join([*blocks, summary(results), last])


def summary(results: Results) -> str:
    """The counts, in one line."""
    counts = counted(results)
    return ", ".join(f"{count} {_PLURAL[each][count != 1]}" for each, count in counts.items())


def _block(
    verdict: Verdict, checks: Sequence[Check], results: Results, *, verbose: bool
) -> Iterator[str]:
    yield _PLURAL[verdict][1].upper()
    for group in Group:
        found = [
            (check, each)
            for check in checks
            if check.group is group
            for each in results[check.id]
            if each.verdict is verdict
        ]
        if found:
            yield f"  {TITLES[group]}"
        for check, each in found:
            yield from _lines(check, each, verbose=verbose)


def _lines(check: Check, finding: Finding, *, verbose: bool) -> Iterator[str]:
    yield f"    {check.id.value}: {render(finding.reason)}"
    for fix in finding.fixes:
        yield f"      fix: {_fix(fix)}"
    if verbose:
        yield f"      looked at: {looked_at(check)}"


def _fix(fix: Fix) -> str:
    return f"{fix.do}{'   (then restart the Mac)' if fix.reboot and fix.command else ''}"


def looked_at(check: Check) -> str:
    """What a check reads, for people."""
    return check.looks_at or "; ".join(dict.fromkeys(probe_text(each) for each in check.probes))


_INSPECTED = {
    "data-directory": "owner and mode of the data directory",
    "login-password": "/etc/kcpassword (that it exists; as root also that macOS accepted it)",
    "tart-home": "VMs and images in ~/.tart, or TART_HOME",
    "own-vms": "the records of VMs in the directories of `runyard up` and of the agent",
    "cgroup-delegated": "rights at the control group of this shell",
    "kvm": "/dev/kvm",
}


def probe_text(probe: Probe) -> str:
    """What a probe reads, for people."""
    match probe:
        case Command():
            return (
                " ".join(probe.argv)
                .replace("{uid}", "UID")
                .replace("{tart_disk}", "~/.tart")
                .replace("{data_disk}", "DATA")
            )
        case File():
            return probe.path
        case _:
            return _INSPECTED[probe.name]
