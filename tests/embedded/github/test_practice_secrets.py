"""No answer of the practice GitHub reveals a credential to another caller."""

import asyncio
import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.embedded.github.practicelive import Live, run_scenario

from runyard.embedded.github import runner_routes
from runyard.embedded.github.store import RecordStore, StoreError
from runyard.http.messages import Request, Response

PRIVATE = 0o600


def everything(practice: Any, known: dict[str, str]) -> Iterator[tuple[str, Response]]:
    """Sends requests to many routes, with every credential to each of them."""
    requests = [
        *(("GET", f"/practice/{what}") for what in ("jobs", "runners", "accounts", "deliveries")),
        ("POST", "/practice/jobs"),
        ("GET", "/practice/jobs/x"),
        ("GET", "/practice/nothing"),
        ("GET", "/practice/openapi.json"),
        ("POST", "/practice/runner/session"),
        ("GET", "/practice/runner/session/cancelled"),
        ("PUT", "/practice/runner/session/conclusion"),
        ("GET", "/app"),
        ("GET", "/app/installations"),
        ("GET", "/app/hook/deliveries"),
        ("GET", "/orgs/acme/actions/runners"),
        ("POST", "/orgs/acme/actions/runners/generate-jitconfig"),
        ("DELETE", "/orgs/acme/actions/runners/1"),
        ("GET", "/repos/acme/app/actions/runs"),
    ]
    for method, path in requests:
        for name, secret in known.items():
            for kind in ("Bearer", "Basic"):
                headers = (
                    ("authorization", f"{kind} {secret}"),
                    ("content-type", "application/json"),
                    ("user-agent", "test"),
                )
                body = b'{"surplus": 1, "name": 7}'
                request = Request(method=method, path=path, headers=headers, body=body)
                yield f"{method} {path} by {name}", practice.send(request)


def test_no_answer_and_no_event_repeats_a_credential(practice: Any) -> None:
    _, jit = practice.mint("a")
    known = {
        "practice": "practice-secret",
        "JIT": jit,
        "session": practice.open(jit).json()["session"],
        "installation": practice.token,
        "app": practice.app_jwt,
        "webhook": "hush",
    }
    practice.core.queue_job("acme/app", ("mac",), env={"TOKEN": "the-job's-own"})
    found = []
    for what, answer in everything(practice, known):
        assert answer.status < 500
        output = repr((answer.headers, answer.body))
        found += [f"{name} in {what}" for name, value in known.items() if value in output]
    history = repr(practice.events)
    found += [f"{name} in an event" for name, value in known.items() if value in history]
    shown = repr((practice.core.runners(), practice.core._state, practice.core.settings))
    found += [f"{name} in a rendered record" for name, value in known.items() if value in shown]
    assert practice.events and found == []
    # Only the job's runner may read the job's script.
    assert b"the-job's-own" not in practice.practice_request("GET", "jobs").body


def test_an_error_of_its_own_repeats_no_credential(practice: Any, monkeypatch: Any) -> None:
    _, jit = practice.mint("a")

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(practice.core._state, "connect", broken)
    answer = practice.open(jit)
    assert answer.status == 500 and jit.encode() not in answer.body
    what, detail = practice.events[-1]
    assert what == "internal_error" and jit not in repr(detail)


def test_the_store_is_private_for_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = RecordStore(tmp_path / "github.db")
        store.commit({("meta", "x"): b"1"})
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert "github.db-wal" in modes
    assert set(modes.values()) == {PRIVATE}, modes


def test_a_store_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "github.db"
    path.touch()
    path.chmod(0o644)
    store = RecordStore(path)
    store.commit({("meta", "x"): b"1"})
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {PRIVATE}
    store.close()


def test_the_error_for_a_damaged_store_does_not_quote_it(tmp_path: Path) -> None:
    path = tmp_path / "github.db"
    path.write_bytes(b"the secret of the house" * 100)
    with pytest.raises(StoreError) as caught:
        RecordStore(path)
    assert "secret" not in str(caught.value) and caught.value.fix


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("way", ["--jitconfig", "--jitconfig-file"])
def test_no_process_list_shows_the_secret_while_a_job_runs(
    practice_keys: Any, tmp_path: Path, way: str
) -> None:
    async def scenario(it: Live) -> None:
        begun, go = tmp_path / "begun", tmp_path / "go"
        os.mkfifo(begun)
        os.mkfifo(go)
        jit = it.mint()
        if way == "--jitconfig-file":
            (tmp_path / "jit").write_text(jit)
        script = 'echo $$ > "$BEGUN"\nread word < "$GO"\n'
        env = {"BEGUN": str(begun), "GO": str(go)}
        job = it.core.queue_job("acme/app", ("mac",), script=script, env=env)
        program = await it.start(way, jit if way == "--jitconfig" else str(tmp_path / "jit"))
        shell = int(await asyncio.to_thread(begun.read_text))
        (runner,) = it.core.runners().values()
        key = runner_routes._key(runner)
        shown = {pid: words(pid) for pid in (program.process.pid, shell)}
        assert b"practice_runner.py" in shown[program.process.pid]
        for each in shown.values():
            assert jit.encode() not in each and key.encode() not in each
        await asyncio.to_thread(go.write_text, "on\n")
        assert await program.ended() == 0
        assert it.core.jobs()[job].conclusion == "success"
        assert [path for path in tmp_path.rglob("*jit*") if path.is_file()] == []

    run_scenario(practice_keys, tmp_path, scenario)


def words(pid: int) -> bytes:
    """What `ps` shows of a process, to us."""
    folder = Path(f"/proc/{pid}")
    shown = (folder / "cmdline").read_bytes()
    with contextlib.suppress(PermissionError):  # a process that closed itself to its own user
        shown += b"\n" + (folder / "environ").read_bytes()
    return shown


@pytest.mark.parametrize("owner", ["", "/organizations/acme"], ids=["user", "organisation"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((), 401),
        ((("authorization", "Bearer wrong"),), 401),
        ((("authorization", "Bearer practice-secret"),), 302),
    ],
    ids=["a job", "a wrong token", "its owner"],
)
def test_a_job_cannot_register_an_app_and_get_the_key_of_the_one_that_runs_the_fleet(
    practice: Any, owner: str, headers: tuple[tuple[str, str], ...], status: int
) -> None:
    url = "http://a.example"
    manifest = {"name": "x", "url": url, "redirect_url": url, "hook_attributes": {"url": url}}
    request = Request(
        method="POST",
        path=f"{owner}/settings/apps/new",
        headers=(("user-agent", "job"), *headers),
        body=urlencode({"manifest": json.dumps(manifest)}).encode(),
    )
    assert practice.send(request).status == status
