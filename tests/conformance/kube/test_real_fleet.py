"""The parts on a real control plane, each with its shipped credential: jobs run, nobody is an administrator."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import controlplane
import pytest
from tests.conformance.kube import partsfleet
from tests.conftest import Absent
from tests.fixtures_postgres import database_url, postgres  # noqa: F401 - fixtures

from runyard.wire import names, rights

OURS = f"system:serviceaccount:{names.CONTROLLER_NAMESPACE}:"


@pytest.fixture
def audited(absent: Absent) -> Iterator[controlplane.ControlPlane]:
    """A control plane of its own that writes down who asked for what."""
    assets = controlplane.find_assets(os.environ)
    if assets is None or not assets.complete:
        absent("a real Kubernetes control plane", controlplane.HOW)
    folder = Path(tempfile.mkdtemp(prefix="runyard-kube-"))
    try:
        with controlplane.ControlPlane(assets, folder, audited=True) as plane:
            if not plane.modern:
                pytest.skip(
                    f"the fence around hosts needs Kubernetes 1.30, not {plane.git_version}"
                )
            yield plane
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_jobs_run_and_no_part_needs_more_than_it_ships_with(
    audited: controlplane.ControlPlane,
    database_url: str,  # noqa: F811 - the fixture
) -> None:
    root = Path(tempfile.mkdtemp(prefix="runyard-fleet-")).resolve() / "data"

    async def main() -> list[str]:
        async with partsfleet.running(audited, root, database=database_url) as running:
            jobs = [
                await running.queue(f"echo job {number}", f"job {number}") for number in range(4)
            ]
            jobs.append(await running.queue("exit 3", "fails"))
            return [await running.finished(job) for job in jobs]

    try:
        ended = asyncio.run(main())
    finally:
        shutil.rmtree(root.parent, ignore_errors=True)
    assert ended == ["success"] * 4 + ["failure"]
    asked = [each for each in audited.audit() if each.user.startswith(OURS)]
    who = sorted({each.user.removeprefix(OURS) for each in asked})
    assert who == sorted(
        [rights.SERVER_ACCOUNT, names.CONTROLLER_ACCOUNT, rights.host_account(partsfleet.HOST)]
    )
    refused = sorted({f"{each.user} {each.verb} {each.path}" for each in asked if each.code == 403})
    assert not refused
    broken = sorted({f"{each.code} {each.verb} {each.path}" for each in asked if each.code >= 500})
    assert not broken
