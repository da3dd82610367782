"""The runner program over real HTTP: it runs its one job, keeps its secrets, and reports how that ended."""

import ast
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.embedded.github.practicelive import RUNNER, Live, environment, run_scenario

from runyard.vm.guest.image import build_image

# A job says that it has begun by opening a pipe for writing, and waits by opening one for reading.
BEGUN = 'echo begun > "$BEGUN"\n'


def pipe(folder: Path, name: str) -> Path:
    path = folder / name
    os.mkfifo(path)
    return path


@contextmanager
def open_directory() -> Iterator[str]:
    """A directory that another user can walk to, which a test's own is not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        yield name


async def read(path: Path) -> str:
    return await asyncio.to_thread(path.read_text)


async def write(path: Path, text: str) -> None:
    await asyncio.to_thread(path.write_text, text)


def test_it_runs_its_job_and_reports_the_conclusion(practice_keys: Any, tmp_path: Path) -> None:
    async def scenario(it: Live) -> None:
        script = "echo out; echo err >&2; pwd; exit 0"
        program = await it.start("--jitconfig", it.mint())
        await program.line("Listening for Jobs")
        job = it.core.queue_job("acme/app", ("mac",), script=script, job_name="unit")
        assert await program.ended() == 0
        assert it.history(job) == ["queued", "in_progress", "completed:success"]
        assert it.log(job).splitlines()[:2] == ["out", "err"]
        assert f"{tmp_path}/_work/job-" in it.log(job)
        assert "Job unit completed with result: Succeeded" in program.output
        assert not it.core.runners()
        assert list((tmp_path / "_work").iterdir()) == []
        assert sorted(path.name for path in tmp_path.iterdir()) == ["_work"]  # no file with a JIT

    run_scenario(practice_keys, tmp_path, scenario)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("exit 3", id="exit-code"),
        pytest.param("false\necho never", id="first-failing-command"),
        pytest.param("kill -9 $$", id="killed"),
        pytest.param("echo 'unclosed", id="not-a-script"),
    ],
)
def test_a_failed_job_does_not_fail_the_runner(
    practice_keys: Any, tmp_path: Path, script: str
) -> None:
    async def scenario(it: Live) -> None:
        job = it.core.queue_job("acme/app", ("mac",), script=script)
        program = await it.start("--jitconfig", it.mint())
        assert await program.ended() == 0
        assert it.core.jobs()[job].conclusion == "failure"
        assert "never" not in it.log(job)

    run_scenario(practice_keys, tmp_path, scenario)


def test_a_job_has_a_clean_environment(practice_keys: Any, tmp_path: Path) -> None:
    async def scenario(it: Live) -> None:
        script = "env; id -u; ps -p $PPID -o args=; cat /proc/$PPID/environ || true"
        job = it.core.queue_job(
            "acme/app", ("mac",), script=script, job_name="unit", env={"MINE": "a b"}
        )
        jit = it.mint()
        program = await it.start(
            "--jitconfig", jit, RUNYARD_JOB_USER="65534:65534", RUNYARD_JOB_DIR=work
        )
        assert await program.ended() == 0
        log = it.log(job)
        assert jit not in log and "do-not-leak" not in log
        seen = environment(log)
        assert seen["CI"] == seen["GITHUB_ACTIONS"] == "true"
        assert (seen["GITHUB_JOB"], seen["GITHUB_REPOSITORY"]) == ("unit", "acme/app")
        assert (seen["MINE"], seen["RUNNER_NAME"]) == ("a b", "a")
        assert seen["HOME"].startswith(work)
        allowed = ("GITHUB_", "RUNNER_")
        rest = [name for name in seen if not name.startswith(allowed)]
        known = ["CI", "HOME", "MINE", "PATH", "PWD", "SHELL", "TMPDIR"]
        assert [name for name in sorted(rest) if name not in (*known, "OLDPWD", "SHLVL", "_")] == []
        if os.geteuid() == 0:
            assert "\n65534\n" in log

    with open_directory() as work:
        run_scenario(practice_keys, tmp_path, scenario)


@pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux", reason="needs root, and Linux's own means"
)
def test_a_job_of_another_user_cannot_gain_privileges(practice_keys: Any, tmp_path: Path) -> None:
    async def scenario(it: Live) -> None:
        script = "grep NoNewPrivs /proc/self/status; id -G; ls /proc/$PPID/fd || echo hidden"
        job = it.core.queue_job("acme/app", ("mac",), script=script)
        program = await it.start(
            "--jitconfig", it.mint(), RUNYARD_JOB_USER="65534:65534", RUNYARD_JOB_DIR=work
        )
        assert await program.ended() == 0
        lines = it.log(job).splitlines()
        assert lines[0].split() == ["NoNewPrivs:", "1"]
        assert lines[1] == "65534" and lines[-1] == "hidden"

    with open_directory() as work:
        run_scenario(practice_keys, tmp_path, scenario)


def test_the_secret_can_come_in_a_file_that_is_removed(practice_keys: Any, tmp_path: Path) -> None:
    async def scenario(it: Live) -> None:
        path = tmp_path / "jit"
        path.write_text(it.mint() + "\n")
        job = it.core.queue_job("acme/app", ("mac",), script="true")
        program = await it.start("--jitconfig-file", str(path))
        assert await program.ended() == 0
        assert it.core.jobs()[job].conclusion == "success"
        assert not path.exists()

    run_scenario(practice_keys, tmp_path, scenario)


def test_a_cancelled_job_is_ended_with_all_that_it_started(
    practice_keys: Any, tmp_path: Path
) -> None:
    async def scenario(it: Live) -> None:
        begun = pipe(tmp_path, "begun")
        script = 'sleep 1000 &\necho $! > "$BEGUN"\nwait\n'
        job = it.core.queue_job("acme/app", ("mac",), script=script, env={"BEGUN": str(begun)})
        program = await it.start("--jitconfig", it.mint())
        child = int(await read(begun))
        it.core.cancel_job(job)
        assert await program.ended() == 0
        assert "completed with result: Canceled" in program.output
        assert it.history(job)[-2:] == ["cancel_requested", "completed:cancelled"]
        assert not running(child)

    run_scenario(practice_keys, tmp_path, scenario)


def running(pid: int) -> bool:
    """Whether the process runs and is not a zombie."""
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], check=False, capture_output=True, text=True
    )
    return shown.stdout.strip()[:1] not in ("", "Z", "X")


@pytest.mark.slow
def test_on_term_it_ends_its_job_and_reports_it(practice_keys: Any, tmp_path: Path) -> None:
    async def scenario(it: Live) -> None:
        begun = pipe(tmp_path, "begun")
        script = 'echo first\ntrap "" TERM\nsleep 1000 &\necho $! > "$BEGUN"\nwait\n'
        job = it.core.queue_job("acme/app", ("mac",), script=script, env={"BEGUN": str(begun)})
        program = await it.start("--jitconfig", it.mint())
        child = int(await read(begun))
        program.process.send_signal(signal.SIGTERM)
        assert await program.ended() == 143
        assert it.history(job) == ["queued", "in_progress", "completed:failure"]
        assert it.log(job) == "first\n"
        assert not running(child)

    run_scenario(practice_keys, tmp_path, scenario)


def test_on_term_without_a_job_it_signs_off(practice_keys: Any, tmp_path: Path) -> None:
    async def scenario(it: Live) -> None:
        program = await it.start("--jitconfig", it.mint())
        await program.line("Listening for Jobs")
        program.process.send_signal(signal.SIGTERM)
        assert await program.ended() == 0
        assert [each.online for each in it.core.runners().values()] == [False]

    run_scenario(practice_keys, tmp_path, scenario)


@pytest.mark.slow
def test_processes_that_a_job_left_behind_do_not_block_the_runner(
    practice_keys: Any, tmp_path: Path
) -> None:
    async def scenario(it: Live) -> None:
        script = "sleep 1000 & echo $!"
        job = it.core.queue_job("acme/app", ("mac",), script=script)
        program = await it.start("--jitconfig", it.mint())
        assert await program.ended() == 0
        assert it.core.jobs()[job].conclusion == "success"
        assert not running(int(it.log(job)))

    run_scenario(practice_keys, tmp_path, scenario)


def test_the_hook_of_a_started_job_comes_before_the_job(practice_keys: Any, tmp_path: Path) -> None:
    async def scenario(it: Live) -> None:
        hook = tmp_path / "hook.sh"
        hook.write_text(
            'echo hooked $TUIST_SECRET > "$(dirname "$0")/marker"; echo from the hook\n'
        )
        script = f"cat {tmp_path}/marker"
        job = it.core.queue_job("acme/app", ("mac",), script=script)
        program = await it.start(
            "--jitconfig", it.mint(), ACTIONS_RUNNER_HOOK_JOB_STARTED=str(hook)
        )
        assert await program.ended() == 0
        assert it.log(job) == "from the hook\nhooked do-not-leak\n"

    run_scenario(practice_keys, tmp_path, scenario)


def test_a_failing_hook_fails_the_job_before_it_runs(practice_keys: Any, tmp_path: Path) -> None:
    async def scenario(it: Live) -> None:
        hook = tmp_path / "hook.sh"
        hook.write_text("exit 4\n")
        job = it.core.queue_job("acme/app", ("mac",), script=f"touch {tmp_path}/ran")
        program = await it.start(
            "--jitconfig", it.mint(), ACTIONS_RUNNER_HOOK_JOB_STARTED=str(hook)
        )
        assert await program.ended() == 0
        assert it.core.jobs()[job].conclusion == "failure"
        assert "hook of a started job failed: 4" in it.log(job)
        assert not (tmp_path / "ran").exists()

    run_scenario(practice_keys, tmp_path, scenario)


def test_a_job_continues_while_github_is_unreachable(practice_keys: Any, tmp_path: Path) -> None:
    async def scenario(it: Live) -> None:
        begun, go, done = (pipe(tmp_path, name) for name in ("begun", "go", "done"))
        env = {"BEGUN": str(begun), "GO": str(go), "DONE": str(done)}
        script = BEGUN + 'read word < "$GO"\necho "$word"\necho done > "$DONE"\n'
        job = it.core.queue_job("acme/app", ("mac",), script=script, env=env)
        program = await it.start("--jitconfig", it.mint())
        await read(begun)
        it.core.faults.outage = True
        await write(go, "onward\n")
        await read(done)  # the job has ended, and GitHub was unreachable
        assert it.core.jobs()[job].status == "in_progress"
        it.core.faults.outage = False
        assert await program.ended() == 0
        assert it.log(job) == "onward\n"
        assert it.history(job) == ["queued", "in_progress", "completed:success"]

    run_scenario(practice_keys, tmp_path, scenario)


def test_a_runner_that_github_has_given_up_stops_its_job(
    practice_keys: Any, tmp_path: Path
) -> None:
    async def scenario(it: Live) -> None:
        begun = pipe(tmp_path, "begun")
        script = 'echo $$ > "$BEGUN"\nsleep 1000\n'
        it.core.queue_job("acme/app", ("mac",), script=script, env={"BEGUN": str(begun)})
        program = await it.start("--jitconfig", it.mint())
        shell = int(await read(begun))
        (runner,) = it.core.runners().values()
        it.core._state._end_run_of(runner, it.core.jobs()[runner.job_id], "failure")
        assert await program.ended() == 1
        assert not running(shell)

    run_scenario(practice_keys, tmp_path, scenario)


def test_a_wrong_secret_is_refused_and_not_printed(practice_keys: Any, tmp_path: Path) -> None:
    async def scenario(it: Live) -> None:
        jit = it.mint()
        it.core._state.remove(next(iter(it.core.runners().values())), why="deleted")
        for arguments, code in (
            (("--jitconfig", jit), 1),
            (("--jitconfig", "nonsense"), 2),
            (("--jitconfig-file", str(tmp_path / "absent")), 2),
            (("--jitconfig",), 2),
            (("--surprise", jit), 2),
            ((), 2),
        ):
            program = await it.start(*arguments)
            assert await program.ended() == code, program.output
            assert jit not in program.output

    run_scenario(practice_keys, tmp_path, scenario)


def test_the_program_imports_only_the_standard_library() -> None:
    paths = [RUNNER / "practice_runner.py", *sorted((RUNNER / "practice").glob("*.py"))]
    assert len(paths) > 5
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            foreign = [
                name for name in names if name.partition(".")[0] not in sys.stdlib_module_names
            ]
            assert foreign == [], path


def test_an_image_holds_all_of_the_program(tmp_path: Path) -> None:
    image = build_image(tmp_path / "image", runner=RUNNER)
    done = subprocess.run(
        [image / "work" / "runner" / "run.sh", "--jitconfig", "x"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "not a JIT configuration" in done.stdout, done


def test_a_start_leaves_nothing_beside_the_program(tmp_path: Path) -> None:
    # The folder is the job's own later: what is compiled there could be planted there.
    copy = tmp_path / "copy"
    shutil.copytree(RUNNER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = sorted(path.name for path in copy.rglob("*"))
    subprocess.run([copy / "run.sh", "--jitconfig", "x"], check=False, capture_output=True)
    assert sorted(path.name for path in copy.rglob("*")) == before


def test_files_beside_the_program_do_not_shadow_the_standard_library(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(RUNNER, copy)
    (copy / "json.py").write_text("raise SystemExit('planted')")
    done = subprocess.run(
        [copy / "run.sh", "--jitconfig", "x"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 2 and "planted" not in done.stdout + done.stderr


def test_the_script_passes_shellcheck() -> None:
    critic = Path(sys.executable).with_name("shellcheck")
    subprocess.run([critic, "-s", "sh", RUNNER / "run.sh"], check=True)
