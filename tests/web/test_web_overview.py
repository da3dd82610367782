"""The overview matches the rows and objects that the real dispatcher and the real API core have written."""

from typing import Any

import pytest
from tests.dispatch.dispatchworld import SPACE, Guest, World, play

from runyard.db.contract import Unavailable
from runyard.dispatch.settings import Limit
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.github.session import RunnerSession
from runyard.http.errors import NotSent
from runyard.http.messages import json_response
from runyard.kube.client import Kube
from runyard.kube.kinds import LEASES, NODES
from runyard.web.cluster import read_cluster
from runyard.web.explain.context import DispatchLimits
from runyard.web.explain.values import Constraint
from runyard.web.overview import build_overview
from runyard.web.records import Records, read_records
from runyard.web.settings import Settings
from runyard.web.snapshot import Snapshot
from runyard.web.values import Job, Overview, Runner, Source, same
from runyard.wire import names
from runyard.wire.instants import to_rfc3339, to_rfc3339_micro
from runyard.wire.reasons import render
from runyard.wire.reasons_dispatch import Holding, Why

SETTINGS = Settings()


async def look(
    world: World, settings: Settings = SETTINGS, *, kube: Kube | None = None
) -> Overview:
    now = world.clock.now()
    snapshot = Snapshot(
        at=now,
        postgres=Source(name="Postgres", state="ok", as_of=now),
        kubernetes=Source(name="Kubernetes", state="ok", as_of=now),
        records=await read_records(world.database, settings, world.server.matcher.preview),
        cluster=await read_cluster(kube or world.admin, namespace=SPACE),
    )
    return build_overview(snapshot, settings, DispatchLimits())


def job_of(view: Overview, job_id: int) -> Job:
    everything = (*view.waiting, *view.running, *view.finished)
    return next(job for job in everything if job.job_id == job_id)


def runner_of(view: Overview, guest: Guest) -> Runner:
    return next(runner for runner in view.runners if runner.uid == guest.uid)


async def host(world: World, name: str = "mini-1", **labels: str) -> None:
    await world.admin.create(NODES, {"metadata": {"name": name, "labels": labels}})
    await beat(world, name)


async def beat(world: World, name: str, *, ready: str = "True", **condition: str) -> None:
    now = world.clock.now()
    told = {"type": "Ready", "status": ready, "lastHeartbeatTime": to_rfc3339(now), **condition}
    status = {"conditions": [told], "allocatable": {"pods": "2"}, "capacity": {"pods": "2"}}
    await world.admin.patch(NODES, name, {"status": status}, subresource="status")
    lease = {"holderIdentity": name, "renewTime": to_rfc3339_micro(now)}
    where: dict[str, Any] = {"namespace": names.NODE_LEASE_NAMESPACE, "manager": "test"}
    await world.admin.apply(LEASES, name, {"spec": lease}, **where, force=True)


def test_an_empty_fleet_says_what_to_do_first(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        view = await look(world)
        assert view.verdict.title == "There is no RunnerPool yet"
        assert (view.pools, view.runners, view.waiting, view.healed) == ((), (), (), ())

    play(scenario, database_url, app_keys)


def test_a_jobs_whole_life_is_shown(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool(replicas=1)
        guest = await world.pod()
        assert runner_of(await look(world), guest).state == "starting"

        await world.poll(guest)
        view = await look(world)
        assert runner_of(view, guest).state == "idle"
        assert view.verdict.tone == "good"
        assert (view.pools[0].idle, view.pools[0].desired) == (1, 1)

        job = await world.offered(guest)
        view = await look(world)
        assert runner_of(view, guest).state == "taking"
        assert job_of(view, job).state == "taking"
        assert job_of(view, job).runner == guest.name
        assert view.totals.waiting == 1

        await world.mint()
        await world.clock.sleep(2)
        session = world.github.connect(await world.jit(guest))
        assert isinstance(session, RunnerSession)
        await world.github.settle()
        view = await look(world)
        assert runner_of(view, guest).state == "busy"
        assert runner_of(view, guest).repository == "acme/app"
        assert job_of(view, job).state == "running"
        assert view.totals.running == view.totals.busy == 1

        await world.clock.sleep(30)
        assert session.finish("success")
        await world.github.settle()
        view = await look(world)
        over = job_of(view, job)
        assert (over.state, over.conclusion) == ("done", "success")
        assert over.ran is not None
        assert 30 <= over.ran < 32
        assert runner_of(view, guest).state == "stopping"
        assert view.totals.running == 0
        assert view.healed == ()  # an ordinary life heals nothing

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(
    ("labels", "reason", "named"),
    [
        (("self-hosted", "shape-mac", "gpu"), Holding.LABEL_MISSING, "gpu"),
        (("self-hosted", "macos"), Holding.DISPATCH_LABEL_MISSING, "dispatch label"),
        (("self-hosted", "shape-mac"), Holding.NO_RUNNER_IDLE, "scaled to zero"),
    ],
    ids=["label", "dispatch label", "zero"],
)
def test_a_waiting_job_has_its_reason(
    database_url: str, app_keys: KeyPair, labels: tuple[str, ...], reason: str, named: str
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        job = await world.queued(labels=labels)
        shown = job_of(await look(world), job)
        assert shown.reason == reason
        assert named in shown.text

    play(scenario, database_url, app_keys)


def test_a_budget_that_is_used_up_is_the_reason_and_no_alarm(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        first, second = await world.pod(1), await world.pod(2)
        await world.offered(first)
        await world.poll(second)
        job = await world.queued()
        await world.clock.sleep(60)
        await world.poll(second)
        waiting = job_of(await look(world), job)
        assert waiting.reason == Holding.CPU_BUDGET
        held = Holding.CPU_BUDGET.because(
            tenant="acme", left=1, limit=5, platform="macos", needed=4
        )
        assert waiting.text == render(held)
        assert not waiting.attention

    limits = (Limit(platform="macos", vcpus=5, memory_gb=100),)
    play(scenario, database_url, app_keys, default_limits=limits)


def test_a_job_that_waits_beside_an_idle_runner_is_the_verdict(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await world.poll(guest)
        job, other = await world.queued(), await world.queued()
        assert job_of(await look(world), job).reason == Constraint.NEXT
        await world.clock.sleep(60)
        await world.poll(guest)
        view = await look(world)
        assert job_of(view, job).attention
        assert job_of(view, job).reason == Constraint.NEXT
        assert not job_of(view, other).attention  # one idle runner accuses one job
        assert view.verdict.tone == "bad"
        assert view.verdict.title == "1 job is waiting although a fitting runner is idle"
        assert view.waiting[0].job_id == job

    play(scenario, database_url, app_keys)


def test_a_runner_that_has_gone_silent_is_not_called_warm(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await world.poll(guest)
        await world.clock.sleep(120)
        view = await look(world)
        assert runner_of(view, guest).state == "silent"
        assert view.totals.idle == 0

    play(scenario, database_url, app_keys)


def test_a_slot_without_a_pod_is_seen(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await world.poll(guest)
        await world.delete_pod(guest)
        assert runner_of(await look(world), guest).state == "idle"  # perhaps listed too early
        await world.clock.sleep(30)
        assert runner_of(await look(world), guest).state == "unseen"

    play(scenario, database_url, app_keys)


def test_a_runner_that_never_started_is_listed_as_recovered(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        job = await world.armed(guest)
        await world.clock.sleep(130)
        world.served_long()
        await world.server.recovery.sweeper.step()
        view = await look(world)
        healed = view.healed[0]
        assert healed.reason == Why.FENCE_DELETED
        assert healed.then == f"Job {job} is queued again"
        assert healed.runner == guest.name
        assert healed.took is not None
        assert 130 <= healed.took < 131
        assert view.totals.healed_hour == 1
        assert job_of(view, job).reason == Constraint.ASKED_FIRST

    play(scenario, database_url, app_keys)


@pytest.mark.slow
def test_a_refused_runner_counts_as_recovered_when_its_job_has_left_the_queue(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        job = await world.queued("acme/app", ("ubuntu-latest",))
        world.execute(
            "INSERT INTO transitions (at, subject, job_id, source, target, reason, detail, actor)"
            f" VALUES (runyard_now(), 'job', {job}, 'bound', 'queued', 'mint-refused',"
            ' \'{"kind": "not-found", "message": "404"}\', \'me\')'
        )
        assert (await look(world)).healed == ()
        world.execute("UPDATE jobs SET state = 'running'")
        (healed,) = (await look(world)).healed
        assert (healed.reason, healed.detail["kind"]) == (Why.MINT_REFUSED, "not-found")

    play(scenario, database_url, app_keys)


def test_a_pod_that_vanished_with_its_job_is_listed_as_recovered(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await world.armed(guest)
        await world.delete_pod(guest)
        await world.server.shared.closer.close_if_gone(pod_name=guest.name, pod_uid=guest.uid)
        view = await look(world)
        assert [(entry.reason, entry.what) for entry in view.healed] == [
            (Why.POD_NOT_FOUND, "The Pod vanished before its runner took the job")
        ]
        world.served_long()
        await world.clock.sleep(60)
        await world.server.recovery.sweeper.step()
        assert (await look(world)).healed[0].reason == Why.FENCE_DELETED

    play(scenario, database_url, app_keys)


def test_an_older_image_is_counted(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool(image="vm:2", replicas=1)
        guest = await world.pod()
        view = await look(world)
        assert view.pools[0].stale == 1
        assert runner_of(view, guest).stale

    play(scenario, database_url, app_keys)


def test_a_host_says_how_it_is(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await host(world, **{names.NODE_ISOLATION: "bwrap", names.NODE_OS: "linux"})
        view = await look(world)
        assert (view.hosts[0].state, view.hosts[0].capacity) == ("ready", 2)
        assert view.hosts[0].isolation == "bwrap"
        assert view.totals.hosts_ready == 1
        silent = "no list of the host's VMs for 90 s"
        await beat(world, "mini-1", ready="Unknown", message=silent)
        shown = (await look(world)).hosts[0]
        assert (shown.tone, shown.reason) == ("bad", silent)
        await beat(world, "mini-1")
        await world.clock.sleep(60)
        view = await look(world)
        assert (view.hosts[0].state, view.totals.hosts_ready) == ("silent", 0)
        assert view.verdict.title == "1 of 1 hosts is not ready"

    play(scenario, database_url, app_keys)


def test_limits_hold_and_say_what_they_hide(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        for number in range(5):
            await world.pod(number)
            await world.queued()
        view = await look(world, Settings(jobs_shown=2, runners_shown=3))
        assert (len(view.waiting), view.totals.waiting) == (2, 5)
        assert (len(view.runners), view.hidden_runners, view.totals.runners) == (3, 2, 5)

    play(scenario, database_url, app_keys)


def test_one_object_that_makes_no_sense_hides_no_other(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        other = await world.pod(2)

        async def tamper(request: Any, onward: Any) -> Any:
            answer = await onward()
            if not request.path.endswith("/pods"):
                return answer
            told = answer.json()
            for item in told["items"]:
                if item["metadata"]["name"] == guest.name:
                    item["metadata"]["creationTimestamp"] = "yesterday"
            return json_response(200, told)

        world.kube_wire.tamper = tamper
        view = await look(world, kube=Kube(world.kube_wire))
        assert runner_of(view, other).state == "starting"

    play(scenario, database_url, app_keys)


def test_a_list_that_is_refused_is_named_and_the_rest_is_shown(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()

        async def tamper(request: Any, onward: Any) -> Any:
            answer = await onward()
            if request.path.endswith("/leases"):
                return type(answer)(status=403, body=b"{}")
            return answer

        world.kube_wire.tamper = tamper
        cluster = await read_cluster(Kube(world.kube_wire), namespace=SPACE)
        assert cluster.refused == ("leases",)
        assert len(cluster.pools) == 1
        now = world.clock.now()
        ok = Source(name="x", state="ok", as_of=now)
        view = build_overview(
            Snapshot(at=now, postgres=ok, kubernetes=ok, cluster=cluster), SETTINGS
        )
        assert [alarm.code for alarm in view.alarms] == ["dashboard-refused"]

        async def cut(_request: Any, _onward: Any) -> Any:
            raise NotSent("no route")

        world.kube_wire.tamper = cut
        with pytest.raises(NotSent):
            await read_cluster(Kube(world.kube_wire), namespace=SPACE)

    play(scenario, database_url, app_keys)


def test_without_postgres_the_rest_is_shown(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        await world.pod()
        world.database.down = True
        with pytest.raises(Unavailable):
            await read_records(world.database, SETTINGS)
        now = world.clock.now()
        view = build_overview(
            Snapshot(
                at=now,
                postgres=Source(name="Postgres", state="down", since=now - 60, message="refused"),
                kubernetes=Source(name="Kubernetes", state="ok", as_of=now),
                cluster=await read_cluster(world.admin, namespace=SPACE),
            ),
            SETTINGS,
        )
        assert view.verdict.title == "Postgres does not answer"
        assert view.alarms[0].since == now - 60
        assert len(view.runners) == 1

    play(scenario, database_url, app_keys)


def test_without_kubernetes_jobs_are_shown_without_a_wrong_reason(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await world.poll(guest)
        job, other = await world.queued(), await world.queued()
        now = world.clock.now()
        view = build_overview(
            Snapshot(
                at=now,
                postgres=Source(name="Postgres", state="ok", as_of=now),
                kubernetes=Source(name="Kubernetes", state="down", since=now, message="no route"),
                records=await read_records(world.database, SETTINGS, world.server.matcher.preview),
            ),
            SETTINGS,
            DispatchLimits(),
        )
        assert job_of(view, job).reason == Constraint.NEXT
        assert job_of(view, other).reason == Holding.NO_RUNNER_IDLE
        assert "the Kubernetes API does not answer: no route" in job_of(view, other).text
        assert runner_of(view, guest).state == "idle"
        assert not view.pools[0].known

    play(scenario, database_url, app_keys)


def test_a_sweep_that_stopped_is_an_alarm(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.server.recovery.sweeper.tick()
        assert not (await look(world)).alarms
        await world.clock.sleep(120)
        alarms = (await look(world)).alarms
        assert [alarm.code for alarm in alarms] == ["sweep-late"]

    play(scenario, database_url, app_keys)


def test_an_unchanged_overview_compares_equal_later(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool(replicas=1)
        await world.pod()
        first = await look(world)
        await world.clock.sleep(3)
        second = await look(world)
        assert first != second
        assert same(first, second)
        await world.queued()
        assert not same(second, await look(world))

    play(scenario, database_url, app_keys)


def test_reading_changes_nothing(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await world.armed(guest)
        sql = "SELECT xmin::text, * FROM slots"
        before = world.rows(sql)
        assert isinstance(await read_records(world.database, SETTINGS), Records)
        assert world.rows(sql) == before

    play(scenario, database_url, app_keys)
