"""`runyard up --install`, `--uninstall` and `--status`: the machine as a service that starts at boot.

The options are checked as `runyard up` checks them, the real GitHub included, before the service is touched. What is
then installed runs the same command with `--service`. There is one service for each data directory.

Exit codes: 0 done (for `--status`: it runs), 1 it did not stay alive or does not run, 2 it cannot be installed here.
"""

import asyncio
import os
import shlex
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import click
import msgspec

from runyard.cli.github_auth import github_identity
from runyard.cli.serviceargs import Given
from runyard.cli.servicehere import (
    CannotInstall,
    boot_words,
    check_registry_password,
    explained,
    manager_of_user,
    service_environment,
    service_program,
    show_status,
)
from runyard.cli.servicehere import service_name as shared_service_name
from runyard.cli.servicelog import service_log
from runyard.cli.tables import show_json
from runyard.cli.upgithub import report_checks, up_checks
from runyard.cli.uprun import UpFlags, chosen_driver, listen_address, real_github
from runyard.clock import Clock
from runyard.embedded.lock import DirectoryInUse, DirectoryLock, DirectoryStuck, is_owned
from runyard.embedded.up.hosts import wanted_isolation
from runyard.embedded.up.layout import Layout, default_root
from runyard.embedded.up.machine import stop_vms
from runyard.hosts.services.contract import AtBoot, Manager
from runyard.hosts.services.installing import Installed, install, status, uninstall
from runyard.hosts.services.unit import Service
from runyard.vm.archives import Archive, BadArchive

_STAYS = 10.0  # seconds: most starts that fail do so earlier
_GRACE = 2.0  # seconds that VMs have for their end


def run_install(flags: UpFlags, given: Given, *, as_json: bool, clock: Clock) -> None:
    """Install `runyard up` with these flags as a service, and print what was done."""
    root = _root(flags.data)
    driver, _ = chosen_driver(flags)
    _check_runner(flags)
    check_registry_password(os.environ, driver)
    done = asyncio.run(_install(flags, given, root, clock, quiet=as_json))
    manager = _manager(clock)
    boot = asyncio.run(manager.at_boot(service_name(root)))
    if as_json:
        show_json({**msgspec.to_builtins(done), "at_boot": msgspec.to_builtins(boot)})
        return
    _print_installed(done, boot, manager, root)


def run_uninstall(data: Path | None, *, as_json: bool, clock: Clock) -> None:
    """Stop and remove the service; the data stays."""
    root = _root(data)
    manager, name = _manager(clock), service_name(root)
    with explained():
        removed = asyncio.run(uninstall(name, manager))
    if removed and root.is_dir():
        _end_vms(root, clock)
    if as_json:
        show_json({"removed": removed, "name": manager.handle(name), "data": str(root)})
        return
    done = "was stopped and removed" if removed else "is not installed: nothing to do"
    click.echo(f"{manager.handle(name)} {done}")
    if root.is_dir():
        click.echo(f"all data is kept in {root}; remove that directory to remove it, too")


def run_status(data: Path | None, *, as_json: bool, clock: Clock) -> int:
    """Print what the service does; the exit code is 0 if it runs."""
    root = _root(data)
    with explained():
        found = asyncio.run(status(service_name(root), _manager(clock)))
    if as_json:
        show_json({**msgspec.to_builtins(found), "log": str(service_log(root))})
    else:
        where = _where(root)
        show_status(found, install=f"runyard up --install{where}", logs=_logs(root))
    return 0 if found.pid else 1


def service_name(root: Path) -> str:
    """The service of a data directory: `up` for the default one, else a name with its last part and a hash."""
    return shared_service_name("up", root, default=Path.home() / ".local" / "share" / "runyard")


def service_of(root: Path, given: Given, *, environ: Mapping[str, str]) -> Service:
    """`runyard up` with what it was given, as a service."""
    return Service(
        name=service_name(root),
        description=f"runyard up in {root}",
        version=version("runyard"),
        argv=(service_program(), "up", f"--data={root}", "--service", "--plain", *given.arguments),
        environment={**service_environment(environ), **given.environment},
        directory=str(root),
        log=str(service_log(root)),
    )


async def _install(
    flags: UpFlags, given: Given, root: Path, clock: Clock, *, quiet: bool
) -> Installed:
    environ = os.environ
    with explained():
        _check_environment(environ)
        listen_address(flags)
        if flags.github is not None:
            await _check_github(flags, clock, quiet=quiet)
        service, manager = service_of(root, given, environ=environ), _manager(clock)
        runs = (await manager.observe(service.name)).pid
        if not runs and is_owned(root):
            raise CannotInstall(
                f"{root} is in use by a 'runyard up' that is not the service. End it (Ctrl-C), and repeat this"
            )
        Layout(root).prepare()
        return await install(service, manager, clock=clock, stays=_STAYS)


def _check_runner(flags: UpFlags) -> None:
    """Refuse a URL with a secret, which the service's file would show."""
    try:
        Archive(source=flags.runner).check_public()
    except BadArchive as error:
        raise CannotInstall(f"--runner: {error}") from None


def _check_environment(environ: Mapping[str, str]) -> None:
    wanted_isolation(environ)
    if environ.get("DATABASE_URL"):
        raise CannotInstall(
            "DATABASE_URL is set, and a service has no safe place for the password in it. Unset it: the service"
            " then runs its own Postgres. Or start `runyard up` yourself"
        )


async def _check_github(flags: UpFlags, clock: Clock, *, quiet: bool) -> None:
    assert flags.github is not None
    who = github_identity(flags.github, clock=clock)
    lines = await up_checks(who, real_github(who, flags), clock=clock)
    report_checks(lines, lambda line: click.echo(f"{line.verdict}: {line.sentence()}", err=quiet))


def _end_vms(root: Path, clock: Clock) -> None:
    """End the VMs that the service has left for a next start, unless another `runyard up` has them now."""
    lock = DirectoryLock(root)
    try:
        lock.acquire()
    except (DirectoryInUse, DirectoryStuck) as error:
        click.echo(f"runyard: VMs were left alone: {error}", err=True)
        return
    try:
        if Layout(root).hosts.is_dir():
            asyncio.run(stop_vms(Layout(root), clock=clock, grace=_GRACE))
    finally:
        lock.release()


def _root(data: Path | None) -> Path:
    return (data or default_root(os.environ)).absolute()


def _manager(clock: Clock) -> Manager:
    with explained():
        return manager_of_user(clock)


def _print_installed(done: Installed, boot: AtBoot, manager: Manager, root: Path) -> None:
    words = {
        "unchanged": "already runs with these options,",
        "installed": "was installed and runs",
        "replaced": "was replaced and runs",
        "started": "was installed already; now it runs",
        "restarted": "was started again and runs",
    }
    where = _where(root)
    restart, account = manager.commands(service_name(root))
    click.echo(f"{done.name} {words[done.change]} as process {done.pid}")
    click.echo(f"file:      {done.path}")
    click.echo(f"logs:      {_logs(root)}")
    click.echo(f"at boot:   {boot_words(boot)}")
    click.echo(f"status:    runyard up --status{where}; {account}")
    click.echo(f"restart:   {restart}")
    click.echo(f"dashboard: runyard dashboard{where}")
    click.echo(f"remove:    runyard up --uninstall{where}")


def _logs(root: Path) -> str:
    return f"{service_log(root)}; of its components: {root}/logs/"


def _where(root: Path) -> str:
    """The option that names the data directory to other commands; none is needed for the default one."""
    return "" if root == default_root(os.environ) else f" --data {shlex.quote(str(root))}"
