"""`runyard processor`: turns uploaded result bundles into rows, on any machine.

The command line only reads what it is told and brings the pieces; `parts.processor` is the processor. Exit code 0 when
it was told to end, 1 when it failed, 2 when it could not begin: a bad setting is one line with its cause and its fix.
"""

import contextlib
import random
import re
import shutil
from pathlib import Path
from typing import Any

import click
import msgspec

from runyard.blobs.place import BadPlace, open_blobs
from runyard.cli.blobflags import BLOBS, place_of
from runyard.cli.living import LOGGING, ending_by_signal, live, name_of, say
from runyard.cli.server import Schema
from runyard.cli.serverfiles import BadSetting, bound, database
from runyard.cli.serverflags import DATABASE
from runyard.cli.speaking import Option, with_options
from runyard.clock import RealClock
from runyard.db.pooled import open_pool
from runyard.parts.processor import Processor, ProcessorDeps
from runyard.telemetry.log import Logger, configure, get_logger
from runyard.xcresult.settings import MEBIBYTE, Settings

_SIZE = re.compile(r"(\d+)\s*(MB|MiB|M|GB|GiB|G)?", re.IGNORECASE)
_RESULTS_WITHIN = 120.0


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was said on the command line or in the environment."""

    database_url: str
    database_url_file: Path | None
    database_connections: int
    migrate: bool
    blobs: str
    blobs_endpoint: str
    blobs_region: str
    blobs_credentials_file: Path | None
    scratch: Path
    slots: int
    memory: str
    reserve: str
    poll: float
    finish_within: float
    verify_with_xcresulttool: bool
    listen: str
    name: str
    as_json: bool
    log_level: str


WORK: tuple[Option, ...] = (
    click.option(
        "--scratch",
        envvar="RUNYARD_SCRATCH",
        type=click.Path(file_okay=False, path_type=Path),
        default=lambda: Path.home() / ".cache" / "runyard" / "processor",
        show_default="~/.cache/runyard/processor",
        help="Directory for everything that is written to disk; processors of one machine may share it.",
    ),
    click.option(
        "--slots",
        envvar="RUNYARD_SLOTS",
        type=click.IntRange(1, 64),
        default=2,
        show_default=True,
        help="How many runs at once; each takes a processor core.",
    ),
    click.option(
        "--memory",
        envvar="RUNYARD_MEMORY",
        default="2GiB",
        show_default=True,
        help="How much memory reading one bundle may take (Linux).",
    ),
    click.option(
        "--reserve",
        envvar="RUNYARD_RESERVE",
        default="512MiB",
        show_default=True,
        help="Free space that stays on the filesystem of --scratch; with less, runs are left to others.",
    ),
    click.option(
        "--poll",
        envvar="RUNYARD_POLL",
        type=click.FloatRange(0.05, 60.0),
        default=1.0,
        show_default=True,
        help="Seconds between two looks into an empty queue.",
    ),
    click.option(
        "--finish-within",
        envvar="RUNYARD_FINISH_WITHIN",
        type=click.FloatRange(0.0, 660.0),
        default=25.0,
        show_default=True,
        help="Seconds that runs in work have to finish after SIGTERM; then they are given back.",
    ),
    click.option(
        "--verify-with-xcresulttool",
        envvar="RUNYARD_VERIFY_WITH_XCRESULTTOOL",
        is_flag=True,
        help="On a Mac with Xcode: compare each result with what Apple's own tool says, count and log differences.",
    ),
)
REST: tuple[Option, ...] = (
    click.option(
        "--listen",
        envvar="RUNYARD_LISTEN",
        default="0.0.0.0:9091",
        show_default=True,
        help="HOST:PORT of /metrics, /healthz and /readyz; port 0 is any free one.",
    ),
    click.option(
        "--name",
        envvar="RUNYARD_NAME",
        default="",
        help="What it is called in leases and logs.  [default: HOSTNAME-PID]",
    ),
    *LOGGING,
)
_POSTGRES = (
    *DATABASE[:2],
    *DATABASE[4:],
)  # it hears of work by looking, so it needs no way past a pooler


@click.command(context_settings={"max_content_width": 110})
@with_options((*_POSTGRES, *BLOBS, *WORK, *REST))
def processor(**given: Any) -> None:
    """Process uploaded Xcode result bundles; any number of processors may share one Postgres.

    It takes runs from the queue, reads their bundles (no Mac and no Xcode needed), and writes modules, suites, cases,
    failures, attachments and coverage into Postgres. A run whose processor dies is taken over within 30 s. SIGTERM
    lets what is in work finish and gives the rest back.

    \b
    runyard processor --database-url-file db.url --blobs s3://results --blobs-region eu-central-1
    runyard processor --database-url postgresql://localhost/runyard --blobs /srv/blobs --scratch /mnt/fast
    curl localhost:9091/readyz            what it waits for, and what is wrong
    """
    flags = msgspec.convert(given, Flags)
    configure(level=flags.log_level, json=flags.as_json)
    live(_live(flags))


async def _live(flags: Flags) -> None:
    ending, name = ending_by_signal(), name_of(flags.name)
    log = get_logger("processor", processor=name)
    async with contextlib.AsyncExitStack() as stack:
        conninfo = database(
            "--database-url",
            flags.database_url,
            flags.database_url_file,
            why="runs and their results are kept in Postgres",
        )
        deps = await _deps(flags, conninfo, stack, log=log)
        sock = bound(flags.listen)
        stack.callback(sock.close)
        schema = Schema(conninfo, apply=flags.migrate, clock=deps.clock, log=log)
        await Processor(deps).run(
            ending=ending,
            sock=sock,
            prepare=schema.there,
            ready=lambda url: say(
                f"processing as {name}, numbers at {url}/metrics",
                as_json=flags.as_json,
                event="processing",
                url=url,
                name=name,
            ),
        )


async def _deps(
    flags: Flags, conninfo: str, stack: contextlib.AsyncExitStack, *, log: Logger
) -> ProcessorDeps:
    clock, rng = RealClock(), random.SystemRandom()
    place = place_of(
        _needed_place(flags.blobs),
        endpoint=flags.blobs_endpoint,
        region=flags.blobs_region,
        credentials_file=flags.blobs_credentials_file,
    )
    try:
        blobs = open_blobs(place, clock=clock)
    except BadPlace as error:
        raise BadSetting(f"--blobs: {error}") from None
    settings = settings_of(flags)
    control = open_pool(conninfo, clock=clock, rng=rng, max_size=flags.database_connections)
    results = open_pool(
        conninfo,
        clock=clock,
        rng=rng,
        max_size=max(2, min(flags.slots, flags.database_connections)),
        deadline=settings.results_within,
    )
    pools = (await stack.enter_async_context(control), await stack.enter_async_context(results))
    return ProcessorDeps(
        name=name_of(flags.name),
        clock=clock,
        rng=rng,
        log=log,
        settings=settings,
        database=pools[0],
        results=pools[1],
        pools=pools,
        blobs=blobs,
        finish_within=flags.finish_within,
    )


def settings_of(flags: Flags) -> Settings:
    """How the processor is set up by these flags; `BadSetting` says what is wrong with them."""
    tool = ""
    if flags.verify_with_xcresulttool:
        tool = shutil.which("xcrun") or ""
        if not tool:
            raise BadSetting(
                "--verify-with-xcresulttool: xcrun was not found. Install Xcode on this Mac, or leave the flag out"
            )
    try:
        flags.scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BadSetting(
            f"--scratch: {flags.scratch} cannot be used ({error.strerror}). Name a directory of your own"
        ) from None
    return Settings(
        scratch=flags.scratch.absolute(),
        slots=flags.slots,
        poll=flags.poll,
        memory=size_of("--memory", flags.memory),
        reserve=size_of("--reserve", flags.reserve),
        results_within=_RESULTS_WITHIN,
        verify_with=tool,
    )


def size_of(flag: str, text: str) -> int:
    """Bytes: `512MiB`, `2G`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise BadSetting(f"{flag}: {text!r} is no size. Write it as 512MiB or 2GiB")
    unit = MEBIBYTE * (1024 if (match[2] or "M").upper().startswith("G") else 1)
    return int(match[1]) * unit


def _needed_place(blobs: str) -> str:
    if not blobs:
        raise BadSetting(
            "--blobs is missing: uploads are read from there, and attachments are kept there."
            " Write s3://BUCKET/PREFIX or a directory"
        )
    return blobs
