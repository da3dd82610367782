"""Recovery on a real control plane: with the shipped verbs, and with each of them taken away.

The verbs are read from the shipped role, so that a new one is tested by itself. The same is held quickly on the
embedded API in `tests/dispatch/test_dispatch_rights.py`.
"""

import itertools

import controlplane
import pytest
from tests.conformance.kube import grounds
from tests.conformance.kube.grounds import Right
from tests.conformance.kube.partsfleet import Fleet
from tests.conformance.kube.test_real_fleet import REFUSED, Scenario, audited, play  # noqa: F401 - a fixture
from tests.fixtures_postgres import database_url, postgres  # noqa: F401 - fixtures

from runyard.embedded.up import practice
from runyard.wire import names, rights

PATIENCE = 240.0
DASHBOARD = ("nodes", "leases")  # what only the dashboard reads
LACKS = tuple(
    Right(rights.SERVER, verb, resource)
    for role in rights.roles(rights.SERVER)
    for rule in role["rules"]
    for resource in rule["resources"]
    for verb in rule["verbs"]
    if resource not in DASHBOARD
)


_numbers = itertools.count(0xABC00000)


async def leak(fleet: Fleet) -> str:
    """A Pod carries a stamp, no claim speaks for it, and it hangs: it starts nowhere, and never asks for work."""
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


async def healed(fleet: Fleet, name: str) -> None:
    """The Pod and its account are gone."""

    async def look() -> bool | None:
        paths = (fleet.api.pods(name), fleet.api.path("serviceaccounts", name))
        return all([(await fleet.api.call("GET", path)).status == 404 for path in paths]) or None

    await fleet.api.eventually(look, seconds=PATIENCE)


async def content(fleet: Fleet) -> None:
    """The server says that it does its work; if not, what it says instead."""
    try:
        await fleet.content("server", seconds=PATIENCE)
    except TimeoutError:
        raise AssertionError(await fleet.readiness("server")) from None


async def with_all_rights(fleet: Fleet) -> None:
    job = await fleet.queue("echo known", "makes the tenant known")
    assert await fleet.finished(job) == "success"
    await fleet.warm()
    await healed(fleet, await leak(fleet))
    await content(fleet)


def without(right: Right) -> Scenario:
    """Without one verb the server says so; with it everything heals by itself."""

    async def scenario(fleet: Fleet) -> None:
        await with_all_rights(fleet)
        leaked = await leak(fleet)
        await grounds.take(fleet.api, right)
        for pod in await fleet.pods():  # runners of before are known already, and would do the job
            if (name := pod["metadata"]["name"]) != leaked:
                await fleet.api.call("DELETE", fleet.api.pods(name))
        job = await fleet.queue("echo done", f"needs {right.verb} {right.resource}")
        said = await fleet.complaint("server", REFUSED, seconds=PATIENCE)
        assert f"/{right.resource}" in said, said
        await grounds.give_back(fleet.api, right.part)
        await healed(fleet, leaked)
        assert await fleet.finished(job, seconds=PATIENCE) == "success"
        await content(fleet)

    return scenario


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_recovery_needs_no_right_more_than_it_ships_with(
    audited: controlplane.ControlPlane,  # noqa: F811 - the fixture
    database_url: str,  # noqa: F811 - the fixture
) -> None:
    play(with_all_rights, audited, database_url)
    account = f"system:serviceaccount:{names.CONTROLLER_NAMESPACE}:{rights.SERVER_ACCOUNT}"
    asked = [each for each in audited.audit() if each.user == account]
    assert not [each for each in asked if each.code == 403]
    deleted = {each.path.split("/")[-2] for each in asked if each.verb == "delete"}
    assert deleted == {"pods", "serviceaccounts"}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("right", LACKS, ids=[f"{each.verb} {each.resource}" for each in LACKS])
def test_recovery_that_lacks_one_verb_says_so(
    right: Right,
    audited: controlplane.ControlPlane,  # noqa: F811 - the fixture
    database_url: str,  # noqa: F811 - the fixture
) -> None:
    play(without(right), audited, database_url)
