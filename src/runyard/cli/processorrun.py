"""Runs `runyard processor`: checks settings and builds dependencies; `components.processor` is the processor."""

import contextlib
import random
import re
import shutil

from runyard.blobs.location import BadLocation
from runyard.blobs.opening import open_blobs
from runyard.cli.blobflags import location_of
from runyard.cli.lifecycle import announce, process_name, run_component, stop_on_signal
from runyard.cli.options import BadSetting
from runyard.cli.probesocket import probe_socket
from runyard.cli.processor import Flags
from runyard.cli.schema import Schema
from runyard.cli.serverfiles import database
from runyard.clock import RealClock
from runyard.components import processor as component
from runyard.db.pooled import open_pool
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger, configure, get_logger
from runyard.telemetry.meter import Meter
from runyard.xcresult.processor.deps import Deps
from runyard.xcresult.settings import MEBIBYTE, Settings

_SIZE = re.compile(r"(\d+)\s*(MB|MiB|M|GB|GiB|G)?", re.IGNORECASE)
_RESULTS_WITHIN = 120.0


def run(flags: Flags) -> None:
    """Run the processor until a signal stops it; `BadSetting` says what is wrong with the flags."""
    configure(level=flags.log_level, json=flags.as_json)
    run_component(_live(flags))


async def _live(flags: Flags) -> None:
    ending, name = stop_on_signal(), process_name(flags.name)
    log = get_logger("processor", processor=name)
    async with contextlib.AsyncExitStack() as stack:
        conninfo = database(
            "--database-url",
            flags.database_url,
            flags.database_url_file,
            why="runs and their results are kept in Postgres",
        )
        deps = await _deps(flags, conninfo, stack, log=log)
        socket = probe_socket(flags.listen, flags.metrics_token_file, clock=deps.clock)
        stack.callback(socket.sock.close)
        schema = Schema(conninfo, apply=flags.migrate, clock=deps.clock, log=log)

        def ready(urls: tuple[str, ...]) -> None:
            text = f"processing as {name}, metrics at {urls[0]}/metrics"
            announce(text, as_json=flags.as_json, event="processing", url=urls[0], name=name)

        await component.serve(deps, (socket,), prepare=schema.wait, ready=ready, ending=ending)


async def _deps(
    flags: Flags, conninfo: str, stack: contextlib.AsyncExitStack, *, log: Logger
) -> Deps:
    clock, rng = RealClock(), random.SystemRandom()
    place = location_of(
        _needed_place(flags.blobs),
        endpoint=flags.blobs_endpoint,
        region=flags.blobs_region,
        credentials_file=flags.blobs_credentials_file,
    )
    try:
        blobs = open_blobs(place, clock=clock)
    except BadLocation as error:
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
    return Deps(
        name=process_name(flags.name),
        database=pools[0],
        results=pools[1],
        pools=pools,
        blobs=blobs,
        clock=clock,
        rng=rng,
        meter=Meter(),
        log=log,
        settings=settings,
        health=Health(clock, component.CONDITIONS),
        freshness=Freshness(clock),
        finish_within=flags.finish_within,
    )


def settings_of(flags: Flags) -> Settings:
    """Settings of the processor from the options; raises `BadSetting`."""
    tool = ""
    if flags.verify_with_xcresulttool:
        tool = shutil.which("xcrun") or ""
        if not tool:
            raise BadSetting(
                "--verify-with-xcresulttool: xcrun was not found. Install Xcode on this Mac, or remove the flag"
            )
    try:
        flags.scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BadSetting(
            f"--scratch: {flags.scratch} cannot be used ({error.strerror}). Use a directory that you can write to"
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
        raise BadSetting(f"{flag}: {text!r} is not a size. Write it as 512MiB or 2GiB")
    unit = MEBIBYTE * (1024 if (match[2] or "M").upper().startswith("G") else 1)
    return int(match[1]) * unit


def _needed_place(blobs: str) -> str:
    if not blobs:
        raise BadSetting(
            "--blobs is missing: it is the object storage of uploads and attachments."
            " Write s3://BUCKET/PREFIX or a directory"
        )
    return blobs
