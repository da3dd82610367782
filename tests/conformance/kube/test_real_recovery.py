"""Recovery on a real control plane: with the shipped verbs, and with each of them taken away in turn.

The verbs are read from the shipped role, so that a new one is tested by itself. The same is held quickly on the
embedded API, each verb in a world of its own, in `tests/dispatch/test_dispatch_rights.py`.
"""

import io
import itertools
import json
import re
from collections.abc import Iterator

import controlplane
import pytest
from tests.conformance.kube import grounds
from tests.conformance.kube.grounds import Right
from tests.conformance.kube.partsfleet import Fleet
from tests.conformance.kube.test_real_fleet import REFUSED, audited, play  # noqa: F401 - a fixture
from tests.fixtures_postgres import database_url, postgres  # noqa: F401 - fixtures

from runyard.embedded.up import practice
from runyard.telemetry import log
from runyard.wire import names, rights

PATIENCE = 240.0
REFUSALS = "runyard_forbidden_total"
DASHBOARD = ("nodes", "leases")  # what only the dashboard reads
LACKS = tuple(
    Right(rights.SERVER, verb, resource)
    for role in rights.roles(rights.SERVER)
    for rule in role["rules"]
    for resource in rule["resources"]
    for verb in rule["verbs"]
    if resource not in DASHBOARD
)
METHODS = {"create": "POST", "delete": "DELETE", "get": "GET", "list": "GET", "patch": "PATCH"}
_numbers = itertools.count(0xABC00000)


async def leak(fleet: Fleet) -> str:
    """A Pod carries a stamp, no claim speaks for it, and it hangs: it starts nowhere, and never asks for work.

    The operator does not know its account as one of its own, so that only the server can heal it.
    """
    name = f"{practice.POOL}-runner-{next(_numbers):08x}"
    member = {names.RUNNER_POOL: practice.POOL}
    await fleet.api.create(
        fleet.api.path("serviceaccounts"), {"metadata": {"name": name, "labels": member}}
    )
    stamped = member | {names.RUNNER: "true", names.POOL_OWNER: practice.ACCOUNT}
    spec = {
        "serviceAccountName": name,
        "nodeSelector": {"example.org/nowhere": "true"},
        "containers": [{"name": "runner", "image": practice.IMAGES[0]}],
    }
    body = {"metadata": {"name": name, "labels": stamped}, "spec": spec}
    await fleet.api.create(fleet.api.pods(), body)
    return name


async def let_the_operator_know(fleet: Fleet, name: str) -> None:
    """An account that the server may not delete is the operator's to take; not before the server has tried."""
    path = fleet.api.path("serviceaccounts", name)
    if (await fleet.api.call("GET", path)).status == 200:
        mine = {names.APP_COMPONENT: names.COMPONENT_RUNNER_SA}
        await fleet.api.patch(path, {"metadata": {"labels": mine}})


async def healed(fleet: Fleet, name: str) -> None:
    """The Pod and its account are gone."""

    async def look() -> bool | None:
        paths = (fleet.api.pods(name), fleet.api.path("serviceaccounts", name))
        return all([(await fleet.api.call("GET", path)).status == 404 for path in paths]) or None

    try:
        await fleet.api.eventually(look, seconds=PATIENCE)
    except TimeoutError:
        raise AssertionError(f"{name} is still there") from None


async def content(fleet: Fleet) -> None:
    """The server says that it does its work; if not, what it says instead."""
    try:
        await fleet.content("server", seconds=PATIENCE)
    except TimeoutError:
        raise AssertionError(await fleet.readiness("server")) from None


def refusal(right: Right) -> re.Pattern[str]:
    """How the API's refusal of that right is told: `403 to DELETE /api/v1/namespaces/x/pods/y`."""
    name = "/[^/, ]+" if right.verb in ("delete", "get", "patch") else ""
    return re.compile(rf"403 to {METHODS[right.verb]} [^, ]*/{right.resource}{name}(?:,|$)")


async def with_all_rights(fleet: Fleet, plane: controlplane.ControlPlane) -> None:
    """A leak heals, and nothing was refused on the way."""
    job = await fleet.queue("echo known", "makes the tenant known")
    assert await fleet.finished(job) == "success"
    await fleet.warm()
    await healed(fleet, await leak(fleet))
    await content(fleet)
    account = f"system:serviceaccount:{names.CONTROLLER_NAMESPACE}:{rights.SERVER_ACCOUNT}"
    asked = [each for each in plane.audit() if each.user == account]
    assert not [each for each in asked if each.code == 403]
    deleted = {each.path.split("/")[-2] for each in asked if each.verb == "delete"}
    assert deleted == {"pods", "serviceaccounts"}


async def without(fleet: Fleet, right: Right, lines: io.StringIO) -> tuple[str, int]:
    """One verb less: health, metric and log say which. With it again, a job is done. The leak and the job."""
    before, told = await fleet.metric("server", REFUSALS), refusal(right)
    leaked = await leak(fleet)
    await grounds.take(fleet.api, right)
    for pod in await fleet.pods():  # runners of before are known already, and would do the job
        if pod["metadata"]["labels"].get(names.POOL_OWNER) is None:
            await fleet.api.call("DELETE", fleet.api.pods(pod["metadata"]["name"]))
    job = await fleet.queue("echo done", f"needs {right.verb} {right.resource}")

    async def complains() -> bool | None:
        return bool(told.search(await fleet.complaint("server", REFUSED, seconds=PATIENCE))) or None

    try:
        await fleet.api.eventually(complains, seconds=PATIENCE)
    except TimeoutError:
        raise AssertionError((right, await fleet.readiness("server"))) from None
    assert await fleet.metric("server", REFUSALS) > before
    said = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert any(told.search(each["request"]) for each in said if each["event"] == "forbidden"), said
    if right.resource == "serviceaccounts":
        await let_the_operator_know(fleet, leaked)
    await grounds.give_back(fleet.api, right.part)
    # Before the next verb goes: its runner would be among those that are taken away.
    assert await fleet.finished(job, seconds=PATIENCE) == "success"
    return leaked, job


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the parts log."""
    stream = io.StringIO()
    log.configure(level="error", stream=stream)
    yield stream
    log.configure(level="critical")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_recovery_needs_no_right_more_than_it_ships_with_and_misses_none_in_silence(
    audited: controlplane.ControlPlane,  # noqa: F811 - the fixture
    database_url: str,  # noqa: F811 - the fixture
    lines: io.StringIO,
) -> None:
    async def scenario(fleet: Fleet) -> None:
        await with_all_rights(fleet, audited)
        found = [await without(fleet, right, lines) for right in LACKS]
        for leaked, job in found:
            await healed(fleet, leaked)
            history = (await fleet.people.job(job)).history
            assert [each.what for each in history].count("in_progress") == 1, history
        await content(fleet)

    play(scenario, audited, database_url)
