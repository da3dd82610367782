"""Tests that a corrected role is noticed although the denied request is not repeated."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.embedded.kube_access.accesssupport import BOSS, ROLES, SPACE, RbacHarness, rule

from runyard.components.reporting import check_denied, reporting_kube
from runyard.http.errors import NotSent
from runyard.http.messages import Request, Response, Stream
from runyard.kube.access import Access, access_of
from runyard.kube.client import Kube
from runyard.kube.errors import Forbidden, KubeError
from runyard.kube.kinds import PODS, SERVICE_ACCOUNTS
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import (
    RUNYARD_KUBERNETES_FORBIDDEN_TOTAL,
    RUNYARD_LOOP_FAILURES_TOTAL,
)
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ACCOUNTS = f"/api/v1/namespaces/{SPACE}/serviceaccounts"


class LoopDeps(msgspec.Struct, kw_only=True):
    """The dependencies of the loop."""

    clock: VirtualClock
    rng: random.Random
    meter: Meter
    freshness: Freshness
    log = get_logger("test")


class Api:
    """An API server with two authorizers: the roles, which reviews know, and an admission policy."""

    def __init__(self) -> None:
        self.roles_allow = True
        self.admitted = True
        self.review_answer: int | None = None  # instead of a response by the roles; 0: no response
        self.reviews: list[Access] = []
        self.during_review: Callable[[], Awaitable[None]] | None = None

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        if request.path != REVIEWS:
            allowed = self.roles_allow and self.admitted
            return Response(status=200 if allowed else 403, body=b'{"message": "no"}')
        attributes = msgspec.json.decode(request.body)["spec"]["resourceAttributes"]
        self.reviews.append(msgspec.convert(attributes, Access))
        answer = self.roles_allow
        if self.during_review is not None:
            await self.during_review()
        if self.review_answer == 0:
            raise NotSent("connection refused")
        if self.review_answer is not None:
            return Response(status=self.review_answer, body=b"{}")
        body = msgspec.json.encode({"status": {"allowed": answer}})
        return Response(status=201, body=body)


class Harness:
    """A component with the loop running beside it."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.clock = VirtualClock()
        self.health = Health(self.clock, conditions.ALL)
        self.deps = LoopDeps(
            clock=self.clock,
            rng=random.Random(1),
            meter=Meter(),
            freshness=Freshness(self.clock),
        )
        self.kube = Kube(reporting_kube(api, self.health, meter=self.deps.meter))

    async def delete(self, name: str = "a") -> None:
        with contextlib.suppress(Forbidden):
            await self.kube.delete(SERVICE_ACCOUNTS, name, namespace=SPACE)

    def reports(self) -> list[str]:
        return [f"{each.code}: {each.message}" for each in self.health.report()]


REFUSED = [f"kubernetes-refused: 403 to DELETE {ACCOUNTS}/a"]


def play(scenario: Callable[[Harness], Awaitable[None]]) -> None:
    async def main() -> None:
        harness = Harness(Api())
        async with asyncio.TaskGroup() as group:
            loop = group.create_task(check_denied(harness.kube, harness.deps))
            await harness.clock.sleep(1)
            await scenario(harness)
            loop.cancel()

    run_virtual(main())


def test_a_corrected_role_is_noticed_although_the_request_is_never_repeated() -> None:
    async def scenario(harness: Harness) -> None:
        harness.api.roles_allow = False
        await harness.delete()
        await harness.clock.sleep(300)
        assert harness.reports() == REFUSED, "a review that denies changes nothing"
        harness.api.roles_allow = True
        await harness.clock.sleep(35)
        assert harness.reports() == []
        assert set(harness.api.reviews) == {
            Access(verb="delete", resource="serviceaccounts", namespace=SPACE, name="a")
        }
        assert harness.deps.meter.total(RUNYARD_KUBERNETES_FORBIDDEN_TOTAL) == 1

    play(scenario)


def test_no_review_is_sent_while_no_request_is_denied() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.delete()
        await harness.clock.sleep(3600)
        assert harness.api.reviews == []
        harness.api.roles_allow = False
        await harness.delete()
        harness.api.roles_allow = True
        await harness.delete()
        await harness.clock.sleep(3600)
        assert harness.api.reviews == [], "the request itself was allowed again"
        assert harness.deps.freshness.stale() == ()

    play(scenario)


@pytest.mark.parametrize("answer", [0, 401, 403, 404, 500, 201], ids=str)
def test_a_review_that_fails_changes_nothing_and_is_repeated(answer: int) -> None:
    async def scenario(harness: Harness) -> None:
        harness.api.roles_allow = False
        await harness.delete()
        harness.api.roles_allow = True
        harness.api.review_answer = answer
        await harness.clock.sleep(300)
        assert harness.reports() == REFUSED
        assert len(harness.api.reviews) >= 9, "every half minute, without a backoff"
        failures = harness.deps.meter.total(RUNYARD_LOOP_FAILURES_TOTAL)
        assert failures == (0 if answer == 201 else len(harness.api.reviews))
        harness.api.review_answer = None
        await harness.clock.sleep(35)
        assert harness.reports() == []

    play(scenario)


def test_one_review_that_fails_does_not_keep_another_kind_denied() -> None:
    async def scenario(harness: Harness) -> None:
        harness.api.roles_allow = False
        await harness.delete()
        with contextlib.suppress(KubeError):
            await harness.kube.create(PODS, {}, namespace=SPACE)
        harness.api.roles_allow = True
        harness.api.review_answer = 500

        async def only_the_first_fails() -> None:
            if harness.api.reviews[-1].resource == "pods":
                harness.api.review_answer = None

        harness.api.during_review = only_the_first_fails
        await harness.clock.sleep(35)
        assert harness.reports() == REFUSED

    play(scenario)


def test_a_403_during_the_review_is_kept() -> None:
    async def scenario(harness: Harness) -> None:
        harness.api.roles_allow = False
        await harness.delete()
        harness.api.roles_allow = True

        async def taken_again() -> None:
            harness.api.roles_allow = False
            await harness.delete()

        harness.api.during_review = taken_again
        await harness.clock.sleep(35)
        assert harness.reports() == REFUSED

    play(scenario)


def test_a_request_that_admission_rejects_is_cleared_at_most_once() -> None:
    async def scenario(harness: Harness) -> None:
        harness.api.admitted = False
        await harness.delete()
        await harness.clock.sleep(35)
        assert harness.reports() == []
        await harness.delete()
        for _ in range(20):
            await harness.clock.sleep(30)
            assert harness.reports() == REFUSED
        harness.api.roles_allow = False  # a review that denies makes the next one count again
        await harness.clock.sleep(35)
        harness.api.roles_allow = harness.api.admitted = True
        await harness.clock.sleep(35)
        assert harness.reports() == []

    play(scenario)


def test_reviews_count_again_after_the_request_succeeded() -> None:
    async def scenario(harness: Harness) -> None:
        for _ in range(3):
            harness.api.roles_allow = False
            await harness.delete()
            harness.api.roles_allow = True
            await harness.clock.sleep(35)
            assert harness.reports() == []
            await harness.delete()

    play(scenario)


def test_a_client_without_reports_needs_no_loop() -> None:
    async def main() -> None:
        harness = Harness(Api())
        await check_denied(Kube(Api()), harness.deps)
        assert harness.deps.freshness.stale() == ()

    run_virtual(main())


def test_the_embedded_api_serves_reviews_to_every_account() -> None:
    async def main() -> None:
        harness = RbacHarness()

        class Line:
            async def send(self, request: Request, *, timeout: float) -> Response | Stream:
                headers = (("x-who", "bob"), *request.headers)
                return await harness.core.handle(msgspec.structs.replace(request, headers=headers))

        await harness.grant("bob", rule("pods", "list"))
        health = Health(harness.clock, conditions.ALL)
        transport = reporting_kube(Line(), health)
        kube = Kube(transport)
        with pytest.raises(Forbidden):
            await kube.delete(SERVICE_ACCOUNTS, "a", namespace=SPACE)
        await harness.clock.sleep(60)  # a short refusal is not shown
        await transport.review(kube)
        assert [each.code for each in health.report()] == ["kubernetes-refused"]
        rules = {"rules": [rule("serviceaccounts", "delete")]}
        merge = "application/merge-patch+json"
        await harness.ok(BOSS, "PATCH", f"{ROLES}/of-bob", rules, kind=merge)
        await transport.review(kube)
        assert health.report() == ()

    run_virtual(main())


POD = f"/api/v1/namespaces/{SPACE}/pods"
ACCESSES = {
    ("GET", POD): Access(verb="list", resource="pods", namespace=SPACE),
    ("GET", f"{POD}?watch"): Access(verb="watch", resource="pods", namespace=SPACE),
    ("GET", f"{POD}/a"): Access(verb="get", resource="pods", namespace=SPACE, name="a"),
    ("POST", POD): Access(verb="create", resource="pods", namespace=SPACE),
    ("DELETE", POD): Access(verb="deletecollection", resource="pods", namespace=SPACE),
    ("PATCH", f"{POD}/a/status"): Access(
        verb="patch", resource="pods", subresource="status", namespace=SPACE, name="a"
    ),
    ("PUT", "/apis/coordination.k8s.io/v1/namespaces/x/leases/l"): Access(
        verb="update",
        group="coordination.k8s.io",
        resource="leases",
        namespace="x",
        name="l",
    ),
    ("GET", "/api/v1/nodes/n"): Access(verb="get", resource="nodes", name="n"),
    ("GET", "/api/v1/namespaces/x"): Access(verb="get", resource="namespaces", name="x"),
    ("POST", REVIEWS): Access(
        verb="create", group="authorization.k8s.io", resource="selfsubjectaccessreviews"
    ),
}


@pytest.mark.parametrize(("method", "path"), ACCESSES, ids=" ".join)
def test_the_access_of_a_request_matches_rbac(method: str, path: str) -> None:
    path, _, watch = path.partition("?")
    query = (("watch", "true"),) if watch else ()
    request = Request(method=method, path=path, query=query)
    assert access_of(request) == ACCESSES[method, path + ("?watch" if watch else "")]
