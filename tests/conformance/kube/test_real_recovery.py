"""Recovery on a real control plane, and on the embedded API: with the shipped verbs, and with each of them taken away.

The verbs are read from the shipped role, so that a new one is tested by itself.
"""

import itertools

import controlplane
import pytest
from tests.conformance.kube import grounds
from tests.conformance.kube.grounds import Right
from tests.conformance.kube.partsfleet import Fleet
from tests.conformance.kube.test_real_fleet import REFUSED, audited, play  # noqa: F401 - a fixture
from tests.fixtures_postgres import database_url, postgres  # noqa: F401 - fixtures

from runyard.embedded.up import practice
from runyard.wire import names, rights

PATIENCE = 150.0
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


async def without_each(fleet: Fleet) -> None:
    """Without one verb the server says so; with it everything heals by itself."""
    await with_all_rights(fleet)
    for right in LACKS:
        leaked = await leak(fleet)
        await grounds.take(fleet.api, right)
        for pod in await fleet.pods():  # runners of before are known already, and would do the job
            if (name := pod["metadata"]["name"]) != leaked:
                await fleet.api.call("DELETE", fleet.api.pods(name))
        job = await fleet.queue("echo done", f"needs {right.verb} {right.resource}")
        said = await fleet.complaint("server", REFUSED, seconds=PATIENCE)
        assert f"/{right.resource}" in said, f"{right}: {said}"
        await grounds.give_back(fleet.api, right.part)
        await healed(fleet, leaked)
        assert await fleet.finished(job, seconds=PATIENCE) == "success", right
        await content(fleet)


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
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("where", ["embedded", "real"])
def test_recovery_that_lacks_one_verb_says_so(
    where: str,
    request: pytest.FixtureRequest,
    database_url: str,  # noqa: F811 - the fixture
) -> None:
    plane = request.getfixturevalue("audited") if where == "real" else None
    play(without_each, plane, database_url)
