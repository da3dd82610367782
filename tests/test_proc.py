"""Tests running programs: one that hangs, writes without end or forks is gone when the call returns.

No test sleeps to see whether a process is gone: each process holds the writing end of a FIFO, and reading
that FIFO to its end proves that no holder is alive.
"""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.proc_harness import SLEEP, Witness, witness

from runyard.proc import (
    Completed,
    DeadlineExceeded,
    ProcError,
    ProgramMissing,
    ProgramRefused,
    run,
)

__all__ = ["witness"]


def sh(script: str, witness: Witness | None = None, **kwargs: object) -> Completed:
    env = {"PATH": os.environ["PATH"]}
    if witness is not None:
        env["WITNESS"] = str(witness.path)
    options = {"timeout": 60.0, "env": env, "grace": 0.05, **kwargs}
    return asyncio.run(run(("sh", "-c", script), **options))  # type: ignore[arg-type]  # a table of options


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_output_input_environment_and_directory_arrive(tmp_path: Path) -> None:
    done = asyncio.run(
        run(
            ("sh", "-c", 'cat; echo "$GREETING" >&2; pwd >&2; exit 3'),
            timeout=60,
            input=b"hello",
            env={"PATH": os.environ["PATH"], "GREETING": "hi"},
            cwd=tmp_path,
        )
    )
    assert done == Completed(
        code=3, stdout=b"hello", stderr=f"hi\n{tmp_path.resolve()}\n".encode(), truncated=False
    )


def test_without_an_environment_the_callers_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNYARD_TEST_VALUE", "inherited")
    assert sh('echo "$RUNYARD_TEST_VALUE"', env=None).stdout == b"inherited\n"


def test_a_program_that_reads_nothing_does_not_block_on_its_input() -> None:
    assert sh("exit 0", input=b"x" * 5_000_000).code == 0


def test_a_signal_is_a_negative_exit_code() -> None:
    assert sh("kill -SEGV $$").code == -signal.SIGSEGV


def test_output_beyond_the_limit_is_dropped_and_flagged() -> None:
    done = sh("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; echo end >&2", limit=1000)
    assert (len(done.stdout), len(done.stderr), done.truncated, done.code) == (1000, 1000, True, 0)


def test_exactly_the_limit_is_not_truncated() -> None:
    done = sh("head -c 1000 /dev/zero", limit=1000)
    assert (len(done.stdout), done.truncated) == (1000, False)


def test_a_missing_program_says_what_to_do() -> None:
    with pytest.raises(ProgramMissing, match="no-such-program was not found: install it"):
        asyncio.run(run(("no-such-program",), timeout=60))


@pytest.mark.parametrize("what", ["not-executable", "no-directory"])
def test_a_program_that_cannot_start_raises_program_refused(tmp_path: Path, what: str) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    argv = (str(plain),) if what == "not-executable" else ("true",)
    cwd = None if what == "not-executable" else tmp_path / "nowhere"
    with pytest.raises(ProgramRefused, match=r"permission|Permission|nowhere"):
        asyncio.run(run(argv, timeout=60, cwd=cwd))


def test_an_empty_command_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        asyncio.run(run((), timeout=60))


def test_the_deadline_ends_the_program_and_keeps_its_output(witness: Witness) -> None:
    with pytest.raises(DeadlineExceeded, match=r"sh did not end within 0\.05 s") as caught:
        sh(f'exec 9>"$WITNESS"; {SLEEP}; echo never', witness, timeout=0.05, grace=30)
    assert isinstance(caught.value, ProcError)
    assert caught.value.partial.code == -signal.SIGTERM
    assert caught.value.partial.stdout == b""
    witness.all_gone()


def test_a_program_that_ignores_term_is_killed_with_its_children(witness: Witness) -> None:
    # Inherited by the program: it ignores TERM from its start.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with pytest.raises(DeadlineExceeded) as caught:
            sh(f'exec 9>"$WITNESS"; {SLEEP} & {SLEEP}', witness, timeout=0.05)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught.value.partial.code == -signal.SIGKILL
    witness.all_gone()


def test_a_child_left_in_the_background_does_not_survive_its_parent(witness: Witness) -> None:
    done = sh(f'exec 9>"$WITNESS"; echo up >&9; {SLEEP} >/dev/null 2>&1 & echo done', witness)
    assert done.stdout == b"done\n"
    assert witness.all_gone() == b"up\n"


def test_a_daemon_that_holds_the_output_does_not_hold_the_caller(witness: Witness) -> None:
    done = sh(f'exec 9>"$WITNESS"; echo up >&9; (trap "" TERM HUP; {SLEEP}) & echo done', witness)
    assert (done.stdout, done.code) == (b"done\n", 0)
    assert witness.all_gone() == b"up\n"


def test_a_process_that_left_the_session_is_not_ended(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    done = sh(f"setsid sh -c 'echo $$ > {note}.new; mv {note}.new {note}; {SLEEP}' & "
              f"while [ ! -e {note} ]; do :; done; echo done")  # fmt: skip
    pid = int(note.read_text())
    try:
        assert done.stdout == b"done\n"
        assert not gone(pid)
    finally:
        os.killpg(pid, signal.SIGKILL)


def test_cancelling_the_caller_ends_the_whole_group(witness: Witness) -> None:
    script = f'trap "" TERM; exec 9>"$WITNESS"; {SLEEP} & echo "$$" >&9; {SLEEP}'

    async def scenario() -> int:
        env = {"PATH": os.environ["PATH"], "WITNESS": str(witness.path)}
        call = asyncio.create_task(run(("sh", "-c", script), timeout=600, env=env, grace=0.05))
        pid = int(await witness.line())
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return pid

    pid = asyncio.run(scenario())
    assert gone(pid)  # reaped too: a zombie would still answer
    witness.all_gone()


def test_being_cancelled_again_while_cleaning_up_leaves_nothing_behind(witness: Witness) -> None:
    script = f'trap "" TERM; exec 9>"$WITNESS"; echo "$$" >&9; {SLEEP}; {SLEEP}'

    async def scenario() -> int:
        env = {"PATH": os.environ["PATH"], "WITNESS": str(witness.path)}
        call = asyncio.create_task(run(("sh", "-c", script), timeout=600, env=env, grace=0.2))
        pid = int(await witness.line())
        for _ in range(5):
            call.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await call
        return pid

    assert gone(asyncio.run(scenario()))
    witness.all_gone()


def test_being_cancelled_while_it_starts_leaves_nothing_behind(witness: Witness) -> None:
    script = f'exec 9>"$WITNESS"; {SLEEP} & {SLEEP}'

    async def scenario() -> None:
        env = {"PATH": os.environ["PATH"], "WITNESS": str(witness.path)}
        for turns in range(12):  # each start is cancelled a little later
            call = asyncio.create_task(run(("sh", "-c", script), timeout=600, env=env, grace=0.05))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(scenario())
    witness.all_gone()


def test_many_at_once_do_not_disturb_each_other() -> None:
    async def scenario() -> list[bytes]:
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(run(("echo", str(number)), timeout=60)) for number in range(20)
            ]
        return [call.result().stdout for call in calls]

    assert asyncio.run(scenario()) == [b"%d\n" % number for number in range(20)]
