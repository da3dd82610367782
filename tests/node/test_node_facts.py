"""Reading Pods and writing their status: grace that counts down, and nothing of others lost."""

from typing import Any

import pytest
from tests.node.podworld import SETTINGS, record

from runyard.kube.objects import Reader
from runyard.node.facts import HostPod, facts_of, status_patch
from runyard.node.plans.actions import Report
from runyard.node.plans.values import Outcome
from runyard.wire.instants import to_rfc3339

NOW = 1_800_000_000.0


def pod(meta: dict[str, Any] | None = None, **parts: Any) -> HostPod:
    container = {"name": "runner", "image": "i"}
    body = {"metadata": {"name": "p", **(meta or {})}, "spec": {"containers": [container]}, **parts}
    return Reader(HostPod).of(body)


GRACES = {
    "just asked": (30, 30.0, 30.0),
    "asked a while ago, before a crash": (30, 12.0, 12.0),
    "overdue": (30, -500.0, 0.0),
    "by force": (0, 0.0, 0.0),
    "a clock that runs behind does not extend it": (30, 900.0, 30.0),
    "more than anybody may wait": (10**9, 1e9, SETTINGS.max_grace),
}


@pytest.mark.parametrize(("seconds", "left", "expected"), GRACES.values(), ids=list(GRACES))
def test_what_is_left_of_the_grace_period(seconds: int, left: float, expected: float) -> None:
    meta = {
        "deletionTimestamp": to_rfc3339(min(NOW + left, 4e9)),
        "deletionGracePeriodSeconds": seconds,
    }
    facts = facts_of(pod(meta), SETTINGS, NOW)
    assert facts.deleting and facts.grace == expected


def test_conditions_of_others_are_carried_over_as_they_came() -> None:
    theirs = {"type": "PodScheduled", "status": "True", "observedGeneration": 3}
    ours = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    seen = pod(status={"conditions": [theirs, ours]})
    report = Report(phase="Running", ready=True, pod_ip="10.0.0.1", started_at=NOW)
    status = status_patch(seen, record(), report, SETTINGS, NOW)["status"]
    assert status["conditions"][0] == theirs
    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert ready["lastTransitionTime"] == "2026-01-01T00:00:00Z", "nothing has changed"
    assert status["reason"] is None, "what was said before is taken back"


def test_the_end_of_a_pod_has_its_code_its_times_and_its_reason() -> None:
    outcome = Outcome(exit_code=3, reason="Error", message="boom", finished_at=NOW - 5)
    report = Report(phase="Failed", reason="TartRunExited", started_at=NOW - 50, outcome=outcome)
    status = status_patch(pod(), record(), report, SETTINGS, NOW)["status"]
    assert status["containerStatuses"][0]["state"] == {
        "terminated": {
            "exitCode": 3,
            "reason": "Error",
            "message": "boom",
            "startedAt": to_rfc3339(NOW - 50),
            "finishedAt": to_rfc3339(NOW - 5),
        }
    }
    assert "podIP" not in status, "the address that it had stays"


HOSTILE: dict[str, dict[str, Any]] = {
    "no containers": {"spec": {"containers": []}},
    "nulls": {"spec": {"containers": None}, "status": None},
    "a timestamp that is none": {"metadata": {"name": "p", "deletionTimestamp": "soon"}},
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=list(HOSTILE))
def test_an_odd_pod_is_read_and_not_served(body: dict[str, Any]) -> None:
    odd = Reader(HostPod).of({"metadata": {"name": "p"}, **body})
    assert not facts_of(odd, SETTINGS, NOW).admitted
