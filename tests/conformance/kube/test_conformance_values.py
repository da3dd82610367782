"""Limits of values: numbers, times and quantities are accepted or refused alike, and never cause a 500."""

from typing import Any

import pytest
from tests.conformance.kube.kit import JSON_PATCH, MERGE, Api, Json, config, pod

from runyard.wire.instants import from_rfc3339

LEASE = "coordination.k8s.io/v1"
NODES = "/api/v1/nodes"


# ---- numbers


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**63 - 1, 2**63, 2**64, 1.5, 1e20])
@pytest.mark.parametrize("field", ["leaseDurationSeconds", "leaseTransitions"])
async def test_a_number_of_32_bits_has_no_more(api: Api, field: str, number: Any) -> None:
    leases = api.path("leases", group=LEASE)
    wrong = {"metadata": {"name": "l"}, "spec": {field: number}}
    raw = f'{{"metadata":{{"name":"l"}},"spec":{{"{field}":{number}}}}}'.encode()
    assert await api.refused("POST", leases, raw) == (400, "BadRequest")
    await api.create(leases, {"metadata": {"name": "l"}, "spec": {field: 2**31 - 1}})
    if number != 2**64:  # which no encoder of ours writes
        path = f"{leases}/l"
        assert (await api.refused("PATCH", path, wrong, kind=MERGE))[0] == 422
        patch = [{"op": "replace", "path": f"/spec/{field}", "value": number}]
        assert (await api.refused("PATCH", path, patch, kind=JSON_PATCH))[0] == 422


async def test_a_port_of_a_node_has_32_bits(api: Api) -> None:
    name = api.own("n")
    await api.create(NODES, {"metadata": {"name": name}})
    try:
        for port, code in ((70000, 200), (2**31 - 1, 200), (2**31, 422)):
            body = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}
            answer = await api.call("PATCH", f"{NODES}/{name}/status", body, kind=MERGE)
            assert answer.status == code, port
    finally:
        await api.call("DELETE", f"{NODES}/{name}")


async def test_a_number_of_64_bits_has_no_more(api: Api) -> None:
    tolerated = {"key": "x", "operator": "Exists", "effect": "NoExecute"}
    for number, code in ((2**63 - 1, 201), (2**63, 400)):
        wanted = pod("p", tolerations=[{**tolerated, "tolerationSeconds": number}])
        answer = await api.call("POST", api.pods(), wanted, dryRun="All")
        assert answer.status == code
    refusal = await api.refused("DELETE", api.maps("c"), {"gracePeriodSeconds": 2**63})
    assert refusal == (400, "BadRequest")
    refusal = await api.refused("DELETE", api.maps("c"), gracePeriodSeconds=2**63)
    assert refusal == (400, "BadRequest")


@pytest.mark.parametrize("grace", [2**31, 2**35, 2**38, 2**40, 2**62, 2**63 - 1])
@pytest.mark.parametrize("how", ["spec", "body", "query"])
async def test_a_pod_with_a_grace_of_centuries_can_be_deleted(
    api: Api, grace: int, how: str
) -> None:
    name = api.own("n")
    await api.create(NODES, {"metadata": {"name": name}})
    own = {"terminationGracePeriodSeconds": grace} if how == "spec" else {}
    await api.create(api.pods(), pod("p", nodeName=name, **own))
    result: Json | None = {"gracePeriodSeconds": grace} if how == "body" else None
    query = {"gracePeriodSeconds": grace} if how == "query" else {}
    try:
        marked = await api.ok("DELETE", api.pods("p"), result, **query)
        assert marked["metadata"]["deletionGracePeriodSeconds"] == grace
        begun = from_rfc3339(marked["metadata"]["creationTimestamp"])
        ends = from_rfc3339(marked["metadata"]["deletionTimestamp"])
        assert abs(ends - begun - _lasting(grace)) < 3600
        await api.ok("DELETE", api.pods("p"), {"gracePeriodSeconds": 0})
        await api.gone(api.pods("p"))
    finally:
        await api.call("DELETE", f"{NODES}/{name}")


def _lasting(seconds: int) -> float:
    """That duration as 64 bits of nanoseconds represent it."""
    count = seconds * 10**9 % 2**64
    return (count - 2**64 if count >= 2**63 else count) / 10**9


# ---- amounts

AMOUNTS = {
    "1e18": "1e18",
    "1e19": "10e18",
    "1e30": "1e30",
    "1e99": "1e99",
    "1e-99": "1e-3",
    "1.5e3": "1500",
    "8Ei": "9223372036854775807",
    "7.9Ei": "9108079886394091110400m",
    "9" * 30 + "Ei": "9223372036854775807",
    "9" * 30 + "E": "9" * 30 + "E",
    "9" * 17 + "Ei": "9223372036854775807",
    "1" * 31: "1" * 31,
    "9223372036854775808": "9223372036854775808",
    "1208925819614629174706176": "1208925819614629174706176",
    "123456789.123456789123": "123456789124m",
    "0." + "0" * 40 + "1": "1m",
}


async def test_quantities_of_any_size_are_stored(api: Api) -> None:
    name = api.own("n")
    await api.create(NODES, {"metadata": {"name": name}})
    try:
        for amount, kept in AMOUNTS.items():
            body = {"status": {"capacity": {"cpu": amount}}}
            after = await api.patch(f"{NODES}/{name}/status", body)
            assert after["status"]["capacity"] == {"cpu": kept}, amount
        for wrong in ("1Ki1Ki", "inf", "nan", "1_0", "1e3Ki", "٣"):
            body = {"status": {"capacity": {"cpu": wrong}}}
            answer = await api.call("PATCH", f"{NODES}/{name}/status", body, kind=MERGE)
            assert answer.status == 422, wrong
    finally:
        await api.call("DELETE", f"{NODES}/{name}")


# ---- times

TIMES = {
    "9999-12-31T23:59:59.999999Z": "9999-12-31T23:59:59.999999Z",
    "2026-11-16T00:00:00.123456+23:59": "2026-11-15T00:01:00.123456Z",
    "0999-11-16T00:00:00.123456-23:59": "0999-11-16T23:59:00.123456Z",
    "2026-11-16T00:00:00.000000-00:00": "2026-11-16T00:00:00.000000Z",
}
NO_TIMES = (
    "2026-02-30T00:00:00.000000Z",
    "2026-11-16T24:00:00.000000Z",
    "2026-11-16T00:00:60.000000Z",
    "2026-11-16T00:00:00Z",
    "٢٠٢٦-11-16T00:00:00.000000Z",
    "x",
    5,
)


async def test_times_at_the_edges_of_the_calendar(api: Api) -> None:
    path = api.path("leases", "l", group=LEASE)
    await api.create(api.path("leases", group=LEASE), {"metadata": {"name": "l"}})
    for moment, kept in TIMES.items():
        assert (await api.patch(path, {"spec": {"renewTime": moment}}))["spec"]["renewTime"] == kept
    for moment in NO_TIMES:
        body = {"spec": {"renewTime": moment}}
        assert (await api.refused("PATCH", path, body, kind=MERGE))[0] == 422, moment


async def test_an_invalid_time_in_metadata_is_refused(api: Api) -> None:
    for field in ("creationTimestamp", "deletionTimestamp"):
        wrong = config(**{field: "2026-02-30T00:00:00Z"})
        assert await api.refused("POST", api.maps(), wrong) == (400, "BadRequest")
