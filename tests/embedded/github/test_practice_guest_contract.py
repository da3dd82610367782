"""The simulator's model of a runner and the real program cause the same records at GitHub.

Each scenario is run_scenario twice: by `sim.guest` under virtual time through a Python session, and by the runner
program in a process of its own over HTTP. GitHub's records, the webhooks that it sent, the
registration and the exit code must be equal.
"""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
from tests.embedded.github.practicelive import Live, Program, live

from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.deliveries import Delivery
from runyard.embedded.github.identity import KeyPair
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, json_response
from runyard.sim.clock import VirtualClock
from runyard.sim.guest import Guest
from runyard.sim.loop import run_virtual
from runyard.vm.contract import VmSpec
from runyard.wire import names
from runyard.wire.bodies import Dispatched


class Side(Protocol):
    """A guest that is either the model or the program."""

    core: GithubCore

    async def begin(self, jit: str, *, idle_timeout: int = 0) -> None: ...
    async def listening(self) -> None: ...
    async def running(self) -> None: ...
    async def let_the_job_end(self) -> None: ...
    async def lose_power(self) -> None: ...
    async def be_asked_to_end(self) -> None: ...
    async def exit_code(self) -> int: ...
    async def until(self, ready: Callable[[], object]) -> None: ...


class Traces(msgspec.Struct, eq=True):
    """What can be observed from outside."""

    histories: list[list[tuple[str, str | None]]]
    conclusions: list[str | None]
    webhooks: list[list[str]]
    left: list[tuple[str, bool, bool]]
    codes: list[int]


def mint(core: GithubCore) -> str:
    return core._state.register(
        "orgs/acme", name="runner-1", labels=("mac",), group_id=1, work_folder="_work"
    ).jit


def traces(core: GithubCore, codes: list[int]) -> Traces:
    jobs = core.jobs()
    webhooks = [_delivered(each.delivery) for each in core.attempts()]
    return Traces(
        histories=[[(e.what, e.runner) for e in job.history] for job in jobs.values()],
        conclusions=[job.conclusion for job in jobs.values()],
        webhooks=[[action for number, action in webhooks if number == job] for job in jobs],
        left=[(each.name, each.online, each.busy) for each in core.runners().values()],
        codes=codes,
    )


# The scenarios


async def one_job(side: Side) -> list[int]:
    await side.begin(mint(side.core))
    await side.listening()
    queue(side)
    queue(side)  # a runner takes only one job
    await side.running()
    await side.let_the_job_end()
    return [await side.exit_code()]


async def cancelled(side: Side) -> list[int]:
    job = queue(side)
    await side.begin(mint(side.core))
    await side.running()
    side.core.cancel_job(job)
    return [await side.exit_code()]


async def registration_deleted(side: Side) -> list[int]:
    await side.begin(mint(side.core))
    await side.listening()
    state = side.core._state
    state.remove(next(iter(state.runners.values())), why="deleted")
    return [await side.exit_code()]


async def vanished_with_a_job(side: Side) -> list[int]:
    job = queue(side)
    await side.begin(mint(side.core))
    await side.running()
    await side.lose_power()
    await side.until(lambda: side.core.jobs()[job].status == "completed")
    return []


async def vanished_while_waiting(side: Side) -> list[int]:
    await side.begin(mint(side.core))
    await side.listening()
    await side.lose_power()
    await side.until(lambda: not next(iter(side.core.runners().values())).online)
    queue(side)
    return []


async def a_second_start_after_a_lost_job(side: Side) -> list[int]:
    queue(side)
    jit = mint(side.core)
    await side.begin(jit)
    await side.running()
    await side.lose_power()
    await side.until(lambda: not next(iter(side.core.runners().values())).online)
    await side.begin(jit)
    return [await side.exit_code()]


async def asked_to_end_with_a_job(side: Side) -> list[int]:
    queue(side)
    await side.begin(mint(side.core))
    await side.running()
    await side.be_asked_to_end()
    return [await side.exit_code()]


async def nothing_to_do_for_too_long(side: Side) -> list[int]:
    await side.begin(mint(side.core), idle_timeout=1)
    await side.listening()
    return [await side.exit_code()]


async def an_unknown_secret(side: Side) -> list[int]:
    jit = mint(side.core)
    state = side.core._state
    state.remove(next(iter(state.runners.values())), why="deleted")
    await side.begin(jit)
    return [await side.exit_code()]


SCENARIOS = {
    scenario.__name__.replace("_", "-"): scenario
    for scenario in (
        one_job,
        cancelled,
        registration_deleted,
        vanished_with_a_job,
        vanished_while_waiting,
        a_second_start_after_a_lost_job,
        asked_to_end_with_a_job,
        nothing_to_do_for_too_long,
        an_unknown_secret,
    )
}
Scenario = Callable[[Side], Awaitable[list[int]]]


def queue(side: Side) -> int:
    script = 'echo begun > "$BEGUN"\nread word < "$GO"\n'
    env = getattr(side, "pipes", {})
    return side.core.queue_job("acme/app", ("mac",), duration=5, script=script, env=env)


# The model


class ModelSide:
    """The guest of the simulator, with its dependencies."""

    github_reachable = True
    watchdog_yields = True

    def __init__(self, core: GithubCore, clock: VirtualClock, tasks: asyncio.TaskGroup) -> None:
        self.core = self.github = core
        self.clock = clock
        self.rng = random.Random(0)
        self.guests: dict[str, Any] = {}
        self.pollers: dict[str, Any] = {}
        self._tasks = tasks
        self._task: asyncio.Task[int] | None = None
        self._powerless = False

    def fate(self, kind: str, guest: object) -> bool:
        return False

    def delivered(self, guest: object, jit: str) -> None:
        pass

    def die(self, guest: object) -> None:
        raise AssertionError("no scenario ends a guest this way")

    async def begin(self, jit: str, *, idle_timeout: int = 0) -> None:
        async def dispatch(_: Request) -> Response:
            given = Dispatched(encoded_jit_config=jit, owner="acme", workflow_job_id=1)
            return json_response(200, given)

        self._powerless = False
        guest = Guest(self, host="h", server=Loopback(dispatch), over=lambda _: self._powerless)
        env = {
            names.ENV_POD_NAME: "runner-1",
            names.ENV_POD_UID: "u",
            names.ENV_POOL: "p",
            names.ENV_IDLE_TIMEOUT: str(idle_timeout),
        }
        spec = VmSpec(name="vm", image="i", cpu_milli=1, memory_mb=1, env=tuple(env.items()))
        self._task = self._tasks.create_task(guest.live(spec, "192.0.2.1"))

    async def listening(self) -> None:
        await self.until(lambda: any(view.session for view in self.guests.values()))

    async def running(self) -> None:
        await self.until(lambda: any(view.state == "running" for view in self.guests.values()))

    async def let_the_job_end(self) -> None:
        pass  # it lasts five seconds

    async def lose_power(self) -> None:
        self._powerless = True
        await self.be_asked_to_end()
        await self.exit_code()

    async def be_asked_to_end(self) -> None:
        assert self._task is not None
        self._task.cancel()

    async def exit_code(self) -> int:
        assert self._task is not None
        return await self._task

    async def until(self, ready: Callable[[], object]) -> None:
        while not ready():
            await self.clock.sleep(0.01)


def played_by_the_model(keys: KeyPair, scenario: Scenario) -> Traces:
    async def main() -> Traces:
        clock = VirtualClock()
        core = GithubCore(
            clock=clock,
            rng=random.Random(5),
            app=PracticeApp(app_id=1, public_key=keys.public_pem, webhook_secret="s"),
        )
        core.install("acme")
        core.add_repo("acme/app")
        async with asyncio.TaskGroup() as group:
            heart = group.create_task(core.run())
            codes = await scenario(ModelSide(core, clock, group))
            heart.cancel()
        return traces(core, codes)

    return run_virtual(main())


def _delivered(delivery: Delivery) -> tuple[int, str]:
    return msgspec.json.decode(delivery.body)["workflow_job"]["id"], delivery.action


# The program


class ProgramSide:
    """The runner program, started as a guest's scripts start it."""

    def __init__(self, it: Live, folder: Path) -> None:
        self.core = it.core
        self._it = it
        self._program: Program | None = None
        self._idle = False
        self.pipes = {name: str(folder / name.lower()) for name in ("BEGUN", "GO")}
        for path in self.pipes.values():
            os.mkfifo(path)

    async def begin(self, jit: str, *, idle_timeout: int = 0) -> None:
        self._program = await self._it.start("--jitconfig", jit)
        self._idle = bool(idle_timeout)

    async def listening(self) -> None:
        assert self._program is not None
        await self._program.line("Listening for Jobs")
        if self._idle:  # what the guest's watchdog does when the time is over
            await self.be_asked_to_end()

    async def running(self) -> None:
        await asyncio.to_thread(Path(self.pipes["BEGUN"]).read_text)

    async def let_the_job_end(self) -> None:
        await asyncio.to_thread(Path(self.pipes["GO"]).write_text, "go\n")

    async def lose_power(self) -> None:
        assert self._program is not None
        children = await _children(self._program.process.pid)
        self._program.process.kill()
        for child in children:
            os.killpg(child, signal.SIGKILL)
        await self._program.ended()

    async def be_asked_to_end(self) -> None:
        assert self._program is not None
        self._program.process.send_signal(signal.SIGTERM)

    async def exit_code(self) -> int:
        assert self._program is not None
        return await self._program.ended()

    async def until(self, ready: Callable[[], object]) -> None:
        await self._it.until(ready)


async def _children(pid: int) -> list[int]:
    """The jobs that a program has started, each the leader of its group."""
    lister = await asyncio.create_subprocess_exec(
        "ps", "-A", "-o", "pid=", "-o", "ppid=", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await lister.communicate()
    pairs = (line.split() for line in out.decode().splitlines())
    return [int(child) for child, parent in pairs if int(parent) == pid]


def played_by_the_program(keys: KeyPair, folder: Path, scenario: Scenario) -> Traces:
    async def main() -> Traces:
        async with live(keys, folder, poll_seconds=5) as it:
            return traces(it.core, await scenario(ProgramSide(it, folder)))

    return asyncio.run(main())


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_model_and_the_program_cause_the_same_records(
    practice_keys: KeyPair, tmp_path: Path, name: str
) -> None:
    model = played_by_the_model(practice_keys, SCENARIOS[name])
    program = played_by_the_program(practice_keys, tmp_path, SCENARIOS[name])
    assert program == model
