"""Tests that the guest's scripts decide like the simulator's model of them, and that only the poller has the token."""

import os
import random
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.vm.guest_harness import DRAIN, DROP, HOLD, JIT, TOKEN, Answer, Guest, Server

from runyard.http.errors import OutcomeUnknown
from runyard.http.messages import Request, Response
from runyard.sim.clock import VirtualClock
from runyard.sim.guest import Guest as Model
from runyard.sim.guest import GuestView
from runyard.sim.loop import run_virtual

EMPTY = (200, b'{"encoded_jit_config": "", "owner": "acme", "workflow_job_id": 7}')
NOTHING = (204, b"")
CLIENTS = {"curl": {}, "python": {"RUNYARD_NO_CURL": "1"}}

SEQUENCES: dict[str, Sequence[Answer]] = {
    "work at once": [JIT],
    "work after a while": [NOTHING, NOTHING, JIT],
    "an empty JIT is no work": [EMPTY, JIT],
    "errors are retried": [
        (500, b"oops"),
        (502, b""),
        (503, b"{}"),
        (404, b""),
        (429, b""),
        DROP,
        JIT,
    ],
    "not JSON": [(200, b"<html>"), (200, b""), (200, b'{"encoded_jit_config": "eA=="'), JIT],
    "no such field": [(200, b"{}"), (200, b"[]"), (200, b'{"encoded_jit_config": null}'), JIT],
    "unauthorised": [NOTHING, (401, b'{"error": "invalid token"}')],
    "forbidden": [(403, b"")],
    "drained": [NOTHING, DRAIN],
    "drained after an empty JIT": [EMPTY, DRAIN],
    "a redirect is not followed": [(302, b""), (307, b""), DRAIN],
}

Decision = tuple[str, str, int]


class _ScriptedTransport:
    """The same responses, as the model's transport."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.polls = 0

    async def send(self, request: Request, *, timeout: float) -> Response:
        answer = self.answers[self.polls]
        self.polls += 1
        if isinstance(answer, str):
            raise OutcomeUnknown("cut")
        return Response(status=answer[0], body=answer[1])


class _Simulation:
    """The part of the simulator that polling needs."""

    rng = random.Random(0)

    def __init__(self) -> None:
        self.clock = VirtualClock()

    def fate(self, kind: str, view: GuestView) -> bool:
        return False

    def delivered(self, view: GuestView, jit: str) -> None:
        """Deliveries are not counted here."""


def by_model(answers: Sequence[Answer]) -> Decision:
    """The decision of the simulator's guest on these responses."""

    async def main() -> Decision:
        transport = _ScriptedTransport(answers)
        model = Model(_Simulation(), host="h", server=transport, over=lambda _: False)  # type: ignore[arg-type]  # see _Simulation
        view = GuestView(pod="p", uid="u", pool="q", host="h", vm="v", since=0.0)
        outcome = await model._poll(view, TOKEN)
        kind = "exit" if isinstance(outcome, int) else "run"
        return kind, str(outcome), transport.polls

    return run_virtual(main())


def by_script(root: Path, answers: Sequence[Answer], **env: str) -> Decision:
    """The decision of the scripts on these responses."""
    guest = Guest(root, runner='printf %s "$2" >"$OUT/jit"; exit 9')
    with Server(answers) as server:
        guest.stage(server.url)
        code = guest.run(**env)
    ran = (root / "jit").exists()
    assert ran == (code == 9)
    outcome = guest.text("jit") if ran else str(code)
    return "run" if ran else "exit", outcome, len(server.requests)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("answers", SEQUENCES.values(), ids=list(SEQUENCES))
def test_the_script_and_the_model_decide_the_same(
    tmp_path: Path, answers: Sequence[Answer], client: str
) -> None:
    assert by_script(tmp_path, answers, **CLIENTS[client]) == by_model(answers)


_passing = st.sampled_from([NOTHING, EMPTY, DROP, (500, b""), (503, b"x"), (404, b""), (200, b"{")])
_final = st.sampled_from([JIT, DRAIN, (401, b""), (403, b"")])


@pytest.mark.slow
@settings(max_examples=10)
@given(st.lists(_passing, max_size=4), _final)
def test_any_sequence_of_responses_is_decided_the_same(
    passing: list[Answer], final: Answer
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        answers = [*passing, final]
        assert by_script(Path(folder), answers) == by_model(answers)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_poll_is_what_the_server_expects(tmp_path: Path, client: str) -> None:
    guest = Guest(tmp_path)
    with Server([DRAIN]) as server:
        guest.stage(server.url)
        assert guest.run(**CLIENTS[client]) == 0
    method, path, headers, body = server.requests[0]
    assert (method, path, body) == ("POST", "/dispatch", b"{}")
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["content-type"] == "application/json"
    assert headers["prefer"] == "wait=25"


def sightings() -> list[str]:
    """Processes of this machine whose arguments or environment hold the token."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                if TOKEN.encode() in (entry / name).read_bytes():
                    found.append(f"{entry.name} {name}")
            except OSError:
                continue
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_only_the_server_gets_the_token(tmp_path: Path, client: str) -> None:
    """Not in arguments or environments while it polls, and nowhere at all once the job runs."""
    search = f'grep -rl {TOKEN} "$OUT" >"$OUT.files" 2>/dev/null; env >"$OUT.env"; exit 0'
    (tmp_path / "guest").mkdir()
    guest = Guest(tmp_path / "guest", runner=search)
    with Server([NOTHING, JIT]) as server:
        server.find_leaks = sightings
        guest.stage(server.url)
        assert guest.run(**CLIENTS[client]) == 0
    assert server.leaks == []
    holders = Path(f"{guest.root}.files").read_text().splitlines()
    assert [name for name in holders if not name.endswith("run.sh")] == []
    assert TOKEN not in Path(f"{guest.root}.env").read_text()


def test_no_job_runs_while_the_token_cannot_be_removed(tmp_path: Path) -> None:
    guest = Guest(tmp_path, runner=': >"$OUT/ran"')
    with Server([JIT]) as server:
        guest.stage(server.url)
        (guest.env / "sa_token").unlink()
        (guest.env / "sa_token").mkdir()  # rm cannot remove it
        (tmp_path / "run" / "kept").write_text(f"Authorization: Bearer {TOKEN}\n")
        script = guest.image / "inject-env.sh"
        script.write_text(
            script.read_text().replace(
                "exit 0", f'cp "{tmp_path}/run/kept" "{tmp_path}/run/headers"'
            )
        )
        assert guest.run() == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("wiped", [True, False])
def test_a_token_in_a_read_only_share_is_read_from_its_own_and_wiped_by_the_host(
    tmp_path: Path, *, wiped: bool
) -> None:
    guest = Guest(tmp_path, runner=': >"$OUT/ran"')
    token = tmp_path / "token"
    token.mkdir()
    with Server([JIT]) as server:
        guest.stage(server.url)
        (guest.env / "sa_token").rename(token / "sa_token")
        (guest.env / "sa_token").mkdir()  # the guest cannot remove it, as in a read-only share
        process = guest.start(
            RUNYARD_TOKEN_DIR=str(token), RUNYARD_WIPE_SECONDS="60" if wiped else "0"
        )
        assert server.arrived.wait(60)
        assert not (token / "sa_token").exists()  # by which the host knows that it was read
        assert server.requests[0][2]["authorization"] == f"Bearer {TOKEN}"
        if wiped:
            (guest.env / "sa_token").rmdir()
        assert guest.ended(process) == (0 if wiped else 1)
    assert (tmp_path / "ran").exists() == wiped


# ── shutdown ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("client", CLIENTS)
def test_a_polling_guest_ends_on_term(tmp_path: Path, client: str) -> None:
    guest = Guest(tmp_path)
    with Server([HOLD]) as server:
        guest.stage(server.url)
        process = guest.start(**CLIENTS[client])
        assert server.arrived.wait(60)
        process.send_signal(signal.SIGTERM)
        assert guest.ended(process) == 143


def test_term_is_forwarded_to_the_runner_and_its_end_is_awaited(tmp_path: Path) -> None:
    runner = """trap 'echo term >"$OUT/term"; read -r line <"$OUT/go"; echo "$line" >"$OUT/line"; exit 5' TERM
echo up >"$OUT/up"
while :; do sleep 1000 & wait; done"""
    guest = Guest(tmp_path, runner=runner)
    for name in ("up", "go", "term"):
        os.mkfifo(tmp_path / name)
    with Server([JIT]) as server:
        guest.stage(server.url)
        process = guest.start()
        assert guest.text("up") == "up\n"
        process.send_signal(signal.SIGTERM)
        assert guest.text("term") == "term\n"
        with pytest.raises(subprocess.TimeoutExpired):  # it runs for as long as the runner does
            process.wait(0.5)
        (tmp_path / "go").write_text("tidied up\n")
        assert guest.ended(process) == 143
    assert guest.text("line") == "tidied up\n"


# ── the job ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", [0, 1, 7, 137])
def test_the_runners_exit_code_is_reported(tmp_path: Path, code: int) -> None:
    guest = Guest(tmp_path, runner=f"exit {code}")
    with Server([JIT]) as server:
        guest.stage(server.url)
        assert guest.run() == code


def test_a_runner_that_accepts_a_file_gets_its_jit_in_a_file(tmp_path: Path) -> None:
    runner = 'echo "$1 $3" >"$OUT/args"; cat "$2" >"$OUT/jit"; ls -l "$2" >"$OUT/mode"'
    guest = Guest(tmp_path, runner=runner)
    with Server([JIT]) as server:
        guest.stage(server.url, RUNYARD_JIT_FILE="1")
        assert guest.run() == 0
    assert guest.text("args") == "--jitconfig-file --disableupdate\n"
    assert guest.text("jit") == "c2VjcmV0+/==\n"
    assert guest.text("mode").startswith("-rw-------")


def test_the_pods_environment_reaches_the_job_exactly(tmp_path: Path) -> None:
    value = "a\\nb\n'c' \"d\" $HOME `e` \\\\ \r\t=é"
    guest = Guest(tmp_path, runner='printf %s "$ODD" >"$OUT/odd"')
    with Server([JIT]) as server:
        guest.stage(server.url, ODD=value, RUNYARD_VM="another", RUNYARD_WORK_DIR="/nowhere")
        assert guest.run() == 0
    assert (tmp_path / "odd").read_bytes().decode() == value


@pytest.mark.parametrize("cache", ["", "https://cache.invalid:8443/x"])
def test_the_cache_endpoint_is_exported_to_the_job(tmp_path: Path, cache: str) -> None:
    guest = Guest(tmp_path, runner='echo "${TUIST_CACHE_ENDPOINT:-}" >"$OUT/cache"')
    body = JIT[1].replace(b"7}", b'7, "cache_endpoint_url": "' + cache.encode() + b'"}')
    with Server([(200, body)]) as server:
        guest.stage(server.url)
        assert guest.run() == 0
    assert guest.text("cache") == f"{cache}\n"


def test_the_caches_signing_grant_is_exported_to_the_job(tmp_path: Path) -> None:
    guest = Guest(tmp_path, runner='echo "${TUIST_CACHE_SIGNING_GRANT:-}" >"$OUT/grant"')
    body = JIT[1].replace(b"7}", b'7, "cache_signing_grant": "e30.e30.c2ln"}')
    with Server([(200, body)]) as server:
        guest.stage(server.url)
        assert guest.run() == 0
    assert guest.text("grant") == "e30.e30.c2ln\n"


def test_the_end_of_a_long_log_is_kept_for_the_host(tmp_path: Path) -> None:
    guest = Guest(tmp_path, runner="awk 'BEGIN { for (n = 0; n < 40000; n++) print n }'; echo last")
    with Server([JIT]) as server:
        guest.stage(server.url)
        assert guest.run() == 0
    kept = (guest.status / "runner.log").read_bytes()
    assert len(kept) == 65536 and kept.endswith(b"39999\nlast\n")


def test_the_machine_is_halted_after_the_report(tmp_path: Path) -> None:
    guest = Guest(tmp_path)
    with Server([DRAIN]) as server:
        guest.stage(server.url)
        assert guest.run(RUNYARD_HALT='cp "$RUNYARD_STATUS_DIR/runner-rc" "$OUT/halted"') == 0
    assert guest.text("halted") == "0\n"


@pytest.mark.parametrize("what", ["token", "environment", "runner"])
def test_a_missing_file_ends_the_guest_with_an_exit_code(tmp_path: Path, what: str) -> None:
    guest = Guest(tmp_path)
    with Server([JIT]) as server:
        guest.stage(server.url)
        if what == "token":
            (guest.env / "sa_token").unlink()
        elif what == "environment":
            (guest.env / "tuist.env").unlink()
        else:
            (guest.work / "runner").rename(tmp_path / "away")
        assert guest.run() == 1


def _stopped_clock(root: Path) -> str:
    """A PATH on which `sleep` lasts until the test lets time pass."""
    (root / "bin").mkdir()
    os.mkfifo(root / "time")
    (root / "bin" / "sleep").write_text(
        '#!/bin/sh\necho "$1" >"$OUT/asleep"\nread -r _ <"$OUT/time"\n'
    )
    (root / "bin" / "sleep").chmod(0o755)
    return f"{root}/bin:{os.environ['PATH']}"


def test_a_runner_without_a_job_is_ended_after_the_idle_timeout(tmp_path: Path) -> None:
    guest = Guest(tmp_path, runner='trap "exit 6" TERM\nread -r _ <"$OUT/never" & wait')
    for name in ("never", "asleep"):
        os.mkfifo(tmp_path / name)
    with Server([JIT]) as server:
        guest.stage(server.url, TUIST_RUNNER_IDLE_TIMEOUT_SECONDS="600")
        process = guest.start(PATH=_stopped_clock(tmp_path))
        assert guest.text("asleep") == "600\n"
        (tmp_path / "time").write_text("passes\n")
        assert guest.ended(process) == 0


def test_a_runner_with_a_job_is_not_ended_for_idleness(tmp_path: Path) -> None:
    # The runner continues when the watchdog has ended: then only the runner and the listener of its log are left.
    runner = """"$ACTIONS_RUNNER_HOOK_JOB_STARTED"
trap 'exit 6' TERM
echo up >"$OUT/up"
read -r _ <"$OUT/go"
while [ "$(pgrep -P "$PPID" | wc -l)" -gt 2 ]; do :; done
exit 4"""
    guest = Guest(tmp_path, runner=runner)
    for name in ("up", "go", "asleep"):
        os.mkfifo(tmp_path / name)
    with Server([JIT]) as server:
        guest.stage(server.url, TUIST_RUNNER_IDLE_TIMEOUT_SECONDS="600")
        process = guest.start(PATH=_stopped_clock(tmp_path))
        assert guest.text("up") == "up\n"
        assert guest.text("asleep") == "600\n"
        (tmp_path / "time").write_text("passes\n")
        (tmp_path / "go").write_text("on\n")
        assert guest.ended(process) == 4
