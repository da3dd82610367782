"""Runs `runyard up`: parses options and prints; `embedded.up` does the rest."""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from runyard.cli.github_auth import GithubIdentity, github_identity
from runyard.cli.githubcheck import usable
from runyard.cli.githubflags import GithubFlags
from runyard.cli.options import BadSetting
from runyard.cli.pollerflags import check_no_vm_options
from runyard.cli.serverfiles import address
from runyard.cli.servicelog import service_log
from runyard.cli.up_output import UpOutput, up_output
from runyard.cli.upgithub import report_checks, up_checks
from runyard.clock import RealClock
from runyard.embedded.lock import DirectoryInUse, DirectoryStuck
from runyard.embedded.postgres.errors import EmbeddedPostgresError
from runyard.embedded.up.database import BadDatabase
from runyard.embedded.up.demo.faults import NotRecovered
from runyard.embedded.up.demo.run import run_scenario
from runyard.embedded.up.demo.scenario import DemoFailed
from runyard.embedded.up.hosts import PODS
from runyard.embedded.up.layout import FULL, BadDirectory, default_root
from runyard.embedded.up.lifecycle import running
from runyard.embedded.up.login import login_url
from runyard.embedded.up.machine import Options, RealGitHub
from runyard.embedded.up.ports import PortTaken
from runyard.embedded.up.shutdown import Shutdown, ShutdownRequested, unless
from runyard.embedded.up.supervisor import ComponentFailed
from runyard.http.tls import TlsError
from runyard.telemetry.causes import first_of
from runyard.telemetry.log import configure, get_logger
from runyard.vm.archives import Archive, BadArchive, check_file
from runyard.vm.contract import VmError
from runyard.vm.oci.reference import InvalidReference, parse
from runyard.vm.registry import Choice, Chosen, DriverName, check_named, choose
from runyard.wire.reasons import Reason, render

CANNOT_BEGIN = (
    DirectoryInUse,
    DirectoryStuck,
    BadDirectory,
    PortTaken,
    EmbeddedPostgresError,
    TlsError,
    BadDatabase,
    BadArchive,
)
FAILED = (ComponentFailed, DemoFailed, NotRecovered)
_LAST_PORT = 65535
INTERRUPTED = 130  # as shells expect it


class CannotBegin(click.ClickException):
    """The machine or the command line prevents a start; nothing was started."""

    exit_code = 2


class UpFlags(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, as the flags say it; `github` is None for the practice GitHub."""

    data: Path | None
    hosts: int
    listen: str
    joining: bool
    demo: bool
    runner: str  # a directory, an archive or a URL
    runner_sha256: str = ""
    runner_directory: str = ""  # in VMs
    github: GithubFlags | None
    pull: bool
    runner_group: int
    service: bool = False  # started by a service manager
    driver: Choice = "auto"
    tart: str = "tart"
    vm_slots: int = PODS
    image: str = ""
    insecure: tuple[str, ...] = ()


def run(flags: UpFlags, *, plain: bool, as_json: bool) -> int:
    """Run the fleet until a signal stops it; returns the exit code."""
    # `BadSetting` names what is missing.
    who = None if flags.github is None else github_identity(flags.github, clock=RealClock())
    host, port = listen_address(flags)
    driver, why = chosen_driver(flags)
    with _directory(flags.data, demo=flags.demo) as root:
        options = Options(
            data=root.absolute(),
            hosts=flags.hosts,
            listen=host,
            port=port,
            joining=flags.joining,
            demo=flags.demo,
            github=None if who is None else real_github(who, flags),
            runner=Path(flags.runner) if flags.runner and driver == "process" else None,
            archive=_archive(flags) if driver == "tart" else None,
            runner_directory=flags.runner_directory,
            keep_vms=flags.service,
            driver=driver,
            tart=flags.tart,
            vm_slots=flags.vm_slots,
            driver_given=flags.driver != "auto",
            image=flags.image,
            insecure=flags.insecure,
        )
        log = service_log(root) if flags.service else None
        show = up_output(plain=plain, demo=flags.demo, as_json=as_json, service_log=log)
        code = _run(options, show, who, why)
        if code == 1:
            raise SystemExit(code)  # the directory of a failed demo is kept
        return code


def listen_address(flags: UpFlags) -> tuple[str, int]:
    """The host and the port of `--listen`; `BadSetting` if there is no next port, at which hosts join."""
    host, port = address("--listen", flags.listen)
    if flags.joining and port == _LAST_PORT:
        raise BadSetting(
            f"--listen: hosts join at the next port, and there is none after {port}. Choose a lower one"
        )
    return host, port


def chosen_driver(flags: UpFlags) -> tuple[DriverName, Reason]:
    """The driver of the machine's hosts, and why; a demo runs processes. `BadSetting` if options contradict it."""
    if flags.demo:
        return "process", Chosen.DRIVER_NAMED.because()
    driver, why = asyncio.run(choose(flags.driver, tart=flags.tart, clock=RealClock()))
    if flags.runner and Path(flags.runner).is_dir() is (driver == "tart"):  # a URL is no directory
        kind = "an archive (.tar.gz)" if driver == "tart" else "a directory"
        raise BadSetting(
            f"--runner: the driver {driver} needs {kind}, this is none: {flags.runner}"
        )
    if driver == "process":
        _check_processes(flags, why)
    else:
        _check_vms(flags, why)
    return driver, why


def _check_processes(flags: UpFlags, why: Reason) -> None:
    """Refuse what hosts that run processes cannot use."""
    if flags.image:
        raise BadSetting(
            f"--image: hosts run processes, which use no VM image ({render(why)})."
            " Install tart, or remove --image"
        )
    slots = None if flags.vm_slots == PODS else flags.vm_slots
    check_no_vm_options(why, slots=slots, directory=flags.runner_directory)
    if flags.github is not None and not flags.runner:
        raise BadSetting(
            "--github needs --runner, an unpacked actions runner, where hosts run processes"
            f" ({render(why)}). Give it, or install tart"
        )
    if flags.runner_sha256:
        raise BadSetting("--runner-sha256 is of an archive, which only VMs need. Remove it")


def _check_vms(flags: UpFlags, why: Reason) -> None:
    """Refuse what hosts that run VMs cannot use, and a tart that was named and is not there."""
    if flags.hosts > 1:
        raise BadSetting(
            f"--hosts {flags.hosts}: hosts run VMs ({render(why)}), and macOS runs two macOS VMs at once on one Mac,"
            " however many hosts it acts as. Remove --hosts; a second Mac joins with 'runyard host join'; or give"
            " --driver process"
        )
    if flags.image:
        try:
            parse(flags.image)
        except InvalidReference as error:
            raise BadSetting(f"--image: {error}") from None
    if _archive(flags) is not None and flags.github is None:
        raise BadSetting(
            "--runner: the practice GitHub has a runner of its own, and VMs get that one. Remove --runner, or use the"
            " real GitHub with --github"
        )
    try:
        asyncio.run(check_named(flags.driver, tart=flags.tart, clock=RealClock()))
    except VmError as error:
        raise BadSetting(
            f"--driver tart: {error}. Or give --driver process: jobs then run as processes of this user"
        ) from None


def _archive(flags: UpFlags) -> Archive | None:
    """The archive that `--runner` names, for VMs; `BadSetting` if it cannot be one."""
    if not flags.runner:
        if flags.runner_sha256:
            raise BadSetting("--runner-sha256 is of the archive that --runner names. Give that too")
        return None
    archive = Archive(source=flags.runner, sha256=flags.runner_sha256)
    try:
        check_file(archive)
    except BadArchive as error:
        raise BadSetting(f"--runner, --runner-sha256: {error}") from None
    return archive


def real_github(who: GithubIdentity, flags: UpFlags) -> RealGitHub:
    """The real GitHub that the flags describe."""
    return RealGitHub(
        url=who.url,
        ca=_absolute(who.ca),
        app_id=who.app_id,
        key=_absolute(who.key_file),
        token=_absolute(who.token_file),
        repository=who.repository,
        secret=who.secret,
        pull=flags.pull,
        runner_group=flags.runner_group,
    )


def _absolute(path: Path | None) -> Path | None:
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
            click.echo(f"runyard: files of the demo are kept in {name}", err=True)
        else:
            shutil.rmtree(name, ignore_errors=True)


def _run(options: Options, show: UpOutput, who: GithubIdentity | None, why: Reason) -> int:
    configure(level="error", json=False)
    try:
        with show:
            show.report(f"driver: {options.driver} ({render(why)})")
            return asyncio.run(_live(options, show, who))
    except BaseExceptionGroup as group:
        return _explain(group, show)
    except (*CANNOT_BEGIN, *FAILED, OSError) as error:
        return _explain(BaseExceptionGroup("up", [error]), show)


def _explain(group: BaseExceptionGroup[BaseException], show: UpOutput) -> int:
    """Print one line for expected errors; any other is a defect and keeps its traceback."""
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


async def _live(options: Options, show: UpOutput, who: GithubIdentity | None) -> int:
    clock, rng = RealClock(), random.SystemRandom()
    shutdown, return_code = _stop_on_signals(), 0
    try:
        if who is not None and options.github is not None:
            show.report(f"checking {who.url}")
            checks = up_checks(who, options.github, clock=clock)
            lines = await unless(shutdown.begun, checks)
            show.github_usable = usable(lines)
            report_checks(lines, show.check)
        async with running(
            options,
            clock=clock,
            rng=rng,
            log=get_logger("up"),
            environ=os.environ,
            shutdown=shutdown,
            listener=show,
        ) as machine:
            show.up(machine, await login_url(machine))
            if options.demo:
                story = run_scenario(machine, clock=clock, rng=rng, listener=show)
                show.outcome(await unless(shutdown.begun, story))
            else:
                await shutdown.begun.wait()
    except* ShutdownRequested:
        return_code = INTERRUPTED if options.demo else 0
    return return_code


def _stop_on_signals() -> Shutdown:
    """Stop on SIGINT, SIGTERM and a closed terminal, unless SIGHUP is ignored (nohup)."""
    loop, shutdown = asyncio.get_running_loop(), Shutdown()
    closed = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    for number in (signal.SIGINT, signal.SIGTERM, *closed):
        loop.add_signal_handler(number, shutdown.request)
    return shutdown
