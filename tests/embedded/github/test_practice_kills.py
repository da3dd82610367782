"""Kill -9 at any moment, with jobs queued and running, loses nothing that the practice GitHub acknowledged.

A real process serves over HTTP. Users push, cancel and approve; runner programs are minted, connect, take their
job, send its log and report its end, all at the same time. After a number of acknowledgements that the seed picks the
process is killed. The state of the next process is compared with what was sent and what was acknowledged, and the same
runner programs continue with it. At the end the receiver has received every event.

The seed is random and printed; RUNYARD_TEST_SEED repeats the choices of a run.
"""

import asyncio
import os
import random
import signal
import sys
import time
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
from tests.embedded.github import practice_forks
from tests.tiers import pick

from runyard.embedded.github.identity import KeyPair
from runyard.http.client import HttpTransport
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Response
from runyard.http.server import listen

SESSION = "/practice/runner/session"
MINT = "/orgs/acme/actions/runners/generate-jitconfig"
PRACTICE_TOKEN, WORKERS = 2, 3
PATIENCE = 60.0


class Over(Exception):
    """This process has ended."""


class Pushed:
    """The expected state of one job."""

    def __init__(self, *, waiting: bool) -> None:
        self.id = 0  # set by the acknowledgement
        self.waiting = waiting
        self.approval = ""  # "sent", then "acknowledged"
        self.cancel = ""


class Program:
    """The expected state of one runner program; it outlives a killed GitHub."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.jit = self.key = ""
        self.runner = self.job = 0
        self.writes = random.Random(name).randbytes(200_000)
        self.log = b""  # what was acknowledged of it
        self.wanted = 0  # parts of the log that it will send
        self.reports = ""  # the conclusion that it sends
        self.reported = ""  # the conclusion that was acknowledged


class Expected:
    """What was sent and what was acknowledged, over all restarts."""

    def __init__(self) -> None:
        self.jobs: dict[str, Pushed] = {}
        self.programs: dict[str, Program] = {}
        self.token = ""
        self.received: dict[tuple[int, str], int] = {}
        self.changed = asyncio.Event()
        self.checked = 0

    async def receive(self, request: Request) -> Response:
        body = msgspec.json.decode(request.body)
        event = body["workflow_job"]["id"], body["action"]
        self.received[event] = self.received.get(event, 0) + 1
        self.changed.set()
        return Response(status=202)


class Process:
    """One process of the practice GitHub, and its clients."""

    def __init__(self, restarts: "Restarts", rng: random.Random, pid: int) -> None:
        self.restarts = restarts
        self.expected = restarts.expected
        self.rng = rng
        self.pid = pid
        self.left = rng.randint(1, 40)  # acknowledgements until the kill
        self.turns = rng.randint(0, 30)  # and turns of this process's loop after them
        self.dead = False

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        bearer: str = "practice",
        raw: bytes = b"",
    ) -> Response:
        if self.dead:
            raise Over
        try:
            answer = await self.restarts.ask(method, path, body, bearer=bearer, raw=raw)
        except TransportError as error:
            if not self.dead:
                raise AssertionError("it ended, and the test had not killed it") from error
            raise Over from error
        return answer

    async def acknowledged(self) -> None:
        """Counts an acknowledgement; kills the process after the last one."""
        self.left -= 1
        if self.left == 0:
            for _ in range(self.turns):
                await asyncio.sleep(0)
            self.dead = True
            os.kill(self.pid, signal.SIGKILL)
            raise Over

    # Users

    async def push(self, person: int) -> None:
        for number in range(10_000):
            mine = [job for job in self.expected.jobs.values() if job.id and not job.cancel]
            dice = self.rng.random()
            if dice < 0.6 or not mine:
                await self.queue(f"j-{self.restarts.round}-{person}-{number}")
            elif dice < 0.8:
                await self.cancel(self.rng.choice(mine))
            else:
                await self.approve(self.rng.choice(mine))

    async def queue(self, name: str) -> None:
        waiting = self.rng.random() < 0.3
        job = self.expected.jobs[name] = Pushed(waiting=waiting)
        body = {"repo": "acme/app", "labels": ["mac"], "name": name, "waiting": waiting}
        answer = await self.call("POST", "/practice/jobs", body)
        assert answer.status == 201, answer
        job.id = int(answer.json()["id"])
        await self.acknowledged()

    async def cancel(self, job: Pushed) -> None:
        job.cancel = "sent"
        answer = await self.call("POST", f"/practice/jobs/{job.id}/cancel")
        assert answer.status in (200, 409), answer
        job.cancel = "acknowledged" if answer.status == 200 else "late"
        await self.acknowledged()

    async def approve(self, job: Pushed) -> None:
        answer = await self.call("POST", f"/practice/jobs/{job.id}/approve")
        assert answer.status in (200, 409), answer
        job.approval = "acknowledged"
        await self.acknowledged()

    # Runner programs

    async def work(self, worker: int) -> None:
        for number in range(10_000):
            program = self.restarts.at_work.get(worker)
            if program is None:
                name = f"r-{self.restarts.round}-{worker}-{number}"
                program = self.expected.programs[name] = Program(name)
                await self.mint(program)
                self.restarts.at_work[worker] = program
                await self.acknowledged()
            await self.carry_on(program)
            del self.restarts.at_work[worker]

    async def mint(self, program: Program) -> None:
        body = {"name": program.name, "runner_group_id": 1, "labels": ["mac"]}
        answer = await self.call("POST", MINT, body, bearer=self.expected.token)
        assert answer.status == 201, answer
        program.jit = str(answer.json()["encoded_jit_config"])
        program.runner = int(answer.json()["runner"]["id"])

    async def carry_on(self, program: Program) -> None:
        """Continues from its current step to its end."""
        if not program.key:
            body = {"instance": f"start-{program.name}"}
            answer = await self.call("POST", SESSION, body, bearer=program.jit)
            assert answer.status == 201, answer
            program.key = str(answer.json()["session"])
            await self.acknowledged()
        while not program.job:
            answer = await self.call("GET", f"{SESSION}/job?wait=1", bearer=program.key)
            assert answer.status in (200, 204), answer
            if answer.status == 200:
                program.job = int(answer.json()["id"])
                program.wanted = self.rng.randint(0, 4)
                program.reports = self.rng.choice(["success", "failure"])
                await self.acknowledged()
        while program.wanted:
            await self.send_log(program)
        answer = await self.call(
            "PUT", f"{SESSION}/conclusion", {"conclusion": program.reports}, bearer=program.key
        )
        assert answer.status == 200, answer
        program.reported = str(answer.json()["conclusion"])
        await self.acknowledged()

    async def send_log(self, program: Program) -> None:
        at = len(program.log)
        part = program.writes[at : at + self.rng.choice([1, 100, 20_000])]
        answer = await self.call("POST", f"{SESSION}/log?offset={at}", bearer=program.key, raw=part)
        assert answer.status == 200, answer
        # More may be there than was acknowledged: a part whose answer was lost with a process.
        program.log = program.writes[: int(answer.json()["size"])]
        program.wanted -= 1
        await self.acknowledged()


class Restarts:
    """One data directory and one port for processes that run one after the other."""

    def __init__(self, parent: asyncio.subprocess.Process, port: int, expected: Expected) -> None:
        self.parent = parent
        self.transport = HttpTransport(f"http://127.0.0.1:{port}")
        self.expected = expected
        self.round = 0
        self.at_work: dict[int, Program] = {}

    async def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        bearer: str = "practice",
        raw: bytes = b"",
    ) -> Response:
        path, _, query = target.partition("?")
        pairs = tuple(urllib.parse.parse_qsl(query))
        headers = (
            ("authorization", f"Bearer {bearer}"),
            ("content-type", "application/json"),
            ("user-agent", "test"),
        )
        sent = raw if body is None else msgspec.json.encode(body)
        request = Request(method=method, path=path, query=pairs, headers=headers, body=sent)
        answer = await self.transport.send(request, timeout=PATIENCE)
        assert isinstance(answer, Response) and answer.status < 500, answer
        return answer

    async def start(self) -> int:
        assert self.parent.stdin is not None and self.parent.stdout is not None
        self.parent.stdin.write(b"\n")
        return int(await self.parent.stdout.readline())

    async def found(self, keys: KeyPair) -> None:
        """Creates the account, the repository and a token in a first process."""
        pid = await self.start()
        account = (await self.ask("POST", "/practice/accounts", {"account": "acme"})).json()
        await self.ask("POST", "/practice/repos", {"repo": "acme/app"})
        now = int(time.time())
        claims = {"iat": now - 60, "exp": now + 540, "iss": "1"}
        path = f"/app/installations/{account['installation_id']}/access_tokens"
        credential = jwt.encode(claims, keys.private_pem, algorithm="RS256")
        answer = await self.ask("POST", path, bearer=credential)
        self.expected.token = str(answer.json()["token"])
        os.kill(pid, signal.SIGKILL)

    async def live(self, rng: random.Random) -> None:
        """Starts a process, checks what the last one left, works, and kills it."""
        self.round += 1
        pid = await self.start()
        await self.check()
        process = Process(self, rng, pid)
        try:
            async with asyncio.TaskGroup() as group:
                for person in range(PRACTICE_TOKEN):
                    group.create_task(process.push(person))
                for worker in range(WORKERS):
                    group.create_task(process.work(worker))
        except* Over:
            pass

    # The comparison

    async def read_log(self, job: int, start: int, end: int) -> bytes:
        answer = await self.ask("GET", f"/practice/jobs/{job}/log?offset={start}")
        assert answer.status == 200
        return answer.body[: end - start]

    async def listed(self, what: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        before = "9" * 18
        while True:
            page = (await self.ask("GET", f"/practice/{what}?limit=1000&before={before}")).json()
            found += page["items"]
            if page.get("before") is None:
                return found
            before = str(page["before"])

    async def check(self) -> list[dict[str, Any]]:
        jobs = await self.listed("jobs")
        by_name = {job["name"]: job for job in jobs}
        assert len(by_name) == len(jobs) == len({job["id"] for job in jobs})
        assert [name for name in by_name if name not in self.expected.jobs] == []
        for name, known in self.expected.jobs.items():
            self.check_job(name, known, by_name.get(name))
        by_id = {job["id"]: job for job in jobs}
        runners = {runner["id"]: runner for runner in await self.listed("runners")}
        for program in self.expected.programs.values():
            await self.check_program(program, by_id, runners)
        answer = await self.ask("GET", "/orgs/acme/actions/runners", bearer=self.expected.token)
        assert answer.status == 200 and answer.json()["total_count"] == len(runners)
        return jobs

    def check_job(self, name: str, known: Pushed, job: dict[str, Any] | None) -> None:
        if job is None:
            assert not known.id, f"{name}: an acknowledged job is lost"
            return
        assert known.id in (0, job["id"]), f"{name}: another job"
        history = [entry["what"] for entry in job["history"]]
        assert history.count("in_progress") <= 1, f"{name}: given twice: {history}"
        assert sum(what.startswith("completed") for what in history) <= 1, history
        if known.cancel == "acknowledged":
            ended = job["status"] == "completed" and job["conclusion"] == "cancelled"
            assert ended or job["cancel_requested"], f"{name}: an acknowledged cancellation is lost"
        if known.approval == "acknowledged":
            assert job["status"] != "waiting", f"{name}: an acknowledged approval is lost"
        self.expected.checked += bool(known.id) + bool(known.cancel) + bool(known.approval)

    async def check_program(
        self, program: Program, jobs: dict[int, Any], runners: dict[int, Any]
    ) -> None:
        if program.runner and not program.reports:
            assert program.runner in runners, f"{program.name}: an acknowledged mint is lost"
        if not program.job:
            return
        job = jobs[program.job]
        assert job["runner_name"] == program.name, f"{program.name}: its job was given away"
        kept = await self.read_log(program.job, 0, len(program.log))
        assert kept == program.log, f"{program.name}: an acknowledged log is lost"
        if program.reported:
            assert (job["status"], job["conclusion"]) == ("completed", program.reported)
            assert program.runner not in runners
        self.expected.checked += 1 + len(program.log) + bool(program.reported)


@asynccontextmanager
async def restarts_of(folder: Path) -> AsyncIterator[Restarts]:
    expected = Expected()
    hooks = await listen(expected.receive)
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, practice_forks.__file__, str(folder), hooks.url),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdin is not None and parent.stdout is not None
    restarts = Restarts(parent, int(await parent.stdout.readline()), expected)
    try:
        yield restarts
    finally:
        await restarts.transport.close()
        parent.stdin.close()
        await parent.wait()
        await hooks.close()


async def every_event_is_delivered(expected: Expected, jobs: list[dict[str, Any]]) -> None:
    due = [
        (job["id"], entry["what"].partition(":")[0])
        for job in jobs
        for entry in job["history"]
        if entry["what"].partition(":")[0] in ("queued", "waiting", "in_progress", "completed")
    ]
    async with asyncio.timeout(PATIENCE):
        while missing := [event for event in due if event not in expected.received]:
            expected.changed.clear()
            await expected.changed.wait()
    assert due and not missing


async def kill_again_and_again(keys: KeyPair, folder: Path, *, rounds: int, seed: int) -> None:
    (folder / "public.pem").write_text(keys.public_pem)
    async with restarts_of(folder) as restarts:
        await restarts.found(keys)
        for number in range(rounds):
            await restarts.live(random.Random(f"{seed}/{number}"))
        await restarts.start()
        jobs = await restarts.check()
        await every_event_is_delivered(restarts.expected, jobs)
        assert restarts.expected.checked > rounds


def chosen_seed() -> int:
    """The seed from the environment, or a new one; the output of a failure names it."""
    asked = os.environ.get("RUNYARD_TEST_SEED", "")
    seed = int(asked) if asked else random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"repeat these choices with RUNYARD_TEST_SEED={seed}\n")
    return seed


@pytest.mark.slow
def test_a_few_kills_lose_nothing_that_was_acknowledged(
    practice_keys: KeyPair, tmp_path: Path
) -> None:
    asyncio.run(kill_again_and_again(practice_keys, tmp_path, rounds=8, seed=chosen_seed()))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_kills_lose_nothing_that_was_acknowledged(
    practice_keys: KeyPair, tmp_path: Path
) -> None:
    rounds = pick(fast=20, ci=20, long=100)
    asyncio.run(kill_again_and_again(practice_keys, tmp_path, rounds=rounds, seed=chosen_seed()))
