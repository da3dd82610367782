"""The status of a Pod: addresses in two forms, and immutable fields."""

from typing import Any

import pytest
from tests.conformance.kube.kit import STRATEGIC, Api, Json, pod

pytestmark = pytest.mark.since(1, 30)

ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
FAMILY = "may specify no more than one IP for each IP family"


def ips(*addresses: str) -> list[Json]:
    return [{"ip": each} for each in addresses]


async def addresses_after(api: Api, *statuses: Json, **options: Any) -> Json:
    """The addresses of a Pod after those patches."""
    await api.create(api.pods(), pod())
    for status in statuses:
        made = await api.patch(api.pods("p", "status"), {"status": status}, **options)
    found: Json = made["status"]
    assert found == (await api.get(api.pods("p")))["status"]
    return {key: found[key] for key in ("podIP", "podIPs", "hostIP", "hostIPs") if key in found}


ONE = {"podIP": "10.0.0.1", "podIPs": ips("10.0.0.1")}


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        pytest.param([{"podIP": "10.0.0.1"}], ONE, id="one"),
        pytest.param([{"podIPs": ips("10.0.0.1")}], ONE, id="several"),
        pytest.param([{"podIP": "10.0.0.2"}, {"podIP": "10.0.0.1"}], ONE, id="another"),
        pytest.param([ONE, {"podIPs": ips("10.0.0.7")}], ONE, id="the one wins"),
        pytest.param([ONE, {"podIP": None}], ONE, id="the several stay"),
        pytest.param([ONE, {"podIPs": None}], ONE, id="the one stays"),
        pytest.param([ONE, {"podIP": None, "podIPs": []}], {}, id="none"),
        pytest.param(
            [{"podIPs": ips("10.0.0.1", "fe80::1")}],
            {"podIP": "10.0.0.1", "podIPs": ips("10.0.0.1", "fe80::1")},
            id="both families",
        ),
        pytest.param(
            [{"podIPs": ips("10.0.0.9", "fe80::1")}, {"podIP": "10.0.0.1"}], ONE, id="only the one"
        ),
        pytest.param([{"hostIP": "1.2.3.4"}], {"hostIP": "1.2.3.4"}, id="host"),
        pytest.param([{"hostIP": "no check"}], {"hostIP": "no check"}, id="host of any kind"),
    ],
)
async def test_one_address_is_shown_in_two_fields(
    api: Api, statuses: list[Json], expected: Json
) -> None:
    assert await addresses_after(api, *statuses) == expected


async def test_addresses_merge_and_the_first_of_them_counts(api: Api) -> None:
    more = {"podIPs": ips("10.0.0.2")}
    assert await addresses_after(api, ONE, more, kind=STRATEGIC) == ONE


async def test_both_address_fields_belong_to_the_writer_of_one(api: Api) -> None:
    await api.create(api.pods(), pod())
    status = {"status": {"podIP": "10.0.0.1"}}
    made = await api.patch(api.pods("p", "status"), status, agent="kubelet")
    (entry,) = (e for e in made["metadata"]["managedFields"] if e["manager"] == "kubelet")
    assert sorted(entry["fieldsV1"]["f:status"]) == ["f:podIP", "f:podIPs"]


@pytest.mark.since(1, 36)
@pytest.mark.parametrize(
    ("status", "causes"),
    [
        ({"podIP": "none"}, [("status.podIPs[0]", f'Invalid value: "none": {ADDRESS}')]),
        ({"podIP": "1.2.3.4/8"}, [("status.podIPs[0]", f'Invalid value: "1.2.3.4/8": {ADDRESS}')]),
        ({"podIP": "fe80::1%e"}, [("status.podIPs[0]", f'Invalid value: "fe80::1%e": {ADDRESS}')]),
        (
            {"podIP": "010.0.0.1"},
            [("status.podIPs[0]", 'Invalid value: "010.0.0.1": must not have leading 0s')],
        ),
        (
            {"podIP": "::ffff:10.0.0.1"},
            [
                (
                    "status.podIPs[0]",
                    'Invalid value: "::ffff:10.0.0.1": must not be an IPv4-mapped IPv6 address',
                )
            ],
        ),
        ({"podIPs": ips("")}, [("status.podIPs[0]", f'Invalid value: "": {ADDRESS}')]),
        (
            {"podIPs": ips("10.0.0.1", "10.0.0.2")},
            [
                (
                    "status.podIPs",
                    f'Invalid value: [{{"IP":"10.0.0.1"}},{{"IP":"10.0.0.2"}}]: {FAMILY}',
                )
            ],
        ),
        (
            {"podIPs": ips("10.0.0.1", "x")},
            [
                ("status.podIPs[1]", f'Invalid value: "x": {ADDRESS}'),
                (
                    "status.podIPs",
                    "Internal error: failed to check for dual stack with error:invalid IP[1]: x",
                ),
                ("status.podIPs", f'Invalid value: [{{"IP":"10.0.0.1"}},{{"IP":"x"}}]: {FAMILY}'),
            ],
        ),
        (
            {"qosClass": "Guaranteed"},
            [("status.qosClass", 'Invalid value: "Guaranteed": field is immutable')],
        ),
        (
            {"hostIP": "1.1.1.1", "hostIPs": ips("1.1.1.2")},
            [("status.hostIPs[0].ip", 'Invalid value: "1.1.1.2": must be equal to `hostIP`')],
        ),
        (
            {"hostIPs": ips("1.1.1.2")},
            [("status.hostIPs[0].ip", 'Invalid value: "1.1.1.2": must be equal to `hostIP`')],
        ),
        (
            {"hostIP": "x", "hostIPs": ips("x")},
            [("status.hostIPs[0]", f'Invalid value: "x": {ADDRESS}')],
        ),
        (
            {"hostIP": "1.1.1.1", "hostIPs": ips("1.1.1.1", "1.1.1.1")},
            [
                (
                    "status.hostIPs",
                    f'Invalid value: [{{"IP":"1.1.1.1"}},{{"IP":"1.1.1.1"}}]: {FAMILY}',
                )
            ],
        ),
    ],
)
async def test_invalid_statuses_are_refused(
    api: Api, status: Json, causes: list[tuple[str, str]]
) -> None:
    await api.create(api.pods(), pod())
    why = await api.why(
        "PATCH", api.pods("p", "status"), {"status": status}, kind="application/merge-patch+json"
    )
    assert (why["code"], why["reason"]) == (422, "Invalid")
    assert [(each["field"], each["message"]) for each in why["details"]["causes"]] == causes


async def test_a_host_that_changes_changes_in_both_places(api: Api) -> None:
    await api.create(api.pods(), pod())
    both = {"hostIP": "1.1.1.1", "hostIPs": ips("1.1.1.1")}
    await api.patch(api.pods("p", "status"), {"status": both})
    for wrong in ({"hostIP": "1.1.1.2"}, {"hostIP": None}):
        why = await api.refused(
            "PATCH", api.pods("p", "status"), {"status": wrong}, kind="application/merge-patch+json"
        )
        assert why == (422, "Invalid")


async def test_the_qos_class_may_be_left_out(api: Api) -> None:
    await api.create(api.pods(), pod())
    made = await api.patch(api.pods("p", "status"), {"status": {"qosClass": None, "reason": "x"}})
    assert made["status"]["qosClass"] == "BestEffort"


async def test_the_gated_condition_dates_from_the_creation(api: Api) -> None:
    made = await api.create(api.pods(), pod(schedulingGates=[{"name": "example.com/wait"}]))
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")
    assert condition["lastTransitionTime"] == made["metadata"]["creationTimestamp"]
    assert condition["lastProbeTime"] is None


async def test_pods_are_selected_by_host_network(api: Api) -> None:
    await api.create(api.pods(), pod("a", hostNetwork=True))
    await api.create(api.pods(), pod("b", hostNetwork=False))
    await api.create(api.pods(), pod("c"))
    for selector, expected in (
        ("spec.hostNetwork=true", ["a"]),
        ("spec.hostNetwork=false", ["b", "c"]),
        ("spec.hostNetwork!=true", ["b", "c"]),
        ("spec.hostNetwork=", []),
        ("spec.hostNetwork=yes", []),
    ):
        assert await api.names(api.pods(), fieldSelector=selector) == expected
