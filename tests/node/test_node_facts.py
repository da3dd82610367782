"""Tests reading Pods and writing their status."""

from typing import Any, Literal

import msgspec
import pytest
from tests.node.pod_model import SETTINGS, record

from runyard.kube.objects import Reader
from runyard.node.facts import HostPod, facts_of, polls_itself, status_patch, vm_spec
from runyard.node.plans.actions import Report
from runyard.node.plans.spec import UnsupportedSpec
from runyard.node.plans.values import Outcome
from runyard.node.settings import Settings
from runyard.vm.contract import HostPolling
from runyard.wire import names
from runyard.wire.instants import to_rfc3339

NOW = 1_800_000_000.0


def pod(meta: dict[str, Any] | None = None, **parts: Any) -> HostPod:
    container = {"name": "runner", "image": "i"}
    spec = {"containers": [container]}
    body = {"metadata": {"name": "p", **(meta or {})}, "spec": spec, **parts}
    return Reader(HostPod).of(body)


GRACES = {
    "just deleted": (30, 30.0, 30.0),
    "deleted a while ago, before a crash": (30, 12.0, 12.0),
    "overdue": (30, -500.0, 0.0),
    "by force": (0, 0.0, 0.0),
    "a clock that runs behind does not extend it": (30, 900.0, 30.0),
    "longer than the maximum": (10**9, 1e9, SETTINGS.max_grace),
}


@pytest.mark.parametrize(("seconds", "left", "expected"), GRACES.values(), ids=list(GRACES))
def test_the_remaining_grace_period_counts_down_to_the_deletion_timestamp(
    seconds: int, left: float, expected: float
) -> None:
    meta = {
        "deletionTimestamp": to_rfc3339(min(NOW + left, 4e9)),
        "deletionGracePeriodSeconds": seconds,
    }
    facts = facts_of(pod(meta), SETTINGS, NOW)
    assert facts.deleting and facts.grace == expected


def test_conditions_of_other_controllers_are_written_back_unchanged() -> None:
    theirs = {"type": "PodScheduled", "status": "True", "observedGeneration": 3}
    ours = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    seen = pod(status={"conditions": [theirs, ours]})
    report = Report(phase="Running", ready=True, pod_ip="10.0.0.1", started_at=NOW)
    status = status_patch(seen, record(), report, SETTINGS, NOW)["status"]
    assert status["conditions"][0] == theirs
    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert ready["lastTransitionTime"] == "2026-01-01T00:00:00Z", "nothing has changed"
    assert status["reason"] is None, "the previous reason is removed"


def test_a_terminated_container_has_exit_code_times_and_reason() -> None:
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
    assert "podIP" not in status, "the address stays unchanged"


HOSTILE: dict[str, dict[str, Any]] = {
    "no containers": {"spec": {"containers": []}},
    "nulls": {"spec": {"containers": None}, "status": None},
    "an invalid timestamp": {"metadata": {"name": "p", "deletionTimestamp": "soon"}},
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=list(HOSTILE))
def test_a_malformed_pod_is_read_and_ignored(body: dict[str, Any]) -> None:
    odd = Reader(HostPod).of({"metadata": {"name": "p"}, **body})
    assert not facts_of(odd, SETTINGS, NOW).admitted


POLLERS = {
    "the host's setting": ("host", {}, "http://127.0.0.1:4000/x", "host"),
    "the Pod goes first": ("host", {names.POLLER: "guest"}, "https://server/x", "guest"),
    "the Pod wants the host": ("guest", {names.POLLER: "host"}, "http://127.0.0.1/x", "host"),
    "a guest that would poll itself": ("guest", {}, "http://localhost:4000/x", "refused"),
    "a word that means nothing": ("guest", {names.POLLER: "both"}, "https://server/x", "refused"),
    "a Pod that is no runner": ("host", {}, "", "guest"),
}


@pytest.mark.parametrize(("setting", "annotations", "url", "found"), POLLERS.values(), ids=POLLERS)
def test_who_polls_for_a_guest(
    setting: Literal["host", "guest"], annotations: dict[str, str], url: str, found: str
) -> None:
    settings = Settings(node_name="n", poller=setting, server_ca="PEM", runner_archive="/a.tgz")
    env = ({"name": names.ENV_DISPATCH_URL, "value": url},) if url else ()
    spec = {"containers": [{"name": "runner", "image": "i", "env": env}]}
    bound = pod({"annotations": annotations}, spec=spec)
    if found == "refused":
        with pytest.raises(UnsupportedSpec):
            vm_spec(bound, record(), settings, token="t")
        return
    polling = vm_spec(bound, record(), settings, token="t").polling
    wanted = HostPolling(url=url, ca="PEM", archive="/a.tgz") if found == "host" else None
    assert polling == wanted


HERE, POOL, ALL = "http://127.0.0.1:9/h", "https://pool.example/x", "https://server.example/x"
GUEST_URLS = {  # runtime, pool's annotation, the host's own URL, the Pod's environment → the URL that the guest polls
    "the pool's URL goes before the host's": ("tart", POOL, "https://host.example/x", ALL, POOL),
    "the pool's URL on a host that joined": ("tart", POOL, HERE, "http://127.0.0.1:4000/x", POOL),
    "the host's own URL": ("tart", "", "https://host.example/x", ALL, "https://host.example/x"),
    "loopback of the host never reaches a VM": ("tart", "", HERE, ALL, ALL),
    "only loopback": ("tart", "", HERE, "http://localhost/x", None),
    "a pool's URL on loopback": ("tart", "http://[::1]/x", "https://host.example/x", ALL, None),
    "a process reaches the host's loopback": ("process", "", HERE, ALL, HERE),
    "a pool's URL for processes": ("process", POOL, HERE, ALL, POOL),
}


@pytest.mark.parametrize(
    ("runtime", "pool", "host", "given", "polled"), GUEST_URLS.values(), ids=list(GUEST_URLS)
)
def test_a_guest_polls_where_its_pool_says_and_never_itself(
    runtime: str, pool: str, host: str, given: str, polled: str | None
) -> None:
    settings = Settings(node_name="n", dispatch_url=host, runtime=runtime)
    bound = runner_pod(given, {names.GUEST_DISPATCH_URL: pool} if pool else {})
    if polled is None:
        with pytest.raises(UnsupportedSpec, match="which is the guest itself") as why:
            vm_spec(bound, record(), settings, token="t")
        advised = runner_pod(given, {names.GUEST_DISPATCH_URL: ALL})
        assert (
            dict(vm_spec(advised, record(), settings, token="t").env)[names.ENV_DISPATCH_URL] == ALL
        )
        advised = runner_pod(given, {names.POLLER: "host"})
        assert vm_spec(advised, record(), settings, token="t").polling is not None, str(why.value)
        return
    spec = vm_spec(bound, record(), settings, token="t")
    assert (dict(spec.env)[names.ENV_DISPATCH_URL], spec.polling) == (polled, None)


@pytest.mark.parametrize("url", [HERE, "http://localhost/x", "http://[::1]/x"])
@pytest.mark.parametrize("by_pool", [True, False])
def test_a_host_that_refuses_no_loopback_passes_the_environment_on_and_says_so(
    url: str, *, by_pool: bool
) -> None:
    settings = Settings(node_name="n", refuse_loopback=False)
    annotations = {names.GUEST_DISPATCH_URL: url} if by_pool else {}
    spec = vm_spec(runner_pod(ALL if by_pool else url, annotations), record(), settings, token="t")
    assert dict(spec.env)[names.ENV_DISPATCH_URL] == url and spec.polling is None
    assert polls_itself(spec, settings)
    assert not polls_itself(spec, msgspec.structs.replace(settings, runtime="process"))


@pytest.mark.parametrize("pool", ["", POOL])
@pytest.mark.parametrize(("host", "polled"), [(HERE, HERE), ("", ALL)])
def test_a_host_polls_its_own_url_whatever_guests_reach(pool: str, host: str, polled: str) -> None:
    annotations = {names.POLLER: "host", **({names.GUEST_DISPATCH_URL: pool} if pool else {})}
    settings = Settings(node_name="n", dispatch_url=host)
    polling = vm_spec(runner_pod(ALL, annotations), record(), settings, token="t").polling
    assert polling is not None and polling.url == polled


def runner_pod(url: str, annotations: dict[str, str]) -> HostPod:
    env = ({"name": names.ENV_DISPATCH_URL, "value": url},)
    spec = {"containers": [{"name": "runner", "image": "i", "env": env}]}
    return pod({"annotations": annotations}, spec=spec)
