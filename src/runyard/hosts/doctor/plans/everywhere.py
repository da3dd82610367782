"""Judges what every machine needs, whatever its system: Python, memory, a clock, open files, the data directory."""

import re
from shlex import quote

from runyard.hosts.doctor.plans.findings import (
    GB,
    Findings,
    Fix,
    Folder,
    Given,
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

OLDEST_PYTHON = (3, 11)
REINSTALL = command("uv tool install --reinstall --python 3.13 'runyard[up]'")
NATIVE = command("uv tool install --reinstall --python cpython-3.13-macos-aarch64 'runyard[up]'")
EXTRAS = command("uv tool install --reinstall 'runyard[up]'")
_FEW_FILES = 1024
_TIGHT, _FULL = 10 * GB, 2 * GB
_TWO_VMS, _ONE_VM = 16 * GB, 8 * GB
_SMALL, _TOO_SMALL = 3.5 * GB, 1.5 * GB
SKEW_WARN, SKEW_FAIL = 10.0, 55.0  # as in `runyard github check`
_NETWORK = frozenset(
    [
        "9p",
        "afpfs",
        "afs",
        "autofs",
        "ceph",
        "cifs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs3",
        "nfs4",
        "smb2",
        "smb3",
        "smbfs",
        "webdav",
    ]
)
_CLOUDS = (
    ("/Library/Mobile Documents/", "iCloud Drive"),
    ("/Library/CloudStorage/", "a cloud service"),
    ("/Dropbox/", "Dropbox"),
    ("/OneDrive/", "OneDrive"),
    ("/Google Drive/", "Google Drive"),
)


def python(given: Given) -> Findings:
    """Judge this very Python; on macOS by `sysctl -n hw.optional.arm64` also whether it is translated."""
    facts = given.facts
    version = ".".join(map(str, facts.python))
    if facts.python[:2] < OLDEST_PYTHON:
        least = ".".join(map(str, OLDEST_PYTHON))
        return problem(Found.PYTHON_OLD.because(version=version, least=least), REINSTALL)
    suitable = ok(Found.PYTHON_SUITABLE.because(version=version, arch=facts.arch))
    if not given.outputs or facts.arch == "arm64":
        return suitable
    [processor] = given.outputs
    if why := not_done(processor):
        return unknown(why)
    if processor.code == 0 and processor.out.strip() == "1":
        return problem(Found.PYTHON_TRANSLATED.because(version=version, arch=facts.arch), NATIVE)
    if processor.code != 0 or processor.out.strip() == "0":
        return suitable  # an Intel Mac, which another check reports
    return not_understood(processor)


def extras(given: Given) -> Findings:
    """Judge which modules of `runyard[up]` are not installed."""
    missing = given.facts.extras
    if not missing:
        return ok(Found.EXTRAS_INSTALLED.because())
    agent, machine = given.facts.agent, given.facts.machine
    fleet = machine is not None and machine.running
    if agent is not None and agent.running and agent.joined is None and not fleet:
        return ok(Found.EXTRAS_NOT_NEEDED.because())
    return problem(Found.EXTRAS_MISSING.because(modules=", ".join(missing)), EXTRAS)


def memory(given: Given) -> Findings:
    """Judge the size of memory, by `sysctl -n hw.memsize` or /proc/meminfo."""
    [output] = given.outputs
    if why := failed(output):
        return unknown(why)
    mac = given.facts.platform == "darwin"
    pattern = r"\s*(\d{1,18})\s*$" if mac else r"MemTotal:\s+(\d{1,18}) kB\s"
    found = re.match(pattern, output.out, re.ASCII)
    if found is None or not int(found[1]):
        return not_understood(output)
    total = int(found[1]) * (1 if mac else 1024)
    if total < (_ONE_VM if mac else _TOO_SMALL):
        more = advice("use a machine with more memory, or connect this one as a smaller host")
        return problem(Found.MEMORY_TOO_SMALL.because(total=total / GB), more)
    if mac and total < _TWO_VMS:
        reason = Found.MEMORY_FOR_ONE.because(total=total / GB)
        one = (
            "run one VM at a time: give `runyard up` or `runyard host join` the option --vm-slots 1"
        )
        return warning(reason, advice(one))
    if total < _SMALL:
        reason = Found.MEMORY_SMALL.because(total=total / GB)
        return warning(reason, advice("use a machine with more memory for larger jobs"))
    return ok(Found.MEMORY_ENOUGH.because(total=total / GB))


def set_clock(platform: str) -> Fix:
    """The command that sets the clock."""
    mac = platform == "darwin"
    return command("sudo sntp -sS time.apple.com" if mac else "sudo timedatectl set-ntp true")


def mac_clock(given: Given) -> Findings:
    """Judge `sntp time.apple.com`: what it adds to this clock would make it right."""
    [output] = given.outputs
    if why := failed(output):
        return unknown(why)
    lines = re.findall(r"(?:^|\s)([+-]\d{1,12}\.\d{1,9})\s+\+/-\s", output.out, re.ASCII)
    if not lines:
        return not_understood(output)
    skew = -float(lines[-1])
    fix = set_clock("darwin")
    keep = command("sudo systemsetup -setusingnetworktime on")
    if abs(skew) >= SKEW_FAIL:
        return problem(Found.CLOCK_WRONG.because(skew=skew), fix, keep)
    if abs(skew) >= SKEW_WARN:
        return warning(Found.CLOCK_OFF.because(skew=skew), fix, keep)
    return ok(Found.CLOCK_RIGHT.because(skew=skew))


def linux_clock(given: Given) -> Findings:
    """Judge `timedatectl show -p NTP -p NTPSynchronized`; a container has none of it."""
    [output] = given.outputs
    if why := failed(output):
        return unknown(why)
    found = dict(re.findall(r"^(NTP|NTPSynchronized)=(yes|no)$", output.out, re.MULTILINE))
    match found.get("NTPSynchronized"):
        case "yes":
            return ok(Found.CLOCK_SYNCHRONISED.because())
        case "no":
            fix = set_clock("linux")
            return warning(Found.CLOCK_NOT_SYNCHRONISED.because(), fix)
        case _:
            return not_understood(output)


def open_files(given: Given) -> Findings:
    """Judge the soft limit; launchd gives a process 256."""
    soft, _ = given.facts.open_files
    if soft < 0:
        return ok(Found.FILES_UNLIMITED.because())
    if soft >= _FEW_FILES:
        return ok(Found.FILES_ENOUGH.because(soft=soft))
    return warning(
        Found.FILES_FEW.because(soft=soft),
        advice("in the shell that starts runyard: ulimit -n 8192"),
    )


def data_directory(given: Given) -> Findings:
    """Judge who owns the data directory and who may enter it. Under root, users of VMs pass through: 0711."""
    [output] = given.outputs
    if why := not_done(output):
        return unknown(why)
    folder = output.value
    if not isinstance(folder, Folder):
        return not_understood(output)
    path, place = folder.path, quote(folder.path)
    if not folder.exists:
        if not folder.writable:
            fix = advice("choose another directory with --data DIR")
            return problem(Found.DATA_READ_ONLY.because(path=path), fix)
        return ok(Found.DATA_NEW.because(path=given.facts.data))
    owner = 0 if given.facts.root else given.facts.uid
    if folder.owner not in {owner, given.facts.uid}:
        return problem(
            Found.DATA_FOREIGN.because(path=path, owner=folder.owner),
            advice("run it as its owner, or choose another directory with --data DIR"),
        )
    if not folder.writable:
        reason = Found.DATA_READ_ONLY.because(path=path)
        return problem(reason, command(f"chmod u+rwx {place}"))
    if folder.used and folder.mode & 0o066:
        reason = Found.DATA_OPEN.because(path=path, mode=f"{folder.mode:04o}")
        return problem(reason, command(f"chmod 700 {place}"))
    return ok(Found.DATA_PRIVATE.because(path=path))


def data_location(given: Given) -> Findings:
    """Judge where the data directory is: `mount` on macOS, /proc/self/mounts on Linux."""
    mounts, place = given.outputs
    for output in given.outputs:
        if why := failed(output):
            return unknown(why)
    folder = place.value
    if not isinstance(folder, Folder):
        return not_understood(place)
    path = folder.path
    cloud = _cloud(path, given.facts.home, mac=given.facts.platform == "darwin")
    move = advice("choose a directory on a local disk with --data DIR, or RUNYARD_DATA")
    if cloud:
        return problem(Found.DATA_IN_CLOUD.because(path=path, cloud=cloud), move)
    kind = file_system(mounts.out, path)
    if not kind:
        return not_understood(mounts)
    if kind in _NETWORK:
        return problem(Found.DATA_ON_NETWORK.because(path=path, kind=kind), move)
    return ok(Found.DATA_LOCAL.because(path=path, kind=kind))


def _cloud(path: str, home: str, *, mac: bool) -> str:
    """The service that synchronises this place. iCloud takes a Mac's Desktop and Documents too, if it is allowed."""
    inside = f"{path}/"
    for part, service in _CLOUDS:
        if part in inside:
            return service
    own = (f"{home}/Desktop/", f"{home}/Documents/")
    return (
        "iCloud Drive, if it keeps Desktop and Documents" if mac and inside.startswith(own) else ""
    )


def file_system(mounts: str, path: str) -> str:
    """The type of the file system that has this path; empty if the text is no list of mounts."""
    best, kind = "", ""
    for line in mounts.splitlines():
        found = re.match(r".+? on (/.*) \(([\w.]{1,32})[,)]", line) or re.match(
            r"\S+ (/\S*) ([\w.]{1,32}) \S+ \d+ \d+$", line
        )
        if found is None:
            continue
        point = found[1].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found[2]
    return kind


def data_space(given: Given) -> Findings:
    """Judge what `df` says of the data directory's file system."""
    [output] = given.outputs
    if why := failed(output):
        return unknown(why)
    free = free_bytes(output)
    if free is None:
        return not_understood(output)
    make = advice("free some space, or choose another disk with --data DIR")
    if free < _FULL:
        return problem(Found.DATA_FULL.because(free=free / GB), make)
    if free < _TIGHT:
        return warning(Found.DATA_TIGHT.because(free=free / GB), make)
    return ok(Found.DATA_HAS_SPACE.because(free=free / GB))
