"""Recovery on a real control plane: with the shipped verbs, and with each of them removed in turn.

The verbs are read from the shipped role, so that a new one is tested by itself. The same is held quickly on the
embedded API, each verb in its own fleet, in `tests/dispatch/test_dispatch_rights.py`.
"""

import io
import itertools
import json
import re
from collections.abc import Iterator

import controlplane
import pytest
from tests.conformance.kube import clusters
from tests.conformance.kube.clusters import Right
from tests.conformance.kube.componentfleet import Fleet
from tests.conformance.kube.test_real_fleet import REFUSED, audited, play  # noqa: F401 - a fixture
from tests.fixtures_postgres import database_url, postgres  # noqa: F401 - fixtures
from tests.granted import NOT_RECORDED
from tests.tiers import sample

from runyard.embedded.up import practice
from runyard.sim.callers import shipped_needs
from runyard.telemetry import log
from runyard.wire import names, rights

TIMEOUT = 240.0
REFUSALS = "runyard_kubernetes_forbidden_total"
DASHBOARD = ("nodes", "leases")  # only the dashboard reads them
LACKS = tuple(
    Right(rights.SERVER, verb, resource)
    for _, _, _, resource, verb in sorted(shipped_needs(rights.SERVER) - NOT_RECORDED)
    if resource not in DASHBOARD
)
METHODS = {"create": "POST", "delete": "DELETE", "get": "GET", "list": "GET", "patch": "PATCH"}
_numbers = itertools.count(0xABC00000)


async def leak(fleet: Fleet) -> str:
    """Creates a leaked Pod: stamped, without a claim, and unschedulable, so it never polls.

    Its account lacks the operator's label, so only the server can remove it.
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


async def label_for_operator(fleet: Fleet, name: str) -> None:
    """Labels the account as the operator's, so that the operator deletes it after the server could not."""
    path = fleet.api.path("serviceaccounts", name)
    if (await fleet.api.call("GET", path)).status == 200:
        mine = {names.APP_COMPONENT: names.COMPONENT_RUNNER_SA}
        await fleet.api.patch(path, {"metadata": {"labels": mine}})


async def healed(fleet: Fleet, name: str) -> None:
    """Waits until the Pod and its account are gone."""

    paths = (fleet.api.pods(name), fleet.api.path("serviceaccounts", name))

    async def check() -> bool | None:
        return all([(await fleet.api.call("GET", path)).status == 404 for path in paths]) or None

    try:
        await fleet.api.eventually(check, seconds=TIMEOUT)
    except TimeoutError:
        left = [(await fleet.api.call("GET", path)).status for path in paths]
        raise AssertionError(f"{name}: Pod and account answer {left}") from None


async def until_working(fleet: Fleet) -> None:
    """Waits until the server reports that it works; fails with its report."""
    try:
        await fleet.until_working("server", seconds=TIMEOUT)
    except TimeoutError:
        raise AssertionError(await fleet.readiness("server")) from None


def refusal(right: Right) -> re.Pattern[str]:
    """Matches a reported refusal of that right: `403 to DELETE /api/v1/namespaces/x/pods/y`."""
    name = "/[^/, ]+" if right.verb in ("delete", "get", "patch") else ""
    return re.compile(rf"403 to {METHODS[right.verb]} [^, ]*/{right.resource}{name}(?:,|$)")


async def with_all_rights(fleet: Fleet, plane: controlplane.ControlPlane) -> None:
    """A leak is removed without a refused request."""
    job = await fleet.queue("echo known", "makes the tenant known")
    assert await fleet.finished(job) == "success"
    await fleet.warm()
    await healed(fleet, await leak(fleet))
    await until_working(fleet)
    account = f"system:serviceaccount:{names.CONTROLLER_NAMESPACE}:{rights.SERVER_ACCOUNT}"
    requests = [each for each in plane.audit() if each.user == account]
    assert not [each for each in requests if each.code == 403]
    deleted = {each.path.split("/")[-2] for each in requests if each.verb == "delete"}
    assert deleted == {"pods", "serviceaccounts"}


async def without(fleet: Fleet, right: Right, lines: io.StringIO) -> tuple[str, int]:
    """Removes a verb, checks that health, metric and log name it, and restores it; returns the leak and the job."""
    before, answer = await fleet.metric("server", REFUSALS), refusal(right)
    leaked = await leak(fleet)
    await clusters.remove_right(fleet.api, right)
    for pod in await fleet.pods():  # existing runners would run the job
        if pod["metadata"]["labels"].get(names.POOL_OWNER) is None:
            await fleet.api.call("DELETE", fleet.api.pods(pod["metadata"]["name"]))
    job = await fleet.queue("echo done", f"needs {right.verb} {right.resource}")

    async def is_reported() -> bool | None:
        return (
            bool(answer.search(await fleet.condition("server", REFUSED, seconds=TIMEOUT))) or None
        )

    try:
        await fleet.api.eventually(is_reported, seconds=TIMEOUT)
    except TimeoutError:
        raise AssertionError((right, await fleet.readiness("server"))) from None
    assert await fleet.metric("server", REFUSALS) > before
    logged = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert any(answer.search(each["request"]) for each in logged if each["event"] == "forbidden"), (
        logged
    )
    if right.resource == "serviceaccounts":
        await label_for_operator(fleet, leaked)
    await clusters.restore_rights(fleet.api, right.component)
    # Before the next verb is removed, because that deletes this job's runner.
    assert await fleet.finished(job, seconds=TIMEOUT) == "success"
    return leaked, job


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """The log lines of the components."""
    stream = io.StringIO()
    log.configure(level="error", stream=stream)
    yield stream
    log.configure(level="critical")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_recovery_needs_exactly_its_shipped_rights_and_reports_missing_ones(
    audited: controlplane.ControlPlane,  # noqa: F811 - the fixture
    database_url: str,  # noqa: F811 - the fixture
    lines: io.StringIO,
) -> None:
    async def scenario(fleet: Fleet) -> None:
        await with_all_rights(fleet, audited)
        found: list[tuple[str, int]] = []
        for right in sample(LACKS, of=6):
            found.append(await without(fleet, right, lines))
            if right.resource == "serviceaccounts":
                # An earlier leak may have been reaped meanwhile, and its account left behind just so.
                for earlier, _ in found:
                    await label_for_operator(fleet, earlier)
        for leaked, job in found:
            await healed(fleet, leaked)
            history = (await fleet.github.job(job)).history
            assert [each.what for each in history].count("in_progress") == 1, history
        await until_working(fleet)

    play(scenario, audited, database_url)
