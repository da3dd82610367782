"""`runyard status` gives a pool whose VMs cannot be created the fix for the kind of failure."""

import pytest
from tests.web.explain.explain_samples import a_context, a_pod, a_pool, a_runner, waits
from tests.web.web_samples import NOW

from runyard.cli.statusview import Readings, status_of
from runyard.node.plans.pod import create_failed
from runyard.vm.contract import Fault
from runyard.web.explain.pools import explain_pool
from runyard.web.explain.values import explained
from runyard.web.explain.views import ExplanationView, view

FIXES = {
    Fault.NO_SPACE: "Free space on the disk of mini-1",
    Fault.SLOTS_FULL: "tart stop",
    Fault.IMAGE_MISSING: "runyard pool create mac --image",
    Fault.UNAUTHORIZED: "On mini-1, log in",
    Fault.UNREACHABLE: "Check the network of mini-1",
    Fault.PULL_STALLED: "Check the network of mini-1",
    Fault.DRIVER_FAILED: "Correct what the message says",
    Fault.DRIVER_HUNG: "Correct what the message says",
}


def stuck(fault: Fault, *, seconds: float = 600.0) -> ExplanationView:
    """The explanation of a pool whose only runner has failed in this way."""
    report = create_failed("x", fault)
    status = {**waits(report.waiting, "x"), "reason": report.reason, "message": "x"}
    status["startTime"] = "2027-01-15T07:59:00Z"
    context = a_context(pools=[a_pool()], pods=[a_pod(status=status)], runners=(a_runner(),))
    chain = explain_pool(a_pool(), context)
    since = chain[-1].since
    assert since is not None
    return view(explained("pool", "mac", chain, at=since + seconds))


@pytest.mark.parametrize("fault", Fault)
def test_a_full_disk_is_to_be_repaired_by_another_image(fault: Fault) -> None:
    read = Readings(at=NOW, where="here", version="1", starting=(stuck(fault),))
    (problem,) = status_of(read).problems
    assert problem.where == "pool mac"
    assert FIXES[fault] in problem.fix


def test_a_runner_that_waits_a_moment_for_a_slot_is_a_problem() -> None:
    short = stuck(Fault.SLOTS_FULL, seconds=5.0)
    assert status_of(Readings(at=NOW, where="here", version="1", starting=(short,))).problems == ()
