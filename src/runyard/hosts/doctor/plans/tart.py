"""Judges tart: its version, the VMs that run, and whether images fit on its disk.

Running VMs and images are read from tart's directory: `tart list` would delete what an interrupted pull has left.
"""

import re
from shlex import quote

from runyard.hosts.doctor.plans.findings import (
    GB,
    Ended,
    Findings,
    Given,
    OwnVms,
    TartHome,
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
from runyard.hosts.doctor.plans.space import free_bytes

TESTED = (2, 32, 1)
GENERATION = 2
SLOTS = 2  # Apple's licence allows two macOS VMs, and macOS refuses a third
INSTALL = command("brew install cirruslabs/cli/tart")
_UPGRADE = command("brew upgrade cirruslabs/cli/tart")
_FULL, _SMALL_IMAGE, _XCODE_IMAGE = 20 * GB, 40 * GB, 90 * GB
_PRUNE = command("tart prune --entries caches --older-than 30")
# A VM shares its blocks with the image that it was cloned from, so only both together free them.
_DELETE = advice("delete VMs of your own that you no longer need: tart delete NAME")
_MAKE_SPACE = advice("free some space, or use an image without Xcode")
_UID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$", re.ASCII)  # of a job's Pod
_SHOWN = 5


def tart(given: Given) -> Findings:
    """Judge `tart --version`."""
    [output] = given.outputs
    if output.ended is Ended.MISSING:
        return problem(Found.TART_ABSENT.because(), INSTALL)
    if why := failed(output):
        return unknown(why)
    found = re.fullmatch(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", output.out.strip(), re.ASCII)
    if found is None:
        return not_understood(output)
    version = tuple(int(part or 0) for part in found.groups())
    if version[0] != GENERATION:
        fix = advice(f"use tart {'.'.join(map(str, TESTED))}, or a newer runyard")
        return warning(Found.TART_UNKNOWN.because(version=found[0]), fix)
    if version[:2] < TESTED[:2]:
        least = ".".join(map(str, TESTED))
        return warning(Found.TART_OLD.because(version=found[0], least=least), _UPGRADE)
    return ok(Found.TART_SUITABLE.because(version=found[0]))


def vm_slots(given: Given) -> Findings:
    """Judge the VMs that run: those without a record here are of others.

    Jobs go on while the fleet or the agent does not run, so whether it does is no proof. A VM that is named as a job's
    may belong to an agent with another directory: no command to stop it is given.
    """
    running, records = given.outputs
    for output in given.outputs:
        if why := not_done(output):
            return unknown(why)
    home, own = running.value, records.value
    if not isinstance(home, TartHome):
        return not_understood(running)
    if not isinstance(own, OwnVms):
        return not_understood(records)
    used, total = len(home.running), SLOTS
    if not used:
        return ok(Found.SLOTS_FREE.because(used=used, total=total))
    others = [name for name in home.running if name not in own.names]
    jobs = [name for name in others if _UID.search(name)]
    strangers = [name for name in others if name not in jobs][:_SHOWN]
    found: Findings = ()
    if strangers:
        found += warning(
            Found.SLOTS_TAKEN.because(used=used, total=total, names=", ".join(strangers)),
            *(command(f"tart stop {quote(name)}") for name in strangers),
        )
    if jobs:
        found += warning(
            Found.SLOTS_UNRECORDED.because(used=used, total=total, names=", ".join(jobs[:_SHOWN])),
            advice(
                "if an agent here has another directory, name it: runyard doctor --agent-data DIR"
            ),
        )
    return found or ok(Found.SLOTS_OWN.because(used=used, total=total))


def image_space(given: Given) -> Findings:
    """Judge the free space against the images that are there, or against the first one."""
    space, inventory = given.outputs
    for output in given.outputs:
        if why := not_done(output):
            return unknown(why)
    free, home = free_bytes(space), inventory.value
    if free is None:
        return not_understood(space)
    if not isinstance(home, TartHome):
        return not_understood(inventory)
    largest = max((size for _, size in home.images), default=0)
    if not home.images and free < _SMALL_IMAGE:
        return problem(Found.IMAGES_NONE_FIT.because(free=free / GB), _MAKE_SPACE)
    if free < _FULL:
        return problem(Found.IMAGES_FULL.because(free=free / GB), _PRUNE, _DELETE)
    if not home.images and free < _XCODE_IMAGE:
        reason = Found.IMAGES_FIRST_TIGHT.because(free=free / GB, needed=_XCODE_IMAGE / GB)
        return warning(reason, _MAKE_SPACE)
    if not home.images:
        return ok(Found.IMAGES_FIRST_FITS.because(free=free / GB))
    if free < largest:
        reason = Found.IMAGES_NEXT_TIGHT.because(free=free / GB, largest=largest / GB)
        return warning(reason, _PRUNE, _DELETE)
    return ok(Found.IMAGES_FIT.because(free=free / GB, largest=largest / GB))
