"""Acknowledged changes of the practice GitHub survive a kill."""

import asyncio
import random
import shutil
import sqlite3
import stat
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.embedded.github.conftest import APP_ID, ManualClock, Practice
from tests.tiers import examples

from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.embedded.github.store import RecordStore, StoreError

SESSION = "runner/session"
KEYS = generate_key_pair()


def crashed(folder: Path) -> Path:
    """The files as `kill -9` would leave them at this moment: the writer has not closed anything."""
    copy = Path(tempfile.mkdtemp(dir=folder.parent))
    for path in sorted(folder.iterdir()):
        shutil.copy(path, copy / path.name)
    return copy / "github.db"


def snapshot(core: GithubCore, *, online: bool) -> Any:
    """Everything that a restart must not change; connections are not part of it."""
    state = core._state
    runners = [
        (each.id, each.name, each.scope, each.labels, each.jit, each.jit_used, each.instance)
        for each in state.runners.values()
    ]
    busy = [(each.id, each.job_id, each.online) for each in state.runners.values() if each.busy]
    attempts = [
        (each.delivery, each.ended, each.status, each.status_code) for each in core.attempts()
    ]
    jobs = [
        {**msgspec.to_builtins(job), "wanted": sorted(job.wanted)} for job in state.jobs.values()
    ]
    return (
        msgspec.to_builtins(list(state.installations.values())),
        runners,
        busy if online else [each[:2] for each in busy],
        jobs,
        attempts,
        {name: sorted(runs) for name, runs in state._job_table._open.items() if runs},
        sorted(key for group in state._waiting._jobs.values() for key in group),
        (state.last_id, core._log.last_id),
        core._authenticator._grants,
        {job: core._practice_routes._logs.read(job, 0, 1 << 20) for job in state.jobs},
    )


class AnyHistoryWithCrashes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="practice-keep-"))
        (self.folder / "live").mkdir()
        self.store = RecordStore(self.folder / "live" / "github.db")
        self.practice = Practice(KEYS, store=self.store)
        self.keys: list[str] = []
        self.names = iter(range(1000))

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(label=st.sampled_from(["mac", "gpu"]), script=st.sampled_from(["", "make"]))
    def queue(self, label: str, script: str) -> None:
        body = {"repo": "acme/app", "labels": [label], "script": script}
        assert self.practice.practice_request("POST", "jobs", body).status == 201

    @rule()
    def mint_and_connect(self) -> None:
        name = f"r{next(self.names)}"
        _, jit = self.practice.mint(name)
        answer = self.practice.open(jit, f"start-{name:0>8}")
        self.keys.append(answer.json()["session"])

    @rule(pick=st.integers(0, 9))
    def mint_only(self, pick: int) -> None:
        self.practice.mint(f"m{next(self.names)}", labels=("mac", "gpu"))

    @rule(pick=st.integers(0, 9), text=st.binary(min_size=1, max_size=9))
    def write(self, pick: int, text: bytes) -> None:
        if self.keys:
            key = self.keys[pick % len(self.keys)]
            answer = self.practice.practice_request("GET", f"{SESSION}/job", bearer=key)
            if answer.status == 200:
                self.practice.practice_request(
                    "POST",
                    f"{SESSION}/log",
                    raw=text,
                    bearer=key,
                    query={"offset": answer.json()["log_size"]},
                )

    @rule(pick=st.integers(0, 9), conclusion=st.sampled_from(["success", "failure"]))
    def conclude(self, pick: int, conclusion: str) -> None:
        if self.keys:
            key = self.keys[pick % len(self.keys)]
            body = {"conclusion": conclusion}
            self.practice.practice_request("PUT", f"{SESSION}/conclusion", body, bearer=key)

    @rule(pick=st.integers(0, 9))
    def cancel(self, pick: int) -> None:
        jobs = list(self.practice.core.jobs())
        if jobs:
            self.practice.practice_request("POST", f"jobs/{jobs[pick % len(jobs)]}/cancel")

    @rule(pick=st.integers(0, 9))
    def delete(self, pick: int) -> None:
        runners = list(self.practice.core.runners())
        if runners:
            runner = runners[pick % len(runners)]
            self.practice.ask("DELETE", f"/orgs/acme/actions/runners/{runner}")

    @rule()
    def carry(self) -> None:
        asyncio.run(self.practice.core.settle())

    @rule(seconds=st.sampled_from([5.0, 31.0, 700.0, 4000.0]))
    def wait(self, seconds: float) -> None:
        self.practice.clock.t += seconds
        asyncio.run(self.practice.core.settle())
        self.practice.token = self.practice.token_of(self.practice.acme)

    @invariant()
    def a_crash_now_loses_nothing(self) -> None:
        image = crashed(self.folder / "live")
        store = RecordStore(image)
        try:
            clock = ManualClock(at=self.practice.clock.t, boot=1000.0)
            after = Practice(KEYS, store=store, clock=clock)
            assert snapshot(after.core, online=True) == snapshot(self.practice.core, online=True)
        finally:
            store.close()
            shutil.rmtree(image.parent)


AnyHistoryWithCrashes.TestCase.settings = settings(
    max_examples=examples(25), stateful_step_count=25, deadline=None
)
TestAnyHistoryWithCrashes = AnyHistoryWithCrashes.TestCase


class Restarts:
    """A practice GitHub that can be killed and restarted."""

    def __init__(self, keys: KeyPair, folder: Path) -> None:
        self.keys = keys
        self.seed = 10
        self.folder = folder / "first"
        self.folder.mkdir()
        self.store = RecordStore(self.folder / "github.db")
        self.now = Practice(keys, store=self.store)

    def die(self, *, away: float = 0.0) -> Practice:
        image = crashed(self.folder)
        self.store.close()
        self.folder = image.parent
        self.store = RecordStore(image)
        before = self.now
        at = before.clock.t + away
        clock = ManualClock(at=at, boot=at - 3.0)  # another process, perhaps on a rebooted machine
        self.now = Practice(self.keys, store=self.store, clock=clock, seed=self.seed)
        self.seed += 1
        self.now.token = before.token
        self.now.acme = before.acme
        return self.now


@pytest.fixture
def restarts(practice_keys: KeyPair, tmp_path: Path) -> Any:
    it = Restarts(practice_keys, tmp_path)
    yield it
    it.store.close()


def history(practice: Any, job_id: int) -> list[str]:
    return [entry.what for entry in practice.core.history(job_id)]


def test_a_running_job_survives_a_restart_of_github(restarts: Any) -> None:
    key = restarts.now.open(restarts.now.mint("a")[1]).json()["session"]
    job_id = restarts.now.core.queue_job("acme/app", ("mac",), script="make")
    restarts.now.practice_request(
        "POST", f"{SESSION}/log", raw=b"half", bearer=key, query={"offset": 0}
    )
    practice = restarts.die(away=5000)
    asyncio.run(practice.core.settle())
    assert practice.core.jobs()[job_id].status == "in_progress"
    order = practice.practice_request("GET", f"{SESSION}/job", bearer=key).json()
    assert (order["id"], order["log_size"], order["script"]) == (job_id, 4, "make")
    done = {"conclusion": "success"}
    assert practice.practice_request("PUT", f"{SESSION}/conclusion", done, bearer=key).status == 200
    practice = restarts.die()
    assert practice.practice_request("PUT", f"{SESSION}/conclusion", done, bearer=key).status == 200
    assert history(practice, job_id) == ["queued", "in_progress", "completed:success"]
    assert practice.practice_request("GET", f"jobs/{job_id}/log").body == b"half"


def test_a_program_that_does_not_come_back_after_a_restart_is_lost(restarts: Any) -> None:
    restarts.now.open(restarts.now.mint("a")[1])
    job_id = restarts.now.core.queue_job("acme/app", ("mac",))
    practice = restarts.die()
    for seconds, last in ((29, "in_progress"), (2, "runner_lost"), (600, "completed:failure")):
        practice.clock.t += seconds
        asyncio.run(practice.core.settle())
        assert history(practice, job_id)[-1] == last


def test_an_idle_program_gets_a_job_only_after_it_reconnects(restarts: Any) -> None:
    key = restarts.now.open(restarts.now.mint("a")[1]).json()["session"]
    practice = restarts.die()
    job_id = practice.core.queue_job("acme/app", ("mac",))
    assert practice.core.jobs()[job_id].status == "queued"
    assert practice.practice_request("GET", f"{SESSION}/job", bearer=key).json()["id"] == job_id


def test_a_cancellation_survives_a_restart(restarts: Any) -> None:
    key = restarts.now.open(restarts.now.mint("a")[1]).json()["session"]
    job_id = restarts.now.core.queue_job("acme/app", ("mac",))
    restarts.now.core.cancel_job(job_id)
    practice = restarts.die()
    assert practice.practice_request("GET", f"{SESSION}/cancelled", bearer=key).status == 200


def test_deliveries_that_were_pending_are_attempted_and_ended_ones_are_not(restarts: Any) -> None:
    restarts.now.core.queue_job("acme/app", ("mac",))
    asyncio.run(restarts.now.core.settle())
    job_id = restarts.now.core.queue_job("acme/app", ("mac",))
    before = restarts.now.core.attempts()[-1].delivery
    practice = restarts.die()
    asyncio.run(practice.core.settle())
    assert [(each.id, each.guid) for each in practice.delivered] == [(before.id, before.guid)]
    assert str(job_id).encode() in practice.delivered[0].body
    practice = restarts.die()
    asyncio.run(practice.core.settle())
    assert practice.delivered == []


def test_tokens_and_registrations_survive_and_ids_do_not_repeat(restarts: Any) -> None:
    first, jit = restarts.now.mint("a")
    practice = restarts.die()
    runners = practice.ask("GET", "/orgs/acme/actions/runners")
    assert [each["name"] for each in runners.json()["runners"]] == ["a"]
    assert practice.ask("GET", "/orgs/acme/actions/runners", auth="ghs_other").status == 401
    second, _ = practice.mint("b")
    assert second > first
    assert practice.open(jit).status == 201


def test_an_unused_registration_is_removed_on_time_across_restarts(restarts: Any) -> None:
    restarts.now.mint("a")
    practice = restarts.die(away=86390)
    asyncio.run(practice.core.settle())
    assert len(practice.core.runners()) == 1
    practice = restarts.die(away=20)
    asyncio.run(practice.core.settle())
    assert not practice.core.runners()


def test_nothing_is_acknowledged_that_cannot_be_written(restarts: Any, monkeypatch: Any) -> None:
    practice = restarts.now
    real = RecordStore.commit

    def full(*_: object, **__: object) -> None:
        raise StoreError("the disk is full", fix="free some space")

    monkeypatch.setattr(RecordStore, "commit", full)
    body = {"repo": "acme/app", "labels": ["mac"]}
    assert practice.practice_request("POST", "jobs", body).status == 503
    assert practice.core.internal_errors == 1
    monkeypatch.setattr(RecordStore, "commit", real)
    practice.practice_request("GET", "jobs")
    assert len(restarts.die().core.jobs()) == 1


def test_only_what_changed_is_written(restarts: Any) -> None:
    practice = restarts.now
    for _ in range(20):
        practice.core.queue_job("acme/app", ("mac",))
    before = restarts.store._connection.total_changes
    practice.practice_request("GET", "jobs")
    assert restarts.store._connection.total_changes == before
    practice.practice_request("POST", f"jobs/{next(iter(practice.core.jobs()))}/cancel")
    # The job, the counters, and the webhook delivery.
    assert restarts.store._connection.total_changes - before == 3


def test_the_file_is_private_and_used_by_one_process(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "github.db")
    assert stat.S_IMODE((tmp_path / "github.db").stat().st_mode) == 0o600
    store.commit({("meta", "x"): b"{}"})
    with pytest.raises(StoreError, match="in use"):
        RecordStore(tmp_path / "github.db")
    store.close()
    RecordStore(tmp_path / "github.db").close()


@pytest.mark.parametrize("damage", ["text", "version", "record", "folder"])
def test_the_error_for_a_damaged_store_has_a_fix(
    practice_keys: KeyPair, tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "github.db"
    if damage == "text":
        path.write_bytes(b"no database at all, but long enough to look like one" * 100)
    elif damage == "folder":
        path.mkdir()
    else:
        RecordStore(path).close()
        connection = sqlite3.connect(path)
        if damage == "version":
            connection.execute("PRAGMA user_version = 99")
        else:
            connection.execute("INSERT INTO records VALUES ('job', 1, '{\"id\": \"x\"}')")
            connection.commit()
        connection.close()
    with pytest.raises(StoreError) as caught:
        store = RecordStore(path)
        try:
            Practice(practice_keys, store=store)
        finally:
            store.close()
    assert caught.value.fix


def test_the_store_of_another_app_is_refused(restarts: Any) -> None:
    with pytest.raises(StoreError, match=f"App {APP_ID}"):
        GithubCore(
            clock=restarts.now.clock,
            rng=random.Random(1),
            app=PracticeApp(
                app_id=APP_ID + 1, public_key=restarts.keys.public_pem, webhook_secret="s"
            ),
            store=restarts.store,
        )


def test_a_new_key_of_the_app_is_stored_beside_the_old_one(restarts: Any) -> None:
    restarts.keys = KEYS
    practice = restarts.die()
    assert len(practice.core._persistence._app.fingerprints) == 2
