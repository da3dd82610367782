"""Runs the components on a real control plane and on the embedded API, with their shipped credentials only."""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import controlplane
import pytest
from tests.conformance.kube import clusters, componentfleet
from tests.conformance.kube.clusters import Cluster, Right
from tests.conformance.kube.componentfleet import HOST, Fleet
from tests.conftest import Absent
from tests.fixtures_postgres import database_url, postgres  # noqa: F401 - fixtures
from tests.tiers import sample

from runyard.embedded.up import practice
from runyard.telemetry import conditions
from runyard.wire import names, rights

OURS = f"system:serviceaccount:{names.CONTROLLER_NAMESPACE}:"
REFUSED = conditions.KUBERNETES_REFUSED.code
Scenario = Callable[[Fleet], Awaitable[None]]


@contextlib.contextmanager
def real_plane(absent: Absent, folder: Path) -> Iterator[controlplane.ControlPlane]:
    """A real control plane that logs every request and its user."""
    assets = controlplane.find_assets(os.environ)
    if assets is None or not assets.complete:
        absent("a real Kubernetes control plane", controlplane.HOW)
    with controlplane.ControlPlane(assets, folder, audited=True) as plane:
        if not plane.modern:
            pytest.skip(f"the fence around hosts needs Kubernetes 1.30, not {plane.git_version}")
        yield plane


@pytest.fixture
def audited(absent: Absent) -> Iterator[controlplane.ControlPlane]:
    """A control plane for this test alone."""
    folder = Path(tempfile.mkdtemp(prefix="runyard-kube-"))
    try:
        with real_plane(absent, folder) as plane:
            yield plane
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def cluster_of(
    plane: controlplane.ControlPlane | None, folder: Path
) -> AsyncIterator[Cluster]:
    if plane is not None:
        yield clusters.real(plane)
    else:
        async with clusters.embedded(folder) as cluster:
            yield cluster


def play(scenario: Scenario, plane: controlplane.ControlPlane | None, database: str) -> None:
    """Runs a scenario on a new fleet, and removes the fleet."""
    folder = Path(tempfile.mkdtemp(prefix="runyard-fleet-")).resolve()

    async def main() -> None:
        async with (
            cluster_of(plane, folder) as cluster,
            componentfleet.running(cluster, folder / "data", database=database) as fleet,
        ):
            await scenario(fleet)

    try:
        asyncio.run(main())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def a_day_of_work(fleet: Fleet) -> None:
    """Jobs end, a lost Pod is replaced, another image is rolled out, jobs end again."""
    jobs = [await fleet.queue(f"echo job {number}", f"job {number}") for number in range(4)]
    jobs.append(await fleet.queue("exit 3", "fails"))
    assert [await fleet.finished(job) for job in jobs] == ["success"] * 4 + ["failure"]
    before = await fleet.warm()
    await fleet.api.ok("DELETE", fleet.api.pods(before[0]))
    healed = await fleet.warm()
    assert before[0] not in healed
    await fleet.api.patch(fleet.pool, {"spec": {"image": practice.IMAGES[1]}})
    rolled = await fleet.warm(image=practice.IMAGES[1], seconds=120)
    assert not set(rolled) & set(healed)
    job = await fleet.queue("echo after", "after the roll")
    assert await fleet.finished(job) == "success"
    for component in componentfleet.COMPONENTS:
        await fleet.until_working(component)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_fleet_works_with_its_shipped_rights_only(
    audited: controlplane.ControlPlane,
    database_url: str,  # noqa: F811 - the fixture
) -> None:
    play(a_day_of_work, audited, database_url)
    requests = [each for each in audited.audit() if each.user.startswith(OURS)]
    users = sorted({each.user.removeprefix(OURS) for each in requests})
    assert users == sorted(
        [rights.SERVER_ACCOUNT, names.CONTROLLER_ACCOUNT, rights.host_account(HOST)]
    )
    refused = sorted(
        {f"{each.user} {each.verb} {each.path}" for each in requests if each.code == 403}
    )
    assert not refused
    # The server logs a request whose client ended before the answer as its own failure.
    answered = [each for each in requests if each.said != "context canceled"]
    broken = {
        f"{each.code} {each.verb} {each.path}: {each.said}" for each in answered if each.code >= 500
    }
    assert not sorted(broken)


# One right of each component, the component that must report it missing, and the message.
LACKS = (
    (Right(rights.OPERATOR, "create", "pods"), "operator", "403 to POST {space}/pods"),
    (Right(rights.HOST, "create", "serviceaccounts/token"), HOST, "403 to POST {space}/service"),
    (Right(rights.SERVER, "create", "tokenreviews"), "server", "403 to POST /apis/authentication"),
)


async def remove_and_restore_rights(fleet: Fleet) -> None:
    """Without one verb a component reports it and a job waits; with it the job runs without further help."""
    await fleet.warm()
    for right, component, expected in sample(LACKS, of=3):
        await clusters.remove_right(fleet.api, right)
        # Existing runners would still run a job.
        await fleet.api.ok("DELETE", fleet.api.pods())
        job = await fleet.queue("echo done", f"needs {right.verb} {right.resource}")
        message = await fleet.condition(component, REFUSED)
        assert expected.format(space=fleet.api.path("").rstrip("/")) in message
        assert (await fleet.github.job(job)).status != "completed"
        await clusters.restore_rights(fleet.api, right.component)
        assert await fleet.finished(job, seconds=150) == "success"
        await fleet.until_working(component)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("where", ["embedded", "real"])
def test_a_component_reports_a_missing_verb(
    where: str,
    request: pytest.FixtureRequest,
    database_url: str,  # noqa: F811 - the fixture
) -> None:
    plane = request.getfixturevalue("audited") if where == "real" else None
    play(remove_and_restore_rights, plane, database_url)
