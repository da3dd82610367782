"""`runyard up`: the whole system on this machine, until Ctrl-C.

The command line only chooses and shows; everything else is in `embedded.up`. It ends with exit code 0 when
it was told to, 1 when a part failed or the demo was not as scripted, 2 when it could not begin (a directory in
use, a port taken, a bad value). The first Ctrl-C ends everything in order, the second one in a hurry.
"""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from runyard.cli.speaking import OPTIONS, RUNNER_GROUP, Said, intake, said, speaker, with_options
from runyard.cli.uplook import Look, look
from runyard.clock import RealClock
from runyard.embedded.lock import DirectoryInUse, DirectoryStuck
from runyard.embedded.postgres.errors import EmbeddedPostgresError
from runyard.embedded.up.database import BadDatabase
from runyard.embedded.up.demo.faults import NotHealed
from runyard.embedded.up.demo.run import tell_story
from runyard.embedded.up.demo.story import DemoFailed
from runyard.embedded.up.ending import Ending, ToldToEnd, unless
from runyard.embedded.up.layout import FULL, BadDirectory, default_root
from runyard.embedded.up.life import running
from runyard.embedded.up.machine import Options, RealGitHub
from runyard.embedded.up.ports import PortTaken
from runyard.embedded.up.supervisor import PartFailed
from runyard.http.tls import TlsError
from runyard.telemetry.causes import first_of
from runyard.telemetry.log import configure, get_logger

CANNOT_BEGIN = (
    DirectoryInUse,
    DirectoryStuck,
    BadDirectory,
    PortTaken,
    EmbeddedPostgresError,
    TlsError,
    BadDatabase,
)
FAILED = (PartFailed, DemoFailed, NotHealed)
DEMO_HOSTS = 2
INTERRUPTED = 130  # as shells expect it


class CannotBegin(click.ClickException):
    """Something about this machine or the command line; nothing was started."""

    exit_code = 2


@click.command(context_settings={"max_content_width": 110})
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where all state is kept. [default: ~/.local/share/runyard; with --demo a temporary directory]",
)
@click.option(
    "--hosts",
    type=click.IntRange(1, 50),
    help="How many hosts this machine plays.  [default: 1; with --demo 2]",
)
@click.option(
    "--listen",
    default="127.0.0.1",
    show_default=True,
    help="Address of the server and its dashboard. Off loopback the dashboard asks for a token.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of the server.  [default: any free]",
)
@click.option(
    "--demo", is_flag=True, help="Run 20 jobs with faults in between, count what is left, and end."
)
@click.option("--github", is_flag=True, help="Serve a real GitHub instead of the practice one.")
@with_options((*OPTIONS, intake("pull"), RUNNER_GROUP))
@click.option(
    "--runner",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory of an unpacked actions runner (with run.sh); needed with --github.",
)
@click.option("--plain", is_flag=True, help="Lines instead of a live picture, also on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for scripts.")
def up(
    data: Path | None,
    hosts: int | None,
    listen: str,
    port: int,
    *,
    demo: bool,
    plain: bool,
    as_json: bool,
    runner: Path | None,
    github: bool,
    github_intake: str,
    runner_group: int,
    **given: Any,
) -> None:
    """Run the whole fleet on this machine: Kubernetes API, Postgres, GitHub to practise with, server, operator, hosts.

    \b
    runyard up                       stays up until Ctrl-C; state is kept, the next start goes on
    runyard up --hosts 3             three hosts
    runyard up --github --runner ./actions-runner      the App that 'runyard github connect' made
    runyard up --demo                a minute with 20 jobs, four faults and a count of what leaked
    kubectl --kubeconfig DIR/kubeconfig get nodes,pods,runnerpools,events
    """
    real = _github(said(given), real=github, demo=demo, runner=runner)
    if real is not None:
        pull = github_intake == "pull"
        real = msgspec.structs.replace(real, pull=pull, runner_group=runner_group)
    with _directory(data, demo=demo) as root:
        options = Options(
            data=root.absolute(),
            hosts=hosts or (DEMO_HOSTS if demo else 1),
            listen=listen,
            port=port,
            demo=demo,
            github=real,
            runner=runner.absolute() if runner else None,
        )
        sys.exit(_run(options, look(plain=plain, demo=demo, as_json=as_json)))


def _github(flags: Said, *, real: bool, demo: bool, runner: Path | None) -> RealGitHub | None:
    """The real GitHub, if it is asked for; what is missing is named."""
    if not real:
        if any(_typed(name) for name in (*Said.__struct_fields__, "runner_group")):
            raise click.UsageError("a GitHub was described without --github")
        return None
    if demo:
        raise click.UsageError("--demo plays with the practice GitHub; leave --github out")
    who = speaker(flags, clock=RealClock())
    if runner is None:
        raise click.UsageError("--github needs --runner: an unpacked actions runner")
    return RealGitHub(
        url=who.url,
        ca=_whole(who.ca),
        app_id=who.app_id,
        key=_whole(who.key_file),
        token=_whole(who.token_file),
        repository=who.repository,
        secret=who.secret,
    )


def _typed(name: str) -> bool:
    """Was this flag typed? What is in the environment may be meant for other commands."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def _whole(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()


@contextlib.contextmanager
def _directory(data: Path | None, *, demo: bool) -> Iterator[Path]:
    if data is not None or not demo:
        yield data or default_root(os.environ)
        return
    name = Path(tempfile.mkdtemp(prefix="runyard-demo-"))
    failed = False
    try:
        yield name
    except SystemExit as ended:
        failed = ended.code == 1
        raise
    finally:
        if failed:  # the messages name logs in it
            click.echo(f"runyard: what the demo wrote is kept in {name}", err=True)
        else:
            shutil.rmtree(name, ignore_errors=True)


def _run(options: Options, show: Look) -> int:
    configure(level="error", json=False)
    try:
        with show:
            return asyncio.run(_live(options, show))
    except BaseExceptionGroup as group:
        return _explain(group, show)
    except (*CANNOT_BEGIN, *FAILED, OSError) as error:
        return _explain(BaseExceptionGroup("up", [error]), show)


def _explain(group: BaseExceptionGroup[BaseException], show: Look) -> int:
    """One line for what a person can act upon; anything else is a defect and keeps its traceback."""
    known, rest = group.split(
        lambda error: isinstance(error, (*CANNOT_BEGIN, *FAILED)) or _full(error)
    )
    if rest is not None or known is None:
        raise group
    first = first_of(known)
    if _full(first):
        raise CannotBegin(
            f"no space left on the disk ({first}). Free some, or choose another --data DIR"
        )
    if isinstance(first, CANNOT_BEGIN):
        raise CannotBegin(str(first))
    show.failed(str(first))
    return 1


def _full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in FULL


async def _live(options: Options, show: Look) -> int:
    clock, rng = RealClock(), random.SystemRandom()
    ending, return_code = _heed_signals(), 0
    try:
        async with running(
            options,
            clock=clock,
            rng=rng,
            log=get_logger("up"),
            environ=os.environ,
            ending=ending,
            audience=show,
        ) as machine:
            show.up(machine)
            if options.demo:
                story = tell_story(machine, clock=clock, rng=rng, tell=show.tell, show=show.jobs)
                show.outcome(await unless(ending.begun, story))
            else:
                await ending.begun.wait()
    except* ToldToEnd:
        return_code = INTERRUPTED if options.demo else 0
    return return_code


def _heed_signals() -> Ending:
    """Ctrl-C, TERM, and a terminal that was closed, unless we were told to outlive it."""
    loop, ending = asyncio.get_running_loop(), Ending()
    closed = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    for number in (signal.SIGINT, signal.SIGTERM, *closed):
        loop.add_signal_handler(number, ending.ask)
    return ending
