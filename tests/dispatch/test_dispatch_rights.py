"""Recovery needs exactly the verbs of the shipped role; a missing one is reported.

A worker that lacked the verb `delete` once did nothing in production, every minute, unnoticed. So for each verb of the
shipped role, the server runs without it: health, metric and log must report it, and nothing else may fail because of
it. The verbs are read from the role, so a new one is tested automatically.
"""

import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.dispatch.dispatchharness import SPACE, Harness, Lines, Wire, play
from tests.granted import NOT_RECORDED

from runyard.dispatch.machine.table import Deadlines
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.kube.core import KubeCore, Security
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, Stream
from runyard.kube.client import Kube
from runyard.sim.callers import Callers, Need, shipped_needs
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import (
    RUNYARD_KUBERNETES_FORBIDDEN_TOTAL,
    TUIST_RUNNERS_RECOVERY_COUNT,
)
from runyard.telemetry.health import Health
from runyard.wire import names, rights
from runyard.wire.manifests import Object

DASHBOARD = ("nodes", "leases")  # only the dashboard reads these
NEEDS = sorted(
    need for need in shipped_needs(rights.SERVER) - NOT_RECORDED if need[3] not in DASHBOARD
)
METHODS = {"create": "POST", "delete": "DELETE", "get": "GET", "list": "GET", "patch": "PATCH"}


# Short intervals: permissions are tested here, not times.
HURRY: dict[str, Any] = {
    "deadlines": Deadlines(idle=30.0, armed=8.0, ask_again=5.0, fence_again=3.0),
    "stamped_grace": 15.0,
    "recover_every": 5.0,
    "pods_every": 5.0,
    "sweep_every": 3.0,
    "pools_every": 5.0,
    "match_every": 2.0,
}


class GuardedWire(Wire):
    """A transport that authenticates as the server's account."""

    def __init__(self, core: KubeCore, callers: Callers) -> None:
        super().__init__(core.handle)
        self._callers = callers

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        self._callers.asking = "server-1"
        try:
            return await super().send(request, timeout=timeout)
        finally:
            self._callers.asking = ""


class GuardedHarness(Harness):
    """The server under its shipped roles."""

    def guard(self, lines: Lines) -> Health:
        self.callers = Callers()
        self.callers.add("server-1")
        self.kube = KubeCore(
            clock=self.clock,
            rng=random.Random(1),
            security=Security(authenticate=self.callers.who, authorize=self.callers.decide),
        )
        self.admin = Kube(Loopback(self.kube.handle))
        self.kube_wire = GuardedWire(self.kube, self.callers)
        self.health = Health(self.clock, conditions.ALL)
        return self.health


def without(need: Need | None) -> dict[str, tuple[Object, ...]]:
    """The server's roles, less one verb."""
    whole = rights.roles(rights.SERVER)
    if need is None:
        return {rights.SERVER: whole}
    cut = []
    for role in whole:
        rules = []
        for rule in role["rules"]:
            hit = need[3] in rule["resources"] and role["metadata"].get("namespace", "") == need[1]
            verbs = [verb for verb in rule["verbs"] if not (hit and verb == need[4])]
            rules.append({**rule, "verbs": verbs})
        cut.append({**role, "rules": rules})
    return {rights.SERVER: tuple(cut)}


async def all_faults(harness: GuardedHarness) -> dict[str, bool]:
    """Cause everything that recovery handles; returns what was recovered."""
    await harness.pool()
    leak = await harness.pod(1, **{names.POOL_OWNER: "acme"})
    lost, late, idle = [await harness.pod(number) for number in (2, 3, 4)]
    await harness.queued("acme/app", ("ubuntu-latest",))
    async with harness.running(health=harness.health):
        harness.queue()
        harness.queue("acme/lib")
        for _ in range(3):
            for guest in (lost, late):
                await harness.poll(guest, wait=2.0)  # gets its JIT, and never registers
        await harness.delete_pod(lost)
        for _ in range(10):
            await harness.poll(idle)
            await harness.poll(leak)
            await harness.clock.sleep(5)
    there = {pod["metadata"]["name"] for pod in harness.kube.objects("pods")}
    accounts = {each["metadata"]["name"] for each in harness.kube.objects("serviceaccounts")}
    return {
        "leak": leak.name not in there and leak.name not in accounts,
        "late": late.name not in there and late.name not in accounts,
        "lost": harness.slot(lost).get("state") == "closed",
    }


def run_server(
    url: str, keys: KeyPair, monkeypatch: pytest.MonkeyPatch, need: Need | None
) -> tuple[dict[str, bool], Mapping[str, float], list[str], Lines]:
    lines = Lines()
    roles = without(need)
    monkeypatch.setattr(rights, "roles", lambda part: roles[part])
    monkeypatch.setattr("tests.dispatch.dispatchharness.Harness", GuardedHarness)
    reported: list[str] = []
    counted: dict[str, float] = {}
    healed: dict[str, bool] = {}

    async def scenario(harness: Harness) -> None:
        assert isinstance(harness, GuardedHarness)
        health = harness.guard(lines)
        healed.update(await all_faults(harness))
        reported.extend(f"{each.code}: {each.message}" for each in health.report())
        for (_, space, group, resource, verb), times in harness.callers.refused.items():
            counted[f"{space} {group} {resource} {verb}"] = times
        counted["metric"] = harness.meter.total(RUNYARD_KUBERNETES_FORBIDDEN_TOTAL)
        counted["stamped"] = (
            harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="orphaned_stamped_pod") or 0
        )

    play(scenario, url, keys, log=lines, **HURRY)
    return healed, counted, reported, lines


def test_the_shipped_verbs_are_sufficient_for_recovery(
    database_url: str, app_keys: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    healed, counted, reported, _ = run_server(database_url, app_keys, monkeypatch, None)
    assert healed == {"leak": True, "late": True, "lost": True}
    assert counted == {"metric": 0, "stamped": 1}
    assert not [each for each in reported if "kubernetes" in each]


@pytest.mark.parametrize("need", NEEDS, ids=[f"{need[4]} {need[3]}" for need in NEEDS])
def test_a_missing_verb_is_reported(
    database_url: str, app_keys: KeyPair, monkeypatch: pytest.MonkeyPatch, need: Need
) -> None:
    _, space, group, resource, verb = need
    healed, counted, reported, lines = run_server(database_url, app_keys, monkeypatch, need)
    refused = {name for name in counted if name not in ("metric", "stamped")}
    assert refused == {f"{space} {group} {resource} {verb}"}, "this, and nothing else"
    assert counted["metric"] > 0
    condition = f"kubernetes-refused: 403 to {METHODS[verb]} "
    assert any(each.startswith(condition) and f"/{resource}" in each for each in reported), reported
    said = [line for line in lines if line["event"] == "forbidden"]
    assert said and all(f"403 to {METHODS[verb]}" in line["request"] for line in said)
    if (resource, verb) in (("pods", "delete"), ("serviceaccounts", "delete"), ("pods", "list")):
        assert not healed["leak"]


def test_the_verbs_are_those_of_the_shipped_role() -> None:
    assert {(need[3], need[4]) for need in NEEDS} >= {
        ("pods", "delete"),
        ("serviceaccounts", "delete"),
        ("pods", "list"),
    }
    assert {need[1] for need in NEEDS} == {"", SPACE}
    assert msgspec.json.encode(NEEDS)
