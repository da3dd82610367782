"""The audit applies missing deliveries, also old ones, in limited steps, on one replica."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.dispatch.dispatchharness import LABELS, Between, Harness, play
from tests.dispatch.test_dispatch_intake import AS_LARGE_AS_CAN_BE

from runyard.components import server
from runyard.db.contract import DatabaseError, Unavailable
from runyard.embedded.github.identity import KeyPair
from runyard.github.budget import KEEP_FREE
from runyard.github.errors import ServerFailed
from runyard.http.messages import Request, Response, Stream
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT

ONE = "/app/hook/deliveries/"


def asked(harness: Harness, since: int = 0, part: str = "") -> list[str]:
    return [r.path for r in harness.github_wire.requests[since:] if part in r.path]


def redelivered(harness: Harness) -> float:
    return harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="redelivered") or 0.0


def test_a_failed_delivery_is_applied_at_once(database_url: str, app_keys: KeyPair) -> None:
    """GitHub does not send it again, so the audit of a restarted replica need not wait."""

    async def scenario(harness: Harness) -> None:
        harness.deliver = False
        job = await harness.queued()
        assert harness.job(job) == {}
        await harness.server.intake.audit.step()
        assert harness.job(job)["state"] == "queued" and redelivered(harness) == 1

    play(scenario, database_url, app_keys)


def test_a_delivery_with_a_lost_commit_is_applied_again(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        job = await harness.queued()
        harness.execute("TRUNCATE jobs, repositories, deliveries CASCADE")
        assert harness.job(job) == {}
        await harness.server.intake.audit.step()
        assert harness.job(job) == {}, "it may still be on its way"
        await harness.clock.sleep(harness.settings.audit_settle + 2)
        await harness.server.intake.audit.step()
        assert harness.job(job)["state"] == "queued" and redelivered(harness) == 1
        before = len(harness.github_wire.requests)
        await harness.server.intake.audit.step()
        assert asked(harness, before, ONE) == [], "fetched although it was applied"

    play(scenario, database_url, app_keys)


def test_deliveries_of_a_long_outage_are_applied_when_it_ends(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.server.intake.audit.step()
        harness.deliver = False
        jobs = []
        for _ in range(5):
            jobs.append(await harness.queued())
            await harness.clock.sleep(3600)
        await harness.server.intake.audit.step()
        assert [harness.job(job)["state"] for job in jobs] == ["queued"] * 5
        assert redelivered(harness) == 5

    play(scenario, database_url, app_keys)


@pytest.mark.slow
def test_a_backlog_of_days_is_read_in_limited_steps_by_any_replica(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.server.intake.audit.step()
        harness.deliver = False
        jobs = []
        for _ in range(350):
            jobs.append(await harness.queued("mona/dots"))
            await harness.clock.sleep(240)
        others = {name: server.wire(harness.deps(name=name)) for name in ("server-2", "server-3")}
        replicas = [*others.values(), harness.server]
        steps = 0
        while any(not harness.job(job) for job in jobs):
            before = len(harness.github_wire.requests)
            await replicas[steps % 3].intake.audit.step()
            pages = [path for path in asked(harness, before) if path == ONE.rstrip("/")]
            assert len(pages) <= harness.settings.audit_pages
            steps += 1
            if steps == 1:
                assert harness.job(jobs[-1]), "what is new comes first"
                assert not harness.job(jobs[0])
            await harness.clock.sleep(600)
        assert steps <= 4
        assert harness.rows("SELECT * FROM delivery_gaps") == []
        assert redelivered(harness) == 350

    play(scenario, database_url, app_keys, audit_pages=2, audit_repositories=0)


@pytest.mark.slow
def test_the_audit_keeps_up_with_fifty_jobs_a_second(database_url: str, app_keys: KeyPair) -> None:
    """Each delivery is listed a few times, because gaps overlap; but a step can still list them all."""

    async def scenario(harness: Harness) -> None:
        every, sent = harness.settings.audit_every, 100
        for _ in range(9):
            for _ in range(sent):
                harness.queue("mona/dots")
            await harness.github.settle()
            await harness.clock.sleep(every)
            before = len(harness.github_wire.requests)
            await harness.server.intake.audit.step()
        pages = asked(harness, before, ONE.rstrip("/"))
        assert len(pages) - 1 <= 4 * sent / 100, "the overlap is longer than need be"
        busy = 4 * every * 50 * 3 / 100
        allowed = harness.settings.github_points * every / 60 * (1 - KEEP_FREE["audit"])
        assert busy <= harness.settings.audit_pages <= allowed

    play(scenario, database_url, app_keys, audit_repositories=0)


def test_an_unreadable_page_is_read_again_and_a_compared_one_is_not(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.server.intake.audit.step()
        harness.deliver = False
        jobs = [await harness.queued(), await harness.queued()]
        await harness.clock.sleep(7200)
        harness.github.faults.fail_next(f"{ONE}", 500, times=2)  # its payload, and the redelivery
        with pytest.raises(ServerFailed):
            await harness.server.intake.audit.step()
        assert not any(harness.job(job) for job in jobs)
        await harness.clock.sleep(60)
        await harness.server.intake.audit.step()
        assert [harness.job(job)["state"] for job in jobs] == ["queued"] * 2

    play(scenario, database_url, app_keys)


def test_redelivery_is_requested_three_times_if_github_cannot_return_a_payload(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        async def unreadable(
            request: Request, onward: Callable[[], Awaitable[Response | Stream]]
        ) -> Response | Stream:
            shown = request.method == "GET" and request.path.startswith(ONE)
            return Response(status=200, body=b"{") if shown else await onward()

        harness.deliver = False
        job = await harness.queued()
        harness.github_wire.tamper = unreadable
        for _ in range(6):
            await harness.clock.sleep(10)
            await harness.server.intake.audit.step()
            await harness.github.settle()
        assert len([r for r in harness.github_wire.requests if r.path.endswith("/attempts")]) == 3
        harness.execute("DELETE FROM redeliveries")
        harness.deliver = True
        await harness.clock.sleep(10)
        await harness.server.intake.audit.step()
        await harness.github.settle()
        assert harness.job(job)["state"] == "queued"

    play(scenario, database_url, app_keys)


def test_an_expired_cursor_restarts_the_gap(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.server.intake.audit.step()
        harness.deliver = False
        jobs = [harness.queue("mona/dots") for _ in range(350)]
        await harness.github.settle()
        await harness.clock.sleep(1000)
        await harness.server.intake.audit.step()
        assert harness.rows("SELECT * FROM delivery_gaps")
        harness.execute("UPDATE delivery_gaps SET page = 'v1_nonsense'")
        for _ in range(6):
            await harness.clock.sleep(60)
            await harness.server.intake.audit.step()
        assert all(harness.job(job) for job in jobs)

    play(scenario, database_url, app_keys, audit_pages=2, audit_repositories=0)


def test_a_second_replica_does_not_call_github(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        other = server.wire(harness.deps(name="server-2"))
        await harness.server.intake.audit.step()
        before = len(harness.github_wire.requests)
        await other.intake.audit.step()
        assert asked(harness, before) == []
        await harness.clock.sleep(3 * harness.settings.audit_every)  # the first one is gone
        await other.intake.audit.step()
        assert asked(harness, before)

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(
    "labels",
    [
        ("a\0b",),
        tuple(AS_LARGE_AS_CAN_BE["of many bytes"] * 2),
        tuple(f"l{n}" for n in range(200)),
    ],
    ids=["NUL", "many bytes", "many labels"],
)
def test_an_invalid_delivery_does_not_block_the_others(
    database_url: str, app_keys: KeyPair, labels: tuple[str, ...]
) -> None:
    async def scenario(harness: Harness) -> None:
        harness.deliver = False
        bad = harness.queue(labels=labels)
        good = harness.queue()
        await harness.github.settle()
        await harness.clock.sleep(100)
        await harness.server.intake.audit.step()
        assert (harness.job(bad), harness.job(good)["state"]) == ({}, "queued")
        assert len(harness.rows("SELECT * FROM deliveries")) == 2

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("error", [DatabaseError, Unavailable])
def test_a_delivery_that_the_database_rejects_does_not_block_the_others(
    database_url: str, app_keys: KeyPair, error: type[DatabaseError]
) -> None:
    async def scenario(harness: Harness) -> None:
        failures = [error("not this one")]

        async def fail_once(name: str) -> None:
            if name == "webhook" and failures:
                raise failures.pop()

        audit = server.wire(
            harness.deps(database=Between(harness.database, fail_once))
        ).intake.audit
        harness.deliver = False
        first, second = harness.queue(), harness.queue()
        await harness.github.settle()
        await harness.clock.sleep(20)
        if error is Unavailable:  # a fault of the database, not of the delivery: everything waits
            with pytest.raises(Unavailable):
                await audit.step()
            assert harness.rows("SELECT page FROM delivery_gaps") == [{"page": ""}]
        else:
            await audit.step()
            assert [bool(harness.job(job)) for job in (first, second)] == [False, True]
        await audit.step()
        assert harness.job(first) and harness.job(second)

    play(scenario, database_url, app_keys, audit_repositories=0)


# ── jobs without an event ──────────────────────────────────────────────────────────────────


def forget_deliveries(harness: Harness) -> Any:
    """Empty GitHub's log of deliveries."""

    async def tamper(request: Request, onward: Any) -> Response | Stream:
        if request.path == ONE.rstrip("/"):
            return Response(status=200, body=b"[]")
        return await onward()

    harness.github_wire.tamper = tamper


def test_a_queued_job_is_found_without_an_event(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        forget_deliveries(harness)
        await harness.queued("acme/app")
        await harness.queued("mona/dots")
        harness.deliver = False
        lost = [harness.queue("acme/app"), harness.queue("mona/dots", LABELS)]
        over = harness.queue("acme/app")
        harness.github.cancel_job(over)
        for _ in range(2):
            await harness.server.intake.audit.step()
        assert [harness.job(job)["state"] for job in lost] == ["queued"] * 2
        assert harness.job(over) == {}, "what is over needs no runner"
        assert harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="missed_job") == 2
        kinds = harness.rows("SELECT tenant, kind FROM tenants ORDER BY tenant")
        assert [row["kind"] for row in kinds] == ["Organization", "User"]
        await harness.server.intake.audit.step()
        assert harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="missed_job") == 2

    play(scenario, database_url, app_keys)


def test_repositories_are_read_while_deliveries_cannot_be_listed(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.queued()
        harness.deliver = False
        lost = harness.queue()
        harness.github.faults.fail_next(ONE.rstrip("/"), 503)
        with pytest.raises(ServerFailed):
            await harness.server.intake.audit.step()
        assert harness.job(lost)["state"] == "queued"

    play(scenario, database_url, app_keys)


def test_repositories_are_read_in_rotation_also_after_a_restart(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        for repo in ("acme/app", "acme/lib", "mona/dots"):
            await harness.queued(repo)
        repositories = []
        for _ in range(5):
            before = len(harness.github_wire.requests)
            await server.wire(harness.deps(name="server-1")).intake.audit.step()
            repos = {
                "/".join(path.split("/")[2:4])
                for path in asked(harness, before, "/actions/runs")
                if path.endswith("/runs")
            }
            repositories.append(repos)
            await harness.clock.sleep(60)
        assert repositories == [
            {"acme/app"},
            {"acme/lib"},
            {"mona/dots"},
            {"acme/app"},
            {"acme/lib"},
        ]

    play(scenario, database_url, app_keys, audit_repositories=1)


def test_an_unreadable_repository_does_not_block_the_next(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        forget_deliveries(harness)
        for repo in ("acme/app", "mona/dots"):
            await harness.queued(repo)
        harness.deliver = False
        lost = harness.queue("mona/dots")
        harness.github.faults.fail_next("/repos/acme/app/actions/runs", 404, times=100)
        await harness.server.intake.audit.step()
        assert harness.job(lost)["state"] == "queued"

    play(scenario, database_url, app_keys, audit_repositories=2)


def test_a_job_that_the_database_rejects_does_not_block_the_others(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        failures = [DatabaseError("not this one")]

        async def fail_once(name: str) -> None:
            if name == "job found" and failures:
                raise failures.pop()

        forget_deliveries(harness)
        await harness.queued("acme/app")
        harness.deliver = False
        lost = [harness.queue("acme/app"), harness.queue("acme/app")]
        await server.wire(
            harness.deps(database=Between(harness.database, fail_once))
        ).intake.audit.step()
        assert not failures and sum(bool(harness.job(job)) for job in lost) == 1

    play(scenario, database_url, app_keys)
