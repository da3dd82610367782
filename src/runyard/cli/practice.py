"""`runyard practice`: push a job to the practice GitHub of a machine that is up, and watch it run.

Invariant: what a job wrote, and what anybody called anything, commands nobody's terminal.
"""

import asyncio
import os
import sys
from pathlib import Path

import click
import msgspec

from runyard.cli.harmless import harmless
from runyard.clock import Clock, RealClock
from runyard.embedded.github.views import JobView
from runyard.embedded.up.layout import BadDirectory, Layout, default_root, read_json
from runyard.embedded.up.people import People, Refused
from runyard.embedded.up.practice import LABEL, REPOSITORY
from runyard.embedded.up.secrets import load
from runyard.http.client import HttpTransport
from runyard.http.errors import TransportError

LOOK_EVERY = 0.3
AWAY_AT_MOST = 60.0


class NotUp(click.ClickException):
    """There is no machine to push to."""

    exit_code = 2


@click.command(context_settings={"max_content_width": 110})
@click.argument("script", required=False)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="The data directory of the machine.  [default: that of 'runyard up']",
)
@click.option("--name", default="", help="What the job is called.")
@click.option(
    "--label", default=LABEL, show_default=True, help="The label that a runner must have."
)
@click.option("--no-wait", is_flag=True, help="Queue it and print its id, without watching it.")
@click.option("--json", "as_json", is_flag=True, help="Print the job as JSON instead of its log.")
@click.option(
    "--raw",
    is_flag=True,
    help="Leave control characters in the log as they are; not on a terminal, which would obey them.",
)
def practice(
    script: str | None,
    data: Path | None,
    name: str,
    label: str,
    *,
    no_wait: bool,
    as_json: bool,
    raw: bool,
) -> None:
    """Push a job to the practice GitHub of a machine that 'runyard up' runs, and show its log.

    SCRIPT is shell text; without it, standard input is read. The exit code is 0 if the job succeeded, 1 if not, and
    2 if there is nobody who takes it or tells of its end.

    \b
    runyard practice 'echo hello from $GITHUB_JOB'
    runyard practice --name build < build.sh
    """
    if raw and sys.stdout.isatty():
        raise click.UsageError("a raw log goes to a file or a pipe, not to a terminal")
    job = _Job(script=_text(script), name=name, label=label)
    root = data or default_root(os.environ)
    try:
        people = _people(Layout(root.absolute()))
        sys.exit(asyncio.run(_push(*people, job, wait=not no_wait, as_json=as_json, raw=raw)))
    except (TransportError, Refused) as error:
        reason = harmless(str(error))
        raise NotUp(
            f"the practice GitHub of {root} does not take the job: {reason}. Is it up?"
        ) from error


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    script: str
    name: str
    label: str


def _text(script: str | None) -> str:
    """The script: the argument's, or all of standard input."""
    try:
        if script is None:
            return sys.stdin.buffer.read().decode()
        script.encode()  # an argument may hold bytes that are no text, in disguise
    except UnicodeError:
        raise click.UsageError("the script is no text in UTF-8") from None
    return script


def _people(layout: Layout) -> tuple[HttpTransport, People]:
    try:
        ports = read_json(layout.ports)
        if not isinstance(ports, dict) or not isinstance(ports.get("github"), int):
            raise NotUp(f"no machine was ever up in {layout.root}; start one with 'runyard up'")
        token = load(layout).people_token
    except BadDirectory as error:
        raise NotUp(str(error)) from error
    transport = HttpTransport(f"http://127.0.0.1:{ports['github']}")
    return transport, People(transport, token=token)


async def _push(
    transport: HttpTransport,
    people: People,
    pushed: _Job,
    *,
    wait: bool,
    as_json: bool,
    raw: bool,
) -> int:
    clock = RealClock()
    try:
        number = await people.queue_job(
            REPOSITORY, labels=(pushed.label,), script=pushed.script, name=pushed.name
        )
        if not wait:
            click.echo(number)
            return 0
        job = await watch(people, number, clock=clock)
        text = _json(job) if as_json else await people.log(number)
        click.echo(text if raw else harmless(text), nl=as_json, color=raw or None)
        if not as_json:
            ended = f"job {number}: {job.conclusion} on {job.runner_name}"
            click.echo(harmless(ended), err=True)
        return 0 if job.conclusion == "success" else 1
    finally:
        await transport.close()


async def watch(people: People, number: int, *, clock: Clock) -> JobView:
    """The job once it has ended. The machine may be started anew meanwhile: the job is not lost by that."""
    heard = clock.monotonic()
    while True:
        try:
            job = await people.job(number)
        except TransportError as error:
            if clock.monotonic() - heard > AWAY_AT_MOST:
                raise NotUp(
                    f"job {number} was taken, and then the practice GitHub was not heard of for"
                    f" {AWAY_AT_MOST:g} s ({harmless(str(error))}). The job goes on when it is up again"
                ) from error
        else:
            heard = clock.monotonic()
            if job.status == "completed":
                return job
        await clock.sleep(LOOK_EVERY)


def _json(job: JobView) -> str:
    return msgspec.json.encode(job).decode()
