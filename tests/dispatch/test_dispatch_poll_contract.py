"""The contract of the poll with existing runners: every status, body and order of checks, over real HTTP.

The table is the contract. Existing pollers run `curl` every two seconds with a timeout of ten, and without `Prefer`,
and react to each status. Three statuses of their contract are never sent, and the last test says why: 403, 404 and 502.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.dispatch.dispatchharness import SPACE, Guest, Harness, Onward

from runyard.clock import RealClock
from runyard.dispatch.settings import Settings
from runyard.embedded.github.identity import KeyPair
from runyard.http.client import HttpTransport
from runyard.http.errors import OutcomeUnknown
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.http.server import listen
from runyard.kube.kinds import PODS, RUNNER_POOLS, SERVICE_ACCOUNTS
from runyard.wire import names
from runyard.wire.paths import DISPATCH

PATIENCE = 120.0  # generous: nothing here is measured
DRAINED = {"error": "drain", "reason": "operator drain"}
STALE = {"error": "drain", "reason": "image stale"}
COMMITTED = {"error": "drain", "reason": "pod already committed"}
Arrange = Callable[["Field"], Awaitable[None]]


class Field:
    """One runner, and the server that it polls over a socket."""

    def __init__(self, harness: Harness, transport: HttpTransport, guest: Guest) -> None:
        self.harness = harness
        self.guest = guest
        self.headers: dict[str, str] = {"authorization": f"Bearer {guest.token}"}
        self.job = 0
        self._transport = transport

    async def poll(self, **more: str) -> Response:
        """As the guest's script does: POST `{}`."""
        answer = await self._transport.send(
            Request(
                method="POST",
                path=DISPATCH,
                headers=tuple((self.headers | {"prefer": "wait=0"} | more).items()),
                body=b"{}",
            ),
            timeout=PATIENCE,
        )
        assert isinstance(answer, Response)
        return answer

    async def labelled(self, **labels: str) -> None:
        await self.harness.label(self.guest, **labels)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not true():
                await asyncio.sleep(0.02)

    def state(self) -> str:
        return str(self.harness.slot(self.guest).get("state", ""))


@contextlib.asynccontextmanager
async def field(url: str, keys: KeyPair, **settings: Any) -> AsyncIterator[Field]:
    """Run a harness in real time, with its server behind HTTP."""
    harness = Harness(url, keys, clock=RealClock(), **settings)
    listening = await listen(harness.server.intake.api.handle)
    transport = HttpTransport(listening.url)
    try:
        await harness.pool()
        yield Field(harness, transport, await harness.pod())
    finally:
        await transport.close()
        await listening.close()
        for mint in harness.mints:
            mint.close()  # type: ignore[attr-defined]  # coroutines, in truth
        harness.close()


# ── what may be true of a runner before it asks ─────────────────────────────────────────────────────


async def nothing(_: Field) -> None:
    """A fresh Pod, an empty queue."""


async def armed(it: Field) -> None:
    """A job was claimed for it, and its runner is minted."""
    it.job = await it.harness.queued()
    waiting = asyncio.create_task(it.poll(prefer="wait=25"))
    await it.until(lambda: it.harness.server.shared.waiters.is_idle(it.guest.uid))
    await it.harness.match()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await it.harness.mint()
    assert it.state() == "armed"


async def offered(it: Field) -> None:
    """A job was claimed for it, and its mint runs."""
    await armed(it)
    it.harness.execute("UPDATE slots SET state = 'offered', jit = NULL, runner_id = NULL")


async def executing(it: Field) -> None:
    """It has had its job."""
    await armed(it)
    it.harness.execute("UPDATE slots SET state = 'executing', executing_job = intended_job")


async def drained(it: Field) -> None:
    await it.labelled(**{names.OPERATOR_DRAIN: "true"})


async def stale(it: Field) -> None:
    patch = {"spec": {"image": "vm:2"}}
    await it.harness.admin.patch(RUNNER_POOLS, "mac", patch, namespace=SPACE)
    await it.harness.server.shared.pools.refresh()


async def eligible(it: Field) -> None:
    await it.labelled(**{names.DRAIN_ELIGIBLE: "true"})


def tampered(path: str, answer: Callable[[], Response], *, method: str = "GET") -> Arrange:
    async def arrange(it: Field) -> None:
        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.method == method and path in request.path:
                return answer()
            return await onward()

        it.harness.kube_wire.tamper = tamper

    return arrange


def lost() -> Response:
    raise OutcomeUnknown("no answer")


def refused(status: int) -> Callable[[], Response]:
    return lambda: json_response(status, {"kind": "Status", "code": status, "message": "no"})


def asking(header: str) -> Arrange:
    async def arrange(it: Field) -> None:
        it.headers = {"authorization": header} if header else {}

    return arrange


async def another_audience(it: Field) -> None:
    token = await it.harness.admin.create_token(
        it.guest.name,
        namespace=SPACE,
        audience="somebody-else",
        seconds=3600,
        pod_name=it.guest.name,
        pod_uid=it.guest.uid,
    )
    it.headers = {"authorization": f"Bearer {token}"}


async def elsewhere(it: Field) -> None:
    """A ServiceAccount without a runner."""
    body = {"metadata": {"name": "somebody"}}
    await it.harness.admin.create(SERVICE_ACCOUNTS, body, namespace="default")
    token = await it.harness.admin.create_token(
        "somebody", namespace="default", audience=names.DISPATCH_AUDIENCE, seconds=3600
    )
    it.headers = {"authorization": f"Bearer {token}"}


async def no_pool(it: Field) -> None:
    body = {"metadata": {"labels": {names.RUNNER_POOL: None}}}
    await it.harness.admin.patch(SERVICE_ACCOUNTS, it.guest.name, body, namespace=SPACE)


async def pod_deleted(it: Field) -> None:
    await it.harness.admin.delete(PODS, it.guest.name, namespace=SPACE, grace=0)


async def database_down(it: Field) -> None:
    it.harness.database.down = True


async def unsealable(it: Field) -> None:
    await armed(it)
    it.harness.execute("UPDATE slots SET jit = '\\x0000'")


GONE = tampered("/serviceaccounts/", refused(404))
POD_500 = tampered("/pods/", refused(500))
POD_404 = tampered("/pods/", refused(404))
POD_LOST = tampered("/pods/", lost)
REVIEW_LOST = tampered("/tokenreviews", lost, method="POST")
REVIEW_403 = tampered("/tokenreviews", refused(403), method="POST")
ACCOUNT_500 = tampered("/serviceaccounts/", refused(500))

# The situation, set up in this order; then the status, and the body or its `error`.
CONTRACT: tuple[tuple[str, tuple[Arrange, ...], int, object], ...] = (
    # ── who is it ──
    ("no credential", (asking(""),), 401, "missing bearer token"),
    ("another scheme", (asking("Basic abc"),), 401, "missing bearer token"),
    ("an empty token", (asking("Bearer "),), 401, "missing bearer token"),
    ("nonsense", (asking("Bearer a.b.c"),), 401, "invalid token"),
    ("a token for others", (another_audience,), 401, "invalid token"),
    ("its Pod is gone", (pod_deleted,), 401, "invalid token"),
    ("nobody's runner", (elsewhere,), 401, "not a service account"),
    ("its account is gone", (GONE,), 401, "service account gone"),
    ("no pool label", (no_pool,), 401, "no pool label on service account"),
    ("a stranger that is to go", (drained, asking("")), 401, "missing bearer token"),
    # ── can anybody tell ──
    ("no review", (REVIEW_LOST,), 503, "kubernetes unavailable"),
    ("no right to review", (REVIEW_403,), 503, "kubernetes unavailable"),
    ("the account cannot be read", (ACCOUNT_500,), 503, "kubernetes unavailable"),
    # ── does a person want it gone: before everything else ──
    ("operator drain", (drained,), 410, DRAINED),
    ("operator drain, and stale", (stale, eligible, drained), 410, DRAINED),
    ("operator drain, and a job", (armed, drained), 410, DRAINED),
    ("operator drain, and had its job", (executing, drained), 410, DRAINED),
    ("operator drain, no database", (drained, database_down), 410, DRAINED),
    # ── has it had its job: before its image ──
    ("had its job", (executing,), 410, COMMITTED),
    ("had its job, and stale", (executing, stale, eligible), 410, COMMITTED),
    # ── is it stale, and its turn ──
    ("stale and labelled", (stale, eligible), 410, STALE),
    ("stale, not its turn", (stale,), 204, None),
    ("stale, not its turn, a job", (stale, armed), 200, None),
    ("labelled, not stale", (eligible,), 204, None),
    ("stale and labelled, but a job is there", (armed, stale, eligible), 200, None),
    ("stale and labelled, but a job is coming", (offered, stale, eligible), 204, None),
    # ── a look that fails is "not stale" ──
    ("the Pod answers 500", (stale, eligible, POD_500), 204, None),
    ("the Pod answers 404", (stale, eligible, POD_404), 204, None),
    ("the Pod does not answer", (drained, POD_LOST), 204, None),
    # ── its slot ──
    ("nothing to do", (nothing,), 204, None),
    ("a runner is being made", (offered,), 204, None),
    ("a runner is made", (armed,), 200, None),
    ("no database", (database_down,), 500, "dispatch failed"),
    ("another seal", (unsealable,), 500, "dispatch failed"),
)


@pytest.mark.parametrize(
    ("so", "status", "expected"), [row[1:] for row in CONTRACT], ids=[row[0] for row in CONTRACT]
)
def test_each_situation_has_its_status_and_body(
    database_url: str, app_keys: KeyPair, so: tuple[Arrange, ...], status: int, expected: object
) -> None:
    async def scenario() -> None:
        async with field(database_url, app_keys) as it:
            for arrange in so:
                await arrange(it)
            answer = await it.poll()
            assert answer.status == status, answer
            if status == 200:
                body = answer.json()
                assert sorted(body) == ["encoded_jit_config", "owner", "workflow_job_id"]
                assert (body["owner"], body["workflow_job_id"]) == ("acme", it.job)
                again = await it.poll()  # its response got lost: it gets the same again
                assert (again.status, again.body) == (200, answer.body)
            elif status == 204:
                assert answer.body == b""
            elif status == 410:
                assert answer.json() == expected
            else:
                assert answer.json()["error"] == expected
                assert it.guest.token not in answer.body.decode()

    asyncio.run(scenario())


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"not json", b'{"anything": 1}'])
def test_the_body_of_a_poll_is_ignored(database_url: str, app_keys: KeyPair, body: bytes) -> None:
    async def scenario() -> None:
        async with field(database_url, app_keys) as it:
            headers = (("authorization", f"Bearer {it.guest.token}"), ("prefer", "wait=0"))
            answer = await it.harness.ask("POST", DISPATCH, body, headers)
            assert answer.status == 204

    asyncio.run(scenario())


def test_a_poller_without_prefer_is_answered_within_ten_seconds(
    database_url: str, app_keys: KeyPair
) -> None:
    """No `Prefer`: held for `poll_wait_default`, under curl's `--max-time 10`; then a job, and the same again."""

    async def scenario() -> None:
        async with field(database_url, app_keys, poll_wait_default=0.2) as it:
            headers = {"prefer": "", "accept": "*/*", "user-agent": "curl/8"}
            assert (await it.poll(**headers)).status == 204
            await armed(it)
            first, second = await it.poll(**headers), await it.poll(**headers)
            assert first.status == second.status == 200 and first.body == second.body

    asyncio.run(scenario())
    assert Settings(webhook_secrets=(), seal_key=b"").poll_wait_default < 10


def test_a_long_poll_is_answered_when_its_job_arrives(database_url: str, app_keys: KeyPair) -> None:
    async def scenario() -> None:
        # Neither the poll's timeout nor the matcher's interval ends this: only the webhook can.
        async with field(database_url, app_keys, match_every=3600.0, poll_wait_max=3600.0) as it:
            async with asyncio.TaskGroup() as group:
                matching = group.create_task(it.harness.server.matcher.run(group.create_task))
                waiting = group.create_task(it.poll(prefer="wait=3600"))
                await it.until(lambda: it.harness.server.shared.waiters.is_idle(it.guest.uid))
                job = await it.harness.queued()
                async with asyncio.timeout(PATIENCE):
                    answer = await waiting
                matching.cancel()
            assert (answer.status, answer.json()["workflow_job_id"]) == (200, job)

    asyncio.run(scenario())


def test_statuses_that_are_never_sent_are_not_documented(
    database_url: str, app_keys: KeyPair
) -> None:
    """403: an unauthenticated caller gets 401. 404 `account not configured`: a tenant with jobs is not deleted.
    502 `jit mint failed`: mints run outside of polls, and after a failed one the Pod continues to wait.
    """

    async def scenario() -> None:
        async with field(database_url, app_keys) as it:
            answer = await it.harness.ask("GET", "/openapi.json")
            operation = msgspec.json.decode(answer.body)["paths"][DISPATCH]["post"]
            promised = {int(status) for status in operation["responses"]}
            assert promised.isdisjoint({403, 404, 502})
            assert promised >= {row[2] for row in CONTRACT}
            await it.harness.queued()
            with pytest.raises(Exception, match="violates foreign key"):
                it.harness.execute("DELETE FROM tenants WHERE tenant = 'acme'")
            # GitHub refuses a runner: the poll continues to wait.
            it.harness.github.faults.fail_next("/orgs/", 500, times=50)
            waiting = asyncio.create_task(it.poll(prefer="wait=25"))
            await it.until(lambda: it.harness.server.shared.waiters.is_idle(it.guest.uid))
            await it.harness.match()
            await it.harness.mint()
            assert not waiting.done() or waiting.result().status == 204
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(scenario())
