"""The overview matches the rows and objects that the real dispatcher and the real API core have written."""

from typing import Any

import msgspec
import pytest
from tests.dispatch.dispatchharness import SPACE, Harness, play
from tests.web.web_views import SETTINGS, job_of, look, runner_of

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
from runyard.web.values import Source, same
from runyard.wire import names
from runyard.wire.instants import to_rfc3339, to_rfc3339_micro
from runyard.wire.reasons import render
from runyard.wire.reasons_dispatch import Holding, Why


async def host(harness: Harness, name: str = "mini-1", **labels: str) -> None:
    await harness.admin.create(NODES, {"metadata": {"name": name, "labels": labels}})
    await beat(harness, name)


async def beat(harness: Harness, name: str, *, ready: str = "True", **condition: str) -> None:
    now = harness.clock.now()
    told = {"type": "Ready", "status": ready, "lastHeartbeatTime": to_rfc3339(now), **condition}
    status = {"conditions": [told], "allocatable": {"pods": "2"}, "capacity": {"pods": "2"}}
    await harness.admin.patch(NODES, name, {"status": status}, subresource="status")
    lease = {"holderIdentity": name, "renewTime": to_rfc3339_micro(now)}
    where: dict[str, Any] = {"namespace": names.NODE_LEASE_NAMESPACE, "manager": "test"}
    await harness.admin.apply(LEASES, name, {"spec": lease}, **where, force=True)


def test_an_empty_fleet_says_what_to_do_first(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        view = await look(harness)
        assert view.verdict.title == "There is no RunnerPool yet"
        assert (view.pools, view.runners, view.waiting, view.healed) == ((), (), (), ())

    play(scenario, database_url, app_keys)


def test_a_jobs_whole_life_is_shown(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool(replicas=1)
        guest = await harness.pod()
        assert runner_of(await look(harness), guest).state == "starting"

        await harness.poll(guest)
        view = await look(harness)
        assert runner_of(view, guest).state == "idle"
        assert view.verdict.tone == "good"
        assert (view.pools[0].idle, view.pools[0].desired) == (1, 1)

        job = await harness.offered(guest)
        view = await look(harness)
        assert runner_of(view, guest).state == "taking"
        assert job_of(view, job).state == "taking"
        assert job_of(view, job).runner == guest.name
        assert view.totals.waiting == 1

        await harness.mint()
        await harness.clock.sleep(2)
        session = harness.github.connect(await harness.jit(guest))
        assert isinstance(session, RunnerSession)
        await harness.github.settle()
        view = await look(harness)
        assert runner_of(view, guest).state == "busy"
        assert runner_of(view, guest).repository == "acme/app"
        assert job_of(view, job).state == "running"
        assert view.totals.running == view.totals.busy == 1

        await harness.clock.sleep(30)
        assert session.finish("success")
        await harness.github.settle()
        view = await look(harness)
        over = job_of(view, job)
        assert (over.state, over.conclusion) == ("done", "success")
        assert over.ran is not None
        assert 30 <= over.ran < 32
        assert runner_of(view, guest).state == "stopping"
        assert view.totals.running == 0
        assert view.healed == ()  # an ordinary life heals nothing

    play(scenario, database_url, app_keys)


def test_a_jobs_name_workflow_and_run_come_from_its_event_and_are_bounded(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.poll(guest)
        taken = harness.queue(job_name="lint \x1b[31m\u202e<b>")
        long = harness.queue(labels=("self-hosted", "shape-mac", "gpu"), job_name="x" * 5000)
        await harness.github.settle()
        async with harness.waiting(guest):
            await harness.match()
        view = await look(harness, msgspec.structs.replace(SETTINGS, github="https://gh.example"))
        shown = job_of(view, taken)
        assert (shown.name, shown.workflow) == ("lint  [31m <b>", "practice")
        run = harness.rows(f"SELECT run_id FROM jobs WHERE job_id = {taken}")[0]["run_id"]
        assert shown.url == f"https://gh.example/acme/app/actions/runs/{run}/job/{taken}"
        assert job_of(view, long).name == "x" * 200
        runner = runner_of(view, guest)
        assert (runner.job_name, runner.job_url) == (shown.name, shown.url)
        assert runner.job_workflow == shown.workflow != ""
        assert job_of(await look(harness), taken).url == "", "no address, no link"

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
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        job = await harness.queued(labels=labels)
        shown = job_of(await look(harness), job)
        assert shown.reason == reason
        assert named in shown.text

    play(scenario, database_url, app_keys)


def test_a_budget_that_is_used_up_is_the_reason_and_no_alarm(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        first, second = await harness.pod(1), await harness.pod(2)
        await harness.offered(first)
        await harness.poll(second)
        job = await harness.queued()
        await harness.clock.sleep(60)
        await harness.poll(second)
        waiting = job_of(await look(harness), job)
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
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.poll(guest)
        job, other = await harness.queued(), await harness.queued()
        assert job_of(await look(harness), job).reason == Constraint.NEXT
        await harness.clock.sleep(60)
        await harness.poll(guest)
        view = await look(harness)
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
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.poll(guest)
        await harness.clock.sleep(120)
        view = await look(harness)
        assert runner_of(view, guest).state == "silent"
        assert view.totals.idle == 0

    play(scenario, database_url, app_keys)


def test_a_slot_without_a_pod_is_seen(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.poll(guest)
        await harness.delete_pod(guest)
        assert runner_of(await look(harness), guest).state == "idle"  # perhaps listed too early
        await harness.clock.sleep(30)
        assert runner_of(await look(harness), guest).state == "unseen"

    play(scenario, database_url, app_keys)


def test_a_runner_that_never_started_is_listed_as_recovered(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        job = await harness.armed(guest)
        await harness.clock.sleep(130)
        harness.served_long()
        await harness.server.recovery.sweeper.step()
        view = await look(harness)
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
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        job = await harness.queued("acme/app", ("ubuntu-latest",))
        harness.execute(
            "INSERT INTO transitions (at, subject, job_id, source, target, reason, detail, actor)"
            f" VALUES (runyard_now(), 'job', {job}, 'bound', 'queued', 'mint-refused',"
            ' \'{"kind": "not-found", "message": "404"}\', \'me\')'
        )
        assert (await look(harness)).healed == ()
        harness.execute("UPDATE jobs SET state = 'running'")
        (healed,) = (await look(harness)).healed
        assert (healed.reason, healed.detail["kind"]) == (Why.MINT_REFUSED, "not-found")

    play(scenario, database_url, app_keys)


def test_a_pod_that_vanished_with_its_job_is_listed_as_recovered(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.armed(guest)
        await harness.delete_pod(guest)
        await harness.server.shared.closer.close_if_gone(pod_name=guest.name, pod_uid=guest.uid)
        view = await look(harness)
        assert [(entry.reason, entry.what) for entry in view.healed] == [
            (Why.POD_NOT_FOUND, "The Pod vanished before its runner took the job")
        ]
        harness.served_long()
        await harness.clock.sleep(60)
        await harness.server.recovery.sweeper.step()
        assert (await look(harness)).healed[0].reason == Why.FENCE_DELETED

    play(scenario, database_url, app_keys)


def test_an_older_image_is_counted(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool(image="vm:2", replicas=1)
        guest = await harness.pod()
        view = await look(harness)
        assert view.pools[0].stale == 1
        assert runner_of(view, guest).stale

    play(scenario, database_url, app_keys)


def test_a_host_says_how_it_is(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await host(harness, **{names.NODE_ISOLATION: "bwrap", names.NODE_OS: "linux"})
        view = await look(harness)
        assert (view.hosts[0].state, view.hosts[0].capacity) == ("ready", 2)
        assert view.hosts[0].isolation == "bwrap"
        assert view.totals.hosts_ready == 1
        silent = "no list of the host's VMs for 90 s"
        await beat(harness, "mini-1", ready="Unknown", message=silent)
        shown = (await look(harness)).hosts[0]
        assert (shown.tone, shown.reason) == ("bad", silent)
        await beat(harness, "mini-1")
        await harness.clock.sleep(60)
        view = await look(harness)
        assert (view.hosts[0].state, view.totals.hosts_ready) == ("silent", 0)
        assert view.verdict.title == "1 of 1 hosts is not ready"

    play(scenario, database_url, app_keys)


def test_limits_hold_and_say_what_they_hide(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        for number in range(5):
            await harness.pod(number)
            await harness.queued()
        view = await look(harness, Settings(jobs_shown=2, runners_shown=3))
        assert (len(view.waiting), view.totals.waiting) == (2, 5)
        assert (len(view.runners), view.hidden_runners, view.totals.runners) == (3, 2, 5)

    play(scenario, database_url, app_keys)


def test_one_object_that_makes_no_sense_hides_no_other(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        other = await harness.pod(2)

        async def tamper(request: Any, onward: Any) -> Any:
            answer = await onward()
            if not request.path.endswith("/pods"):
                return answer
            told = answer.json()
            for item in told["items"]:
                if item["metadata"]["name"] == guest.name:
                    item["metadata"]["creationTimestamp"] = "yesterday"
            return json_response(200, told)

        harness.kube_wire.tamper = tamper
        view = await look(harness, kube=Kube(harness.kube_wire))
        assert runner_of(view, other).state == "starting"

    play(scenario, database_url, app_keys)


def test_a_list_that_is_refused_is_named_and_the_rest_is_shown(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()

        async def tamper(request: Any, onward: Any) -> Any:
            answer = await onward()
            if request.path.endswith("/leases"):
                return type(answer)(status=403, body=b"{}")
            return answer

        harness.kube_wire.tamper = tamper
        cluster = await read_cluster(Kube(harness.kube_wire), namespace=SPACE)
        assert cluster.refused == ("leases",)
        assert len(cluster.pools) == 1
        now = harness.clock.now()
        ok = Source(name="x", state="ok", as_of=now)
        view = build_overview(
            Snapshot(at=now, postgres=ok, kubernetes=ok, cluster=cluster), SETTINGS
        )
        assert [alarm.code for alarm in view.alarms] == ["dashboard-refused"]

        async def cut(_request: Any, _onward: Any) -> Any:
            raise NotSent("no route")

        harness.kube_wire.tamper = cut
        with pytest.raises(NotSent):
            await read_cluster(Kube(harness.kube_wire), namespace=SPACE)

    play(scenario, database_url, app_keys)


def test_without_postgres_the_rest_is_shown(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        await harness.pod()
        harness.database.down = True
        with pytest.raises(Unavailable):
            await read_records(harness.database, SETTINGS)
        now = harness.clock.now()
        view = build_overview(
            Snapshot(
                at=now,
                postgres=Source(name="Postgres", state="down", since=now - 60, message="refused"),
                kubernetes=Source(name="Kubernetes", state="ok", as_of=now),
                cluster=await read_cluster(harness.admin, namespace=SPACE),
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
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.poll(guest)
        job, other = await harness.queued(), await harness.queued()
        now = harness.clock.now()
        view = build_overview(
            Snapshot(
                at=now,
                postgres=Source(name="Postgres", state="ok", as_of=now),
                kubernetes=Source(name="Kubernetes", state="down", since=now, message="no route"),
                records=await read_records(
                    harness.database, SETTINGS, harness.server.matcher.preview
                ),
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
    async def scenario(harness: Harness) -> None:
        await harness.server.recovery.sweeper.tick()
        assert not (await look(harness)).alarms
        await harness.clock.sleep(120)
        alarms = (await look(harness)).alarms
        assert [alarm.code for alarm in alarms] == ["sweep-late"]

    play(scenario, database_url, app_keys)


def test_an_unchanged_overview_compares_equal_later(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool(replicas=1)
        await harness.pod()
        first = await look(harness)
        await harness.clock.sleep(3)
        second = await look(harness)
        assert first != second
        assert same(first, second)
        await harness.queued()
        assert not same(second, await look(harness))

    play(scenario, database_url, app_keys)


def test_reading_changes_nothing(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.armed(guest)
        sql = "SELECT xmin::text, * FROM slots"
        before = harness.rows(sql)
        assert isinstance(await read_records(harness.database, SETTINGS), Records)
        assert harness.rows(sql) == before

    play(scenario, database_url, app_keys)
