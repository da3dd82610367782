"""Counts leaks: objects of every kind without an owner.

An idle fleet has exactly this: as many Pods as its pool asks for, a ServiceAccount and a VM for each of them, a slot
for each that has polled, no registration at GitHub, no process and no file of a VM that does not exist. Anything
beyond that is a leak, listed by kind and name.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

Names = tuple[str, ...]
KINDS = ("pods", "accounts", "vms", "slots", "registrations", "processes", "files")
HELD = ("offered", "armed", "executing", "draining")


class FleetSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that exists at one moment."""

    replicas: int
    pods: Mapping[str, str]  # uid → name
    busy: Names  # names of Pods that are stamped, ended or terminating
    accounts: Names
    vms: Mapping[str, Names]  # host → VM names
    slots: tuple[dict[str, Any], ...]
    registrations: Names
    processes: Mapping[int, str]  # pid → the VM that it belongs to, or a marker that was found
    directories: Mapping[str, Names]  # host → directories of VMs
    records: Mapping[str, Names]  # host → Pod uids with a record
    leftovers: Names = ()  # what VMs that have ended left outside their directories


def leaks(snapshot: FleetSnapshot) -> dict[str, Names]:
    """What has no owner, by kind; empty tuples in an idle fleet."""
    uids = dict(snapshot.pods)
    names = sorted(uids.values())
    surplus = names[snapshot.replicas :] if len(names) > snapshot.replicas else []

    def orphan(vm: str) -> bool:
        return not any(uid in vm for uid in uids)

    vms = [vm for each in snapshot.vms.values() for vm in each]
    return {
        "pods": tuple(sorted({*surplus, *snapshot.busy})),
        "accounts": tuple(name for name in snapshot.accounts if name not in names),
        "vms": tuple(vm for vm in vms if orphan(vm)),
        "slots": tuple(
            f"{slot['pod_name']} ({slot['state']})"
            for slot in snapshot.slots
            if slot["state"] in HELD or slot["fence"] == "due" or slot["pod_uid"] not in uids
        ),
        "registrations": snapshot.registrations,
        "processes": tuple(
            f"{pid} of {vm}" for pid, vm in sorted(snapshot.processes.items()) if vm not in vms
        ),
        "files": tuple(
            [
                f"{host}/{directory}"
                for host, each in snapshot.directories.items()
                for directory in each
                if directory not in snapshot.vms.get(host, ())
            ]
            + [
                f"{host}/record {uid}"
                for host, each in snapshot.records.items()
                for uid in each
                if uid not in uids
            ]
            + [*snapshot.leftovers]
        ),
    }


def processes(root: Path, marker: str) -> dict[int, str]:
    """Processes that carry a VM's name in their environment, or the demo's marker in their arguments.

    Except on Linux only the marker is searched: another process's environment cannot be read.
    """
    return _by_proc(root, marker) if sys.platform == "linux" else _by_ps(marker)


def _by_proc(root: Path, marker: str) -> dict[int, str]:
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes()
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue  # ended, or not ours
        if marker.encode() in arguments:
            found[int(entry.name)] = marker
        elif b"RUNYARD_VM=" in environment and os.fsencode(root) in environment:
            variables = dict(
                item.split(b"=", 1) for item in environment.split(b"\0") if b"=" in item
            )
            found[int(entry.name)] = variables.get(b"RUNYARD_VM", b"").decode(errors="replace")
    return found


def _by_ps(marker: str) -> dict[int, str]:
    listed = subprocess.run(
        ["ps", "-axo", "pid=,args="], capture_output=True, text=True, check=False
    )
    lines = (line.split(None, 1) for line in listed.stdout.splitlines())
    return {
        int(pid): marker
        for pid, arguments in (line for line in lines if len(line) == 2)
        if marker in arguments
    }
