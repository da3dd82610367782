"""Runs `runyard practice`: queues the job, waits for its end and prints its log.

Invariant: no text of a job, a log or a name reaches the terminal with control characters.
"""

import asyncio
from pathlib import Path

import click
import msgspec

from runyard.cli.local_machine import machine_root
from runyard.cli.practice import NotUp
from runyard.clock import Clock, RealClock
from runyard.embedded.github.views import JobView
from runyard.embedded.up.layout import BadDirectory, Layout, read_json
from runyard.embedded.up.practice import REPOSITORY
from runyard.embedded.up.practice_client import PracticeClient, Refused
from runyard.embedded.up.secrets import load
from runyard.http.client import HttpTransport
from runyard.http.errors import TransportError
from runyard.text import harmless

CHECK_EVERY = 0.3
AWAY_AT_MOST = 60.0
_OF_THE_JOB = (400, 413, 422)  # the job itself was refused


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The job to push."""

    script: str
    name: str
    label: str


def run(job: Job, data: Path | None, *, wait: bool, as_json: bool, raw: bool) -> int:
    """Push the job; the exit code."""
    root = machine_root(data)
    try:
        client = _practice_client(Layout(root))
        return asyncio.run(_push(*client, job, wait=wait, as_json=as_json, raw=raw))
    except (TransportError, Refused) as error:
        reason = harmless(str(error))
        raise NotUp(
            f"the practice GitHub of {root} did not accept the job: {reason}. {_fix(error)}"
        ) from error


def _fix(error: TransportError | Refused) -> str:
    if isinstance(error, Refused) and error.status in _OF_THE_JOB:
        return "Give another script, name or label"
    return "Check that 'runyard up' is running"


def _practice_client(layout: Layout) -> tuple[HttpTransport, PracticeClient]:
    try:
        ports = read_json(layout.ports)
        if not isinstance(ports, dict) or not isinstance(ports.get("github"), int):
            raise NotUp(f"'runyard up' never ran in {layout.root}; start it first")
        token = load(layout).practice_token
    except BadDirectory as error:
        raise NotUp(str(error)) from error
    transport = HttpTransport(f"http://127.0.0.1:{ports['github']}")
    return transport, PracticeClient(transport, token=token)


async def _push(
    transport: HttpTransport,
    client: PracticeClient,
    pushed: Job,
    *,
    wait: bool,
    as_json: bool,
    raw: bool,
) -> int:
    clock = RealClock()
    try:
        number = await client.queue_job(
            REPOSITORY, labels=(pushed.label,), script=pushed.script, name=pushed.name
        )
        if not wait:
            click.echo(number)
            return 0
        job = await watch(client, number, clock=clock)
        text = _json(job) if as_json else await client.log(number)
        click.echo(text if raw else harmless(text), nl=as_json, color=raw or None)
        if not as_json:
            ended = f"job {number}: {job.conclusion} on {job.runner_name}"
            click.echo(harmless(ended), err=True)
        return 0 if job.conclusion == "success" else 1
    finally:
        await transport.close()


async def watch(client: PracticeClient, number: int, *, clock: Clock) -> JobView:
    """Wait for the job's end and return it. Restarting 'runyard up' meanwhile does not lose the job."""
    heard = clock.monotonic()
    while True:
        try:
            job = await client.job(number)
        except TransportError as error:
            if clock.monotonic() - heard > AWAY_AT_MOST:
                raise NotUp(
                    f"job {number} was queued, but the practice GitHub did not respond for"
                    f" {AWAY_AT_MOST:g} s ({harmless(str(error))}). The job continues when it is up again"
                ) from error
        else:
            heard = clock.monotonic()
            if job.status == "completed":
                return job
        await clock.sleep(CHECK_EVERY)


def _json(job: JobView) -> str:
    return msgspec.json.encode(job).decode()
