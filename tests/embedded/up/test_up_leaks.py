"""The leak count detects each kind of leak, and an idle fleet has none."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runyard.embedded.up.demo.events import Fault, FaultView, LeftOver
from runyard.embedded.up.demo.jobs import daemon_marker, jobs
from runyard.embedded.up.demo.leaks import KINDS, FleetSnapshot, leaks, processes
from runyard.embedded.up.demo.scenario import Outcome

VM = "runner-a-uid-a"


def slot(**changes: Any) -> dict[str, Any]:
    return {
        "pod_uid": "uid-a",
        "pod_name": "runner-a",
        "state": "idle",
        "fence": "none",
        "intended_job": None,
        "executing_job": None,
    } | changes


REST = FleetSnapshot(
    replicas=2,
    pods={"uid-a": "runner-a", "uid-b": "runner-b"},
    busy=(),
    accounts=("runner-a", "runner-b"),
    vms={"host-1": (VM,), "host-2": ("runner-b-uid-b",)},
    slots=(slot(), slot(pod_uid="uid-b", pod_name="runner-b")),
    registrations=(),
    processes={4711: VM},
    directories={"host-1": (VM,), "host-2": ("runner-b-uid-b",)},
    records={"host-1": ("uid-a",), "host-2": ("uid-b",)},
)

LEAKS: list[tuple[str, dict[str, Any], str, tuple[str, ...]]] = [
    ("one Pod too many", {"replicas": 1}, "pods", ("runner-b",)),
    ("a stamped Pod", {"busy": ("runner-a",)}, "pods", ("runner-a",)),
    ("an account without a Pod", {"accounts": ("runner-a", "runner-z")}, "accounts", ("runner-z",)),
    ("a VM without a Pod", {"vms": REST.vms | {"host-1": (VM, "z-uid-z")}}, "vms", ("z-uid-z",)),
    ("a slot that holds a job", {"slots": (slot(state="armed"),)}, "slots", ("runner-a (armed)",)),
    ("a slot to be fenced", {"slots": (slot(fence="due"),)}, "slots", ("runner-a (idle)",)),
    ("a slot without a Pod", {"slots": (slot(pod_uid="z"),)}, "slots", ("runner-a (idle)",)),
    ("a registration", {"registrations": ("runner-z",)}, "registrations", ("runner-z",)),
    ("a process of no VM", {"processes": {12: "gone"}}, "processes", ("12 of gone",)),
    (
        "a directory of no VM",
        {"directories": {"host-1": (VM, ".old")}},
        "files",
        ("host-1/.old",),
    ),
    (
        "a record of no Pod",
        {"records": {"host-1": ("uid-a", "uid-z")}},
        "files",
        ("host-1/record uid-z",),
    ),
    (
        "what a VM left external its directory",
        {"leftovers": ("/var/lib/users/7",)},
        "files",
        ("/var/lib/users/7",),
    ),
]


def test_an_idle_fleet_has_no_leaks() -> None:
    assert leaks(REST) == dict.fromkeys(KINDS, ())


@pytest.mark.parametrize(
    ("changes", "kind", "found"),
    [row[1:] for row in LEAKS],
    ids=[row[0] for row in LEAKS],
)
def test_a_leak_is_counted_once_and_by_its_kind(
    changes: dict[str, Any], kind: str, found: tuple[str, ...]
) -> None:
    counted = leaks(msgspec.structs.replace(REST, **changes))
    assert counted == dict.fromkeys(KINDS, ()) | {kind: found}


@pytest.mark.skipif(sys.platform != "linux", reason="other processes' environments are Linux's")
def test_a_process_that_a_guest_left_behind_is_found(tmp_path: Path) -> None:
    marks = {"RUNYARD_VM": "vm-1", "RUNYARD_VM_MARK": str(tmp_path / "vms" / "vm-1")}
    guests = [
        ("by its environment", ["cat"], marks),
        ("by its arguments", ["sh", "-c", "read x", "the-marker"], {}),
        ("not ours", ["cat"], marks | {"RUNYARD_VM_MARK": "/elsewhere"}),
    ]
    started = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, env={"PATH": os.environ["PATH"], **env})
        for _, argv, env in guests
    ]
    try:
        found = processes(tmp_path, "the-marker")
        assert {pid: found.get(pid) for pid in (each.pid for each in started)} == {
            started[0].pid: "vm-1",
            started[1].pid: "the-marker",
            started[2].pid: None,
        }
    finally:
        for each in started:
            each.communicate()


def test_the_last_line_says_what_was_counted() -> None:
    outcome = Outcome(
        jobs=20,
        succeeded=19,
        failed_as_scripted=1,
        leaked=0,
        healed=(
            FaultView(fault=Fault.AGENT_KILLED, what="a", seconds=1.2),
            FaultView(fault=Fault.SERVER_KILLED, what="b", seconds=7.6),
        ),
        findings=(),
    )
    assert outcome.line() == (
        "demo: 20 jobs, 19 succeeded, 1 failed as scripted, 0 leaked, 2 faults healed (max 8 s)"
    )


def test_the_last_line_can_be_written_with_no_fault_at_all() -> None:
    none = Outcome(jobs=0, succeeded=0, failed_as_scripted=0, leaked=3, healed=(), findings=())
    assert none.line().endswith("3 leaked, 0 faults healed (max 0 s)")


def test_the_script_has_twenty_jobs_and_four_of_them_misbehave() -> None:
    script = jobs("run", Path("hosts"))
    assert len(script) == 20
    assert len({job.name for job in script}) == 20
    special = [job for job in script if not job.name.startswith("build ")]
    assert [job.name for job in special] == [
        "fails",
        "leaves a daemon behind",
        "probes the sandbox",
        "fills its disk",
    ]
    assert [job.name for job in script if job.conclusion != "success"] == ["fails"]
    assert daemon_marker("run") in special[1].script


def test_two_runs_have_different_daemon_markers() -> None:
    assert daemon_marker("a") != daemon_marker("b")


def test_what_is_left_over_is_counted_by_kind_and_named() -> None:
    left = LeftOver(kinds={"pods": ("a", "b"), "vms": ()})
    assert left.count == 2
    assert left.line() == "left over: pods 2 (a, b), vms 0"
