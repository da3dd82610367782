"""Judges what a Linux host offers to jobs that run as processes: a sandbox, a network of their own, limits."""

import re
from shlex import quote

from runyard.hosts.doctor.plans.findings import (
    Ended,
    Findings,
    Given,
    Kvm,
    Output,
    advice,
    command,
    failed,
    not_done,
    not_understood,
    ok,
    problem,
    unknown,
    warning,
)
from runyard.hosts.doctor.plans.reasons import Found

_NAMED_VERSION = re.compile(r"^\w[\w -]{0,30}?\sv?(\d{1,6}(?:\.\d{1,6}){1,3})\b", re.ASCII)
_WATCHES, _INSTANCES = 65_536, 128
_LIMITED = ("cpu", "memory", "pids")
_DELEGATE = command("systemd-run --user --scope -p Delegate=yes runyard up")


def sandbox(given: Given) -> Findings:
    """Judge `bwrap --version`."""
    [output] = given.outputs
    if output.ended is Ended.MISSING:
        return warning(Found.SANDBOX_ABSENT.because(), command("sudo apt-get install bubblewrap"))
    if why := failed(output):
        return unknown(why)
    found = _NAMED_VERSION.match(output.out)
    return ok(Found.SANDBOX_WORKS.because(version=found[1])) if found else not_understood(output)


def vm_network(given: Given) -> Findings:
    """Judge `slirp4netns --version`."""
    [output] = given.outputs
    if output.ended is Ended.MISSING:
        return warning(Found.NETWORK_ABSENT.because(), command("sudo apt-get install slirp4netns"))
    if why := failed(output):
        return unknown(why)
    found = _NAMED_VERSION.match(output.out)
    return ok(Found.NETWORK_WORKS.because(version=found[1])) if found else not_understood(output)


def user_namespaces(given: Given) -> Findings:
    """Judge the kernel's settings, and a trial. Each distribution has other settings, so absent ones are normal."""
    most, unprivileged, restricted, trial = given.outputs
    if given.facts.root:
        return ok(Found.NAMESPACES_NOT_NEEDED.because())
    for setting, name, wrong, right in (
        (most, "user.max_user_namespaces", "0", "15000"),
        (unprivileged, "kernel.unprivileged_userns_clone", "0", "1"),
        (restricted, "kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ):
        refused = setting.ended is Ended.DONE and setting.out.strip() == wrong
        if refused and (trial.ended is not Ended.DONE or trial.code != 0):
            return problem(
                Found.NAMESPACES_REFUSED.because(setting=name, value=wrong),
                command(f"sudo sysctl -w {name}={right}"),
                advice(f"to keep it after a restart, write it to /etc/sysctl.d/: {name} = {right}"),
            )
    if why := not_done(trial):
        return unknown(why)
    if trial.code != 0:
        fix = advice("if this is a container, start it with user namespaces allowed")
        return problem(Found.NAMESPACES_FAIL.because(), fix)
    return ok(Found.NAMESPACES_GRANTED.because())


def cgroups(given: Given) -> Findings:
    """Judge which controllers there are, and whether our own group may be divided by this user."""
    controllers, own = given.outputs
    if controllers.ended is Ended.MISSING:
        fix = advice("boot with systemd.unified_cgroup_hierarchy=1", reboot=True)
        return warning(Found.CGROUPS_OLD.because(), fix)
    for output in given.outputs:
        if why := not_done(output):
            return unknown(why)
    names = controllers.out.split()
    if not all(re.fullmatch(r"[a-z0-9_]{1,32}", name) for name in names):
        return not_understood(controllers)
    if own.value is None:
        return not_understood(own)
    if not own.value:
        return warning(Found.CGROUPS_NOT_DELEGATED.because(), _DELEGATE)
    if missing := [name for name in _LIMITED if name not in names]:
        return warning(Found.CGROUPS_PARTIAL.because(missing=" and ".join(missing)), _DELEGATE)
    return ok(Found.CGROUPS_DELEGATED.because(controllers=", ".join(_LIMITED)))


def kvm(given: Given) -> Findings:
    """Judge /dev/kvm, for later: no driver of this release uses it."""
    [output] = given.outputs
    if output.ended is Ended.MISSING:
        return ok(Found.KVM_ABSENT.because())
    if why := not_done(output):
        return unknown(why)
    device = output.value
    if not isinstance(device, Kvm):
        return not_understood(output)
    if device.usable:
        return ok(Found.KVM_USABLE.because())
    if device.group:
        user = quote(given.facts.user)
        fix = command(f"sudo usermod -aG {quote(device.group)} {user}")
        return warning(Found.KVM_FORBIDDEN.because(), fix, advice("log out and in again"))
    rule = 'KERNEL=="kvm", GROUP="kvm", MODE="0660"'
    return warning(
        Found.KVM_FORBIDDEN.because(),
        advice(f"have udev give it to a group, in /etc/udev/rules.d/65-kvm.rules: {rule}"),
    )


def inotify(given: Given) -> Findings:
    """Judge how many files this user's processes may watch; jobs share the limit."""
    numbers = []
    for output in given.outputs:
        if why := not_done(output):
            return unknown(why)
        number = _number(output)
        if number is None:
            return not_understood(output)
        numbers.append(number)
    watches, instances = numbers
    if watches >= _WATCHES and instances >= _INSTANCES:
        return ok(Found.WATCHES_ENOUGH.because(watches=watches, instances=instances))
    return warning(
        Found.WATCHES_FEW.because(watches=watches, instances=instances),
        command(
            "sudo sysctl -w fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=1024"
        ),
    )


def _number(output: Output) -> int | None:
    found = re.fullmatch(r"\d{1,18}", output.out.strip(), re.ASCII)
    return int(found[0]) if found else None
