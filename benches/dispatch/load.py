"""Generates load: sends webhooks at a steady rate, and polls like runners. It uses raw HTTP, to be cheap.

    python -m benches.dispatch.load FOLDER ORDER      prints one line of JSON; ORDER is JSON too

Webhooks are sent on schedule, whether or not earlier ones were answered: a slow server does not slow the load.
"""

import asyncio
import hashlib
import hmac
import itertools
import sys
import time
import urllib.parse
from pathlib import Path

import msgspec
from benches.dispatch.dependencies import LABELS, SECRET, Account, Dependencies, Runner

from runyard.wire.paths import DISPATCH, GITHUB_WEBHOOK

_LOST = 60.0  # seconds until a missing response counts as lost


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What load to generate."""

    webhooks_to: str
    polls_to: str = ""
    jobs: int = 0
    per_second: float = 50.0
    waiting: int = 0  # runners that wait at any time; each is replaced when it has got its job
    fits: bool = True  # jobs have the labels of the waiting runners
    first_job: int = 1
    first_runner: int = 0  # earlier runners have had their job


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements. Times are in seconds, moments are those of `time.perf_counter`."""

    answered: list[float] = []  # from a webhook's sending to its response
    delivered: list[tuple[float, float]] = []  # webhook sent, JIT at a runner; not durations
    statuses: dict[str, int] = {}  # of webhooks and polls
    late: float = 0.0  # the longest delay of the load generator itself
    seconds: float = 0.0


class Line:
    """One HTTP connection."""

    def __init__(self, url: str) -> None:
        split = urllib.parse.urlsplit(url)
        assert split.hostname and split.port
        self._where = (split.hostname, split.port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._where, limit=1 << 18)
        reader, writer = self._streams
        head = [f"POST {path} HTTP/1.1", "host: bench", f"content-length: {len(body)}"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = 0
        if b"content-length:" in answer:
            length = int(answer.partition(b"content-length:")[2].partition(b"\r\n")[0])
        return int(answer[9:12]), await reader.readexactly(length)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def webhook(account: Account, job: int, labels: tuple[str, ...]) -> tuple[dict[str, str], bytes]:
    """Build a signed `queued` event, as GitHub sends it."""
    event = {
        "action": "queued",
        "workflow_job": {
            "id": job,
            "run_id": job,
            "status": "queued",
            "labels": list(labels),
            "name": f"job {job}",
        },
        "repository": {
            "id": 1,
            "full_name": f"{account.name}/app",
            "name": "app",
            "owner": {"login": account.name},
        },
        "organization": {"id": 1, "login": account.name},
        "installation": {"id": account.installation},
    }
    body = msgspec.json.encode(event)
    seal = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "x-hub-signature-256": f"sha256={seal}",
        "x-github-event": "workflow_job",
        "x-github-delivery": f"bench-{job}",
        "content-type": "application/json",
    }
    return headers, body


class Load:
    """Executes one order."""

    def __init__(self, order: Order, dependencies: Dependencies) -> None:
        self._order = order
        self._dependencies = dependencies
        self._runners = iter(dependencies.runners[order.first_runner :])
        self._lines: list[Line] = []
        self._sent: dict[int, float] = {}
        self._statuses: dict[str, int] = {}
        self._answered: list[float] = []
        self._delivered: list[tuple[float, float]] = []
        self._late = 0.0
        self._all = asyncio.Event()

    async def run(self) -> Found:
        order = self._order
        async with asyncio.TaskGroup() as group:
            polls = [
                group.create_task(self._poll_in_turn(group, runner))
                for runner in itertools.islice(self._runners, order.waiting)
            ]
            print("begin", flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            began = time.perf_counter()
            await self._webhooks(began)
            if order.waiting:
                try:
                    async with asyncio.timeout(_LOST):
                        await self._all.wait()
                except TimeoutError:
                    self._count("lost", order.jobs - len(self._delivered))
            spent = time.perf_counter() - began
            for poll in polls:
                poll.cancel()
            self._over = True
        return Found(
            answered=self._answered,
            delivered=self._delivered,
            statuses=self._statuses,
            late=self._late,
            seconds=spent,
        )

    async def _webhooks(self, began: float) -> None:
        order = self._order
        async with asyncio.TaskGroup() as group:
            for number in range(order.jobs):
                due = began + number / order.per_second
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                self._late = max(self._late, time.perf_counter() - due)
                group.create_task(self._webhook(order.first_job + number))

    async def _webhook(self, job: int) -> None:
        account = self._dependencies.accounts[job % len(self._dependencies.accounts)]
        labels = LABELS if self._order.fits else ("nobody-has-this",)
        headers, body = webhook(account, job, labels)
        line = self._lines.pop() if self._lines else Line(self._order.webhooks_to)
        self._sent[job] = began = time.perf_counter()
        status, _ = await line.ask(GITHUB_WEBHOOK, headers, body)
        self._answered.append(time.perf_counter() - began)
        self._count(f"webhook {status}")
        self._lines.append(line)

    async def _poll_in_turn(self, group: asyncio.TaskGroup, runner: Runner | None) -> None:
        """Poll with one runner after another: when one has got its job, the next one polls."""
        while runner is not None:
            line = Line(self._order.polls_to)
            try:
                await self._poll(line, runner)
            finally:
                line.close()
            runner = next(self._runners, None)

    async def _poll(self, line: Line, runner: Runner) -> None:
        headers = {
            "authorization": f"Bearer {runner.token}",
            "prefer": "wait=25",
            "content-type": "application/json",
        }
        while True:
            status, body = await line.ask(DISPATCH, headers, b"{}")
            self._count(f"poll {status}")
            if status == 200:
                job = msgspec.json.decode(body)["workflow_job_id"]
                self._delivered.append((self._sent[job], time.perf_counter()))
                if len(self._delivered) == self._order.jobs:
                    self._all.set()
                return
            if status != 204:
                await asyncio.sleep(1.0)

    def _count(self, what: str, times: int = 1) -> None:
        self._statuses[what] = self._statuses.get(what, 0) + times


async def main(folder: Path, order: Order) -> None:
    dependencies = msgspec.json.decode(
        (folder / "dependencies.json").read_bytes(), type=Dependencies
    )
    found = await Load(order, dependencies).run()
    print(msgspec.json.encode(found).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=Order)))
