"""Pods, accounts and registrations are deleted together, in order, on proof, and at a limited rate."""

import pytest
from tests.dispatch.dispatchharness import SPACE, Guest, Harness, Lines, Onward, Tamper, play

from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.kube.kinds import PODS
from runyard.telemetry.catalogue import RUNYARD_DELETIONS_TOTAL

FORBIDDEN = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}


async def draining(harness: Harness, number: int) -> Guest:
    if not harness.server.shared.pools.known:
        await harness.pool()
    guest = await harness.pod(number)
    await harness.armed(guest)
    harness.overdue(guest)
    await harness.server.recovery.sweeper.step()
    assert harness.slot(guest)["state"] == "draining"
    harness.execute("UPDATE slots SET deadline = '2100-01-01Z' WHERE pod_uid = %s", guest.uid)
    return guest


async def sweep(harness: Harness, *guests: Guest) -> None:
    for guest in guests:
        harness.overdue(guest)
    await harness.server.recovery.sweeper.step()


def there(harness: Harness, guest: Guest) -> tuple[bool, bool]:
    found = [harness.kube.find(kind, SPACE, guest.name) for kind in ("pods", "serviceaccounts")]
    return found[0] is not None, found[1] is not None


def refusing(path: str, status: int = 403) -> Tamper:
    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        if request.method == "DELETE" and path in request.path:
            return json_response(status, FORBIDDEN | {"code": status})
        return await onward()

    return tamper


@pytest.mark.parametrize("status", [403, 500])
def test_an_undeletable_account_does_not_hold_the_budget(
    database_url: str, app_keys: KeyPair, status: int
) -> None:
    lines = Lines()

    async def scenario(harness: Harness) -> None:
        guest = await draining(harness, 1)
        harness.kube_wire.tamper = refusing("/serviceaccounts/", status)
        await sweep(harness, guest)
        assert there(harness, guest) == (False, True)
        assert harness.slot(guest)["state"] == "closed"
        outcome = "forbidden" if status == 403 else "failed"
        found = harness.meter.get(RUNYARD_DELETIONS_TOTAL, kind="service-account", outcome=outcome)
        assert found == 1
        logged = [line for line in lines if line.get("what") == "service-account"]
        assert [(line["name"], line["outcome"]) for line in logged] == [(guest.name, outcome)]

    play(scenario, database_url, app_keys, log=lines)


def test_an_undeletable_pod_is_reported_and_does_not_stop_the_others(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        stuck, other = await draining(harness, 1), await draining(harness, 2)
        harness.kube_wire.tamper = refusing(f"/pods/{stuck.name}")
        await sweep(harness, stuck, other)
        assert there(harness, stuck) == (True, True), "its account is not taken from under it"
        assert there(harness, other) == (False, False)
        assert harness.slot(stuck)["state"] == "draining"
        assert harness.slot(other)["state"] == "closed"
        found = harness.meter.get(RUNYARD_DELETIONS_TOTAL, kind="pod", outcome="forbidden")
        assert found == 1

    play(scenario, database_url, app_keys)


def test_a_slot_that_changed_meanwhile_keeps_its_pod(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await draining(harness, 1)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.method == "GET" and request.path.endswith(guest.name):
                # Between the decision and the deletion another transaction writes the row.
                harness.execute("UPDATE slots SET generation = generation + 1")
            return await onward()

        harness.kube_wire.tamper = tamper
        await sweep(harness, guest)
        assert there(harness, guest) == (True, True)
        assert harness.meter.get(RUNYARD_DELETIONS_TOTAL, kind="pod", outcome="moved-on") == 1

    play(scenario, database_url, app_keys)


def test_only_so_many_pods_are_deleted_in_a_minute(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        guests = [await draining(harness, number) for number in range(1, 5)]
        await sweep(harness, *guests)
        assert [there(harness, guest)[0] for guest in guests].count(True) == 2
        await sweep(harness, *guests)
        assert [there(harness, guest)[0] for guest in guests].count(True) == 2
        await harness.clock.sleep(61)
        await sweep(harness, *guests)
        assert not any(there(harness, guest)[0] for guest in guests)
        assert harness.meter.get(RUNYARD_DELETIONS_TOTAL, kind="pod", outcome="capped") == 4

    play(scenario, database_url, app_keys, delete_most=2)


def test_concurrent_deletions_share_the_limit(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        guests = [await draining(harness, number) for number in range(1, 5)]

        async def slow(request: Request, onward: Onward) -> Response | Stream:
            await harness.clock.sleep(0.1)
            return await onward()

        harness.kube_wire.tamper = slow
        await sweep(harness, *guests)
        assert [there(harness, guest)[0] for guest in guests].count(True) == 2

    play(scenario, database_url, app_keys, delete_most=2)


@pytest.mark.parametrize("status", [403, 404, 409])
def test_failed_deletions_do_not_count_towards_the_limit(
    database_url: str, app_keys: KeyPair, status: int
) -> None:
    async def scenario(harness: Harness) -> None:
        stuck, other = await draining(harness, 1), await draining(harness, 2)
        harness.kube_wire.tamper = refusing(f"/pods/{stuck.name}", status)
        await sweep(harness, stuck)
        await sweep(harness, other)
        assert (there(harness, stuck)[0], there(harness, other)[0]) == (True, False)

    play(scenario, database_url, app_keys, delete_most=1)


def test_a_terminating_pod_is_deleted_and_counted_once(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await draining(harness, 1)
        body = {"metadata": {"finalizers": ["example.org/keep"]}}
        await harness.admin.patch(PODS, guest.name, body, namespace=SPACE)
        for _ in range(3):
            await sweep(harness, guest)
        assert there(harness, guest) == (True, False)
        assert harness.meter.get(RUNYARD_DELETIONS_TOTAL, kind="pod", outcome="deleted") == 1
        deletions = [each for each in harness.kube_wire.requests if each.method == "DELETE"]
        assert len([each for each in deletions if "/pods/" in each.path]) == 1

    play(scenario, database_url, app_keys)


def test_recoveries_of_the_sweeper_are_logged_like_findings(
    database_url: str, app_keys: KeyPair
) -> None:
    lines = Lines()

    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod(1)
        await harness.poll(guest)
        await harness.delete_pod(guest)
        await sweep(harness, guest)
        assert harness.slot(guest)["state"] == "closed"
        (line,) = [line for line in lines if line["event"] == "healed"]
        assert line["pod"] == guest.name and line["grace_seconds"] == 90
        assert {"age_seconds", "reason"} <= set(line)

    play(scenario, database_url, app_keys, log=lines)
