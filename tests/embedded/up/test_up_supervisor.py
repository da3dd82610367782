"""The supervisor with real processes that crash, hang, refuse or leave children, on a fast clock."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.embedded.up.upsupport import HAS_PROC, ended, group_is_empty, until

from runyard.clock import RealClock
from runyard.embedded.up import supervisor as module
from runyard.embedded.up.boot import Boot
from runyard.embedded.up.children import Running, log_tail, start
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.restarts import RestartReader, RestartRecord
from runyard.embedded.up.secrets import load_or_make
from runyard.embedded.up.shutdown import Shutdown
from runyard.embedded.up.supervisor import ComponentFailed, ComponentView, Supervisor
from runyard.telemetry.log import get_logger
from runyard.wire.restarts import Ended

pytestmark = pytest.mark.skipif(not HAS_PROC, reason="searches for leftovers in /proc")
READY = "echo ready; "


class QuickClock(RealClock):
    """A clock that records sleeps instead of waiting; the test sets lifetimes."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.ahead = 0.0
        self.patience = 1.0  # how much of a deadline is real

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead

    def timeout(self, seconds: float) -> asyncio.Timeout:
        return super().timeout(seconds * self.patience)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await super().sleep(0.0)


class Stage:
    """A supervisor whose components are shell scripts."""

    def __init__(self, folder: Path, group: asyncio.TaskGroup) -> None:
        self.layout = Layout(folder / "data")
        self.layout.prepare()
        self.clock = QuickClock()
        self.views: list[ComponentView] = []
        self.scripts: list[str] = []
        self.started: list[int] = []
        self.shutdown = Shutdown()
        self.on_start: Callable[[], None] = lambda: None
        self._moved = asyncio.Event()
        self._group = group
        self._restarts = RestartRecord(
            self.layout.restarts, clock=self.clock, log=get_logger("test")
        )
        self.supervisor = Supervisor(
            clock=self.clock,
            log=get_logger("test"),
            lock=-1,
            spawn=self._spawn,
            changed=self._changed,
            launch=self._launch,
            shutdown=self.shutdown,
        )

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        self._group.create_task(work, name=name)

    def _changed(self, view: ComponentView) -> None:
        self.views.append(view)
        self._restarts.note(view)
        self._moved.set()

    async def _launch(self, boot: Boot, lock: int) -> Running:
        """The next script; the last one again and again."""
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        with boot.layout.log(boot.name).open("ab") as log:
            process = subprocess.Popen(
                ["sh", "-c", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                start_new_session=True,
            )
        self.started.append(process.pid)
        self.on_start()
        return Running(process)

    def boot(self) -> Boot:
        root = str(self.layout.root)
        return Boot(
            role="x", name="component", root=root, kube_url="", server_url="", github_url=""
        )

    async def until(self, seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not seen():
                self._moved.clear()
                await self._moved.wait()


def play(folder: Path, scenario: Callable[[Stage], Awaitable[None]]) -> None:
    """Runs a scenario and checks that every started process has ended."""
    begun: list[Stage] = []

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            stage = Stage(folder, group)
            begun.append(stage)
            try:
                await scenario(stage)
                await stage.supervisor.stop(("component",))
            except AssertionError:
                stage.supervisor.kill_all()
                raise

    try:
        asyncio.run(main())
    finally:
        for pid in begun[0].started:
            until(lambda pid=pid: group_is_empty(pid), what=f"the end of group {pid}")


def only(group: pytest.ExceptionInfo[BaseExceptionGroup[Any]]) -> str:
    (error,) = group.value.exceptions
    assert isinstance(error, ComponentFailed)
    return str(error)


def test_a_crashing_component_is_restarted_after_growing_pauses(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.scripts = [*[READY + "exit 1"] * 9, READY + "cat"]
        await stage.supervisor.add(stage.boot())
        await stage.until(lambda: stage.views[-1].starts == 10 and stage.views[-1].pid > 0)
        assert stage.clock.pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]

    play(tmp_path, scenario)


def test_the_pause_is_reset_after_a_stable_run(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.scripts = [READY + "exit 1", READY + "exit 1", READY + "cat", READY + "cat"]
        await stage.supervisor.add(stage.boot())
        await stage.until(
            lambda: stage.views[-1].starts == 3 and stage.views[-1].state == "running"
        )
        stage.clock.ahead += module.STABLE_AFTER + 1
        os.kill(stage.supervisor.pid("component"), signal.SIGKILL)
        await stage.until(lambda: stage.views[-1].starts == 4)
        assert stage.clock.pauses == [0.2, 0.4, 0.2]

    play(tmp_path, scenario)


def test_the_view_shows_an_exit_and_the_restart(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.scripts = [READY + "exit 7", READY + "cat"]
        await stage.supervisor.add(stage.boot())
        await stage.until(
            lambda: stage.views[-1].starts == 2 and stage.views[-1].state == "running"
        )
        assert [view.state for view in stage.views] == [
            *("starting", "running", "waiting", "starting", "running")
        ]
        exited = stage.views[2]
        assert (exited.pid, exited.code) == (0, 7)
        assert stage.supervisor.views() == (stage.views[-1],)
        assert stage.supervisor.pid("component") == stage.started[-1]

    play(tmp_path, scenario)


def test_a_restart_is_recorded_with_its_cause_and_the_stop_is_not(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.scripts = [READY + "exit 7", "exit 1", READY + "cat", READY + "cat"]
        await stage.supervisor.add(stage.boot())
        await stage.until(
            lambda: stage.views[-1].starts == 3 and stage.views[-1].state == "running"
        )
        os.kill(stage.supervisor.pid("component"), signal.SIGKILL)
        await stage.until(
            lambda: stage.views[-1].starts == 4 and stage.views[-1].state == "running"
        )

    play(tmp_path, scenario)
    found = RestartReader(Layout(tmp_path / "data").restarts)()
    assert [(each.id, each.component, each.reason, each.detail, each.starts) for each in found] == [
        (1, "component", Ended.EXITED, {"code": 7}, 2),
        (2, "component", Ended.KILLED, {"signal": 9}, 1),
    ]
    assert all(each.ended_at <= each.ready_at for each in found)


def test_a_component_that_cannot_work_ends_the_machine_at_once(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.scripts = ["echo 'the disk is broken' >&2; exit 3"]
        await stage.supervisor.add(stage.boot())

    with pytest.raises(BaseExceptionGroup) as caught:
        play(tmp_path, scenario)
    printed = only(caught)
    assert "the component component ended with code 3" in printed
    assert f"Its log: {tmp_path}/data/logs/component.log" in printed
    assert printed.endswith("The log ends with:\nthe disk is broken")


def test_a_component_that_never_becomes_ready_ends_the_machine(tmp_path: Path) -> None:
    starts = []

    async def scenario(stage: Stage) -> None:
        stage.on_start = lambda: starts.append(1)
        stage.scripts = ["echo 'no database' >&2; exit 1"]
        await stage.supervisor.add(stage.boot())

    with pytest.raises(BaseExceptionGroup) as caught:
        play(tmp_path, scenario)
    assert len(starts) == module.MAX_UNREADY_STARTS
    assert "ended with code 1" in only(caught) and "no database" in only(caught)


def test_a_component_that_was_ready_before_is_always_retried(tmp_path: Path) -> None:
    """An external database is unavailable for an hour: the machine keeps running."""
    last = "no connection"
    failing = f"echo '{last}' >&2; exit 1"

    async def scenario(stage: Stage) -> None:
        stage.scripts = [
            READY + "exit 1",
            *[failing] * (3 * module.MAX_UNREADY_STARTS),
            READY + "cat",
        ]
        await stage.supervisor.add(stage.boot())
        await stage.until(
            lambda: (
                stage.views[-1].state == "running"
                and stage.views[-1].starts == 3 * module.MAX_UNREADY_STARTS + 2
            )
        )
        assert stage.clock.pauses[-1] == module.LONGEST_PAUSE
        waiting = [view for view in stage.views if view.state == "waiting"]
        assert waiting[-1].note == last, "the view has the reason"

    play(tmp_path, scenario)


def test_a_second_request_kills_all_components_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "END_WITHIN", 3600.0)

    async def scenario(stage: Stage) -> None:
        stage.scripts = [f"trap '' TERM; {READY}while read x; do :; done; sleep 3600"]
        await stage.supervisor.add(stage.boot())
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(stage.supervisor.stop(("component",), within=3600.0))
            stage.shutdown.request()
            stage.shutdown.request()
        await stage.until(lambda: stage.views[-1].state == "ended")
        assert stage.views[-1].code == -signal.SIGKILL

    play(tmp_path, scenario)


def test_a_component_that_hangs_at_its_first_start_is_reported(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.scripts = ["echo 'waiting for something' >&2; exec cat"]
        await stage.supervisor.add(stage.boot(), within=0.3)

    with pytest.raises(BaseExceptionGroup) as caught:
        play(tmp_path, scenario)
    assert "was not ready within 0.3 s" in only(caught)


def test_a_component_that_hangs_at_a_restart_is_killed_and_retried(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        def start() -> None:
            stage.clock.patience = 0.01 if len(stage.started) == 2 else 1.0

        stage.on_start = start
        stage.scripts = [READY + "exit 1", "exec cat", READY + "cat"]
        await stage.supervisor.add(stage.boot(), within=60.0)
        await stage.until(
            lambda: stage.views[-1].starts == 3 and stage.views[-1].state == "running"
        )

    play(tmp_path, scenario)


@pytest.mark.slow
def test_a_component_that_ignores_term_is_killed_with_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "END_WITHIN", 0.2)

    async def scenario(stage: Stage) -> None:
        stage.scripts = [f"trap '' TERM; (cat <&3 & echo ready) 3<&0; {'read x; ' * 9}"]
        await stage.supervisor.add(stage.boot())

    play(tmp_path, scenario)


def test_processes_that_a_component_left_in_its_group_end_with_it(tmp_path: Path) -> None:
    left = "(trap '' TERM HUP; exec sleep 300) >/dev/null & "

    async def orderly(stage: Stage) -> None:
        stage.scripts = [f"trap 'exit 0' TERM; {left}{READY}wait"]
        await stage.supervisor.add(stage.boot())

    async def crashed(stage: Stage) -> None:
        stage.scripts = [f"{left}{READY}exit 1", READY + "cat"]
        await stage.supervisor.add(stage.boot())
        await stage.until(
            lambda: stage.views[-1].starts == 2 and stage.views[-1].state == "running"
        )

    play(tmp_path, orderly)
    play(tmp_path, crashed)


def test_nothing_is_restarted_during_a_shutdown(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.scripts = [READY + "cat"]
        await stage.supervisor.add(stage.boot())
        await stage.supervisor.stop(("component",))
        await stage.until(lambda: stage.views[-1].state == "ended")
        assert len(stage.started) == 1

    play(tmp_path, scenario)


def test_a_component_that_starts_during_a_shutdown_is_ended(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        def stop() -> None:
            if len(stage.started) == 2:
                stage.supervisor._stopping.set()

        stage.on_start = stop
        stage.scripts = [READY + "exit 1", READY + "exec sleep 300"]
        await stage.supervisor.add(stage.boot())
        await stage.until(lambda: stage.views[-1].state == "ended")

    play(tmp_path, scenario)


def test_kill_all_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.scripts = [f"trap '' TERM; {READY}while read x; do :; done; sleep 300"]
        await stage.supervisor.add(stage.boot())
        stage.supervisor.kill_all()
        await stage.until(lambda: stage.views[-1].state == "ended")

    play(tmp_path, scenario)


# The real child


def boot_of(folder: Path, **changes: Any) -> Boot:
    layout = Layout(folder / "data")
    layout.prepare()
    boot = Boot(
        role="github",
        name="github",
        root=str(layout.root),
        kube_url="http://127.0.0.1:1",
        server_url="http://127.0.0.1:1",
        github_url="http://127.0.0.1:1",
    )
    return msgspec.structs.replace(boot, **changes)


def test_a_child_with_a_damaged_directory_exits_with_cannot_work(tmp_path: Path) -> None:
    boot = boot_of(tmp_path)
    boot.layout.secrets.write_text("{")

    async def scenario() -> int:
        running = await start(boot, -1)
        assert not await running.ready()
        return await running.wait()

    assert asyncio.run(scenario()) == 3
    words = log_tail(boot.layout, "github")
    assert "secrets.json" in words and "backup" in words
    assert "Traceback" not in words


def started_with(boot: Boot) -> tuple[bytes, bytes]:
    """The environment and the arguments of a child."""

    async def scenario() -> tuple[bytes, bytes]:
        running = await start(boot, -1)
        try:
            place = Path(f"/proc/{running.pid}")  # both are empty for a moment after the start
            return until((place / "environ").read_bytes), until((place / "cmdline").read_bytes)
        finally:
            running.end()
            await running.wait()

    return asyncio.run(scenario())


def test_a_child_gets_no_more_of_the_environment_than_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("TART_REGISTRY_PASSWORD", "hush")
    monkeypatch.setenv("RUNYARD_ISOLATION", "none")
    secret = "postgres-password-" + "x" * 8
    environment, arguments = started_with(boot_of(tmp_path, database=secret))
    assert b"hush" not in environment
    assert b"RUNYARD_ISOLATION=none" in environment
    assert secret.encode() not in environment + arguments
    assert arguments.endswith(b"github\0")


@pytest.mark.parametrize(("driver", "count"), [("tart", 3), ("process", 0)])
def test_an_agent_looks_for_vms_and_credentials_where_its_tart_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, count: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TART_HOME", "fast/tart")
    monkeypatch.setenv("TART_REGISTRY_USERNAME", "ci")
    monkeypatch.setenv("TART_REGISTRY_PASSWORD", "hush")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/our-ca.pem")
    environment, _ = started_with(boot_of(tmp_path, role="agent", name="host-1", driver=driver))
    found = [line.decode() for line in environment.split(b"\0")]
    wanted = [
        f"TART_HOME={tmp_path}/fast/tart",
        *("TART_REGISTRY_USERNAME=ci", "TART_REGISTRY_PASSWORD=hush"),
    ]
    assert len([line for line in wanted if line in found]) == count
    assert "SSL_CERT_FILE=/etc/our-ca.pem" in found


def test_a_child_without_a_configuration_prints_its_purpose() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "runyard.embedded.up.child"],
        input=b"\n",
        capture_output=True,
        check=False,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (printed.returncode, printed.stderr) == (2, b"this program is started by `runyard up`\n")


_PARENT = """
import asyncio, sys, msgspec
from runyard.embedded.up.boot import Boot
from runyard.embedded.up.children import start
async def main():
    running = await start(msgspec.json.decode(sys.argv[1], type=Boot), -1)
    assert await running.ready()
    print(running.pid, flush=True)
    await running.wait()
asyncio.run(main())
"""


def test_a_child_ends_when_its_parent_was_killed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.set_inheritable(True)
        boot = boot_of(tmp_path, sockets=(("127.0.0.1", listening.fileno()),))
        load_or_make(boot.layout, random.SystemRandom())
        parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT, msgspec.json.encode(boot).decode()],
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]},
            pass_fds=[listening.fileno()],
        )
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.communicate()
        assert ended(child, within=60.0)
