"""Recovery on a real control plane, and on the embedded API: with the shipped verbs, and with each of them taken away.

The verbs are read from the shipped role, so that a new one is tested by itself.
"""

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


async def leak(fleet: Fleet) -> str:
    """A Pod carries a stamp, and no claim speaks for it."""
    name = (await fleet.warm())[0]
    stamp = {"metadata": {"labels": {names.POOL_OWNER: practice.ACCOUNT}}}
    await fleet.api.patch(fleet.api.pods(name), stamp)
    return name


async def healed(fleet: Fleet, name: str) -> None:
    """The Pod and its account are gone."""

    async def look() -> bool | None:
        paths = (fleet.api.pods(name), fleet.api.path("serviceaccounts", name))
        return all([(await fleet.api.call("GET", path)).status == 404 for path in paths]) or None

    await fleet.api.eventually(look, seconds=PATIENCE)


async def with_all_rights(fleet: Fleet) -> None:
    job = await fleet.queue("echo known", "makes the tenant known")
    assert await fleet.finished(job) == "success"
    await healed(fleet, await leak(fleet))
    await fleet.warm()
    await fleet.content("server")


async def without_each(fleet: Fleet) -> None:
    """Without one verb the server says so; with it everything heals by itself."""
    await with_all_rights(fleet)
    for right in LACKS:
        leaked = await leak(fleet)
        await grounds.take(fleet.api, right)
        job = await fleet.queue("echo done", f"needs {right.verb} {right.resource}")
        said = await fleet.complaint("server", REFUSED, seconds=PATIENCE)
        assert f"/{right.resource}" in said, right
        await grounds.give_back(fleet.api, right.part)
        await healed(fleet, leaked)
        assert await fleet.finished(job, seconds=PATIENCE) == "success", right
        await fleet.content("server")


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
