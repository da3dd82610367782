"""The agent of a joined host as a service on its own machine: install it, show it, and leave the main machine again.

What can be refused is refused by `planned`, before the join token is sent: a program or a directory that a service
manager cannot carry, a setting that would be lost, another agent in the same directory. There is one service for each
data directory. An agent that joined with `--no-service` has none: its user keeps it running.

Exit codes: 0 done (of `status`: the agent runs), 1 it does not run, or runners still run here, 2 it cannot be done.
"""

import asyncio
import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
import msgspec

from runyard.cli.options import Failed
from runyard.cli.servicehere import (
    CannotInstall,
    check_registry_password,
    explained,
    manager_of_user,
    service_environment,
    service_name,
    service_program,
    show_status,
)
from runyard.cli.servicelog import service_log
from runyard.cli.tables import show_json
from runyard.clock import Clock
from runyard.embedded.lock import DirectoryInUse, DirectoryLock, DirectoryStuck, is_owned
from runyard.hosts.joining.membership import Membership, MembershipFiles, NotJoined
from runyard.hosts.services.contract import Manager
from runyard.hosts.services.errors import NoManager
from runyard.hosts.services.installing import Installed, install, status, uninstall
from runyard.hosts.services.unit import Service
from runyard.vm.contract import VmError, VmState
from runyard.vm.registry import opened_before
from runyard.vm.teardown import stop_all

_GRACE = 2.0  # seconds that VMs have for their end
_RUNS = (VmState.BOOTING, VmState.RUNNING)


class Plan(msgspec.Struct, frozen=True):
    """A service that the service manager of this user can carry."""

    service: Service
    manager: Manager


def default_data() -> Path:
    """The directory of an agent that was given none."""
    return Path.home() / ".local" / "share" / "runyard-agent"


def agent_service(data: Path) -> str:
    """The name of the service with this data directory: `agent` for the default one."""
    return service_name("agent", data, default=default_data())


def agent_command(data: Path, membership: Membership) -> tuple[str, ...]:
    """The command that runs the agent of this host."""
    return (*_program(), *agent_arguments(data, membership.driver, membership.settings))


def agent_arguments(data: Path, driver: str, settings: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments of that command."""
    return (
        *("agent", "--joined", "--data", str(data)),
        *(() if driver in ("", "auto") else ("--driver", driver)),
        *settings,
        # Port 0: another agent or another program may have the default one.
        *("--listen", "127.0.0.1:0"),
    )


def _program() -> tuple[str, ...]:
    """How this program is started again, by absolute paths."""
    here = Path(sys.executable)
    command = here.with_name("runyard")
    return (str(command),) if command.exists() else (str(here), "-m", "runyard.cli.main")


def planned(arguments: tuple[str, ...], data: Path, *, driver: str, clock: Clock) -> Plan:
    """The service that runs this program with these arguments; raises `NoManager`, and refuses what cannot work."""
    manager, name = manager_of_user(clock), agent_service(data)
    observed = asyncio.run(manager.observe(name))
    if not observed.pid and is_owned(data):
        raise CannotInstall(
            f"{data} is in use by an agent that is not the service. Stop that agent and repeat this,"
            " or add --no-service"
        )
    check_registry_password(os.environ, driver)
    with explained():
        service = Service(
            name=name,
            description=f"runyard node agent in {data}",
            version=version("runyard"),
            argv=(service_program(), *arguments),
            environment=service_environment(os.environ),
            directory=str(data),
            log=str(service_log(data)),
        )
        manager.render(service)
    return Plan(service, manager)


def installed(plan: Plan, *, clock: Clock) -> Installed:
    """Install the service, or start it anew: the agent reads only at its start what joining has written."""
    return asyncio.run(install(plan.service, plan.manager, clock=clock, restart=True))


def run_status(data: Path | None, *, as_json: bool, clock: Clock) -> int:
    """Print where this machine has joined, and whether the agent runs, as a service or without; 0 if it does."""
    root = _root(data)
    files = MembershipFiles(root)
    with explained():
        found = asyncio.run(status(agent_service(root), manager_of_user(clock)))
    alone, command = not found.installed and not found.pid and is_owned(root), ""
    try:
        member = files.read()
        age = files.age(now=clock.now())
    except NotJoined as error:
        joined, line = None, str(error)
    else:
        command = shlex.join(agent_command(root, member))
        joined = {"name": member.name, "url": member.url, "credential_age": age}
        line = f"joined {member.url} as {member.name}; its credential is {_span(age)} old"
    log = str(service_log(root))
    if as_json:
        shown = {"log": log, "joined": joined, "runs_without_service": alone}
        show_json({**msgspec.to_builtins(found), **shown})
        return 0 if found.pid or alone else 1
    click.echo(line)
    if alone:
        click.echo("the agent runs, without a service")
    elif command and not found.installed and not found.pid:
        click.echo(f"the agent has no service, and does not run; to start it: {command}")
    else:
        show_status(found, install="runyard host join URL TOKEN", logs=log)
    return 0 if found.pid or alone else 1


def run_leave(data: Path | None, *, force: bool, as_json: bool, clock: Clock) -> None:
    """Remove the service, its VMs and the credential; what is gone already is no error."""
    root = _root(data)
    files = MembershipFiles(root)
    try:
        name = files.read().name
    except NotJoined:
        name = ""
    if not force:
        _check_idle(root, name or "NAME", clock)
    removed = _uninstalled(root, clock)
    left = root.is_dir() and _left(root, files, clock)
    if as_json:
        show_json({"removed": removed, "left": left, "name": name, "data": str(root)})
        return
    if not removed and not left:
        click.echo(f"{root} has no service and has joined no machine; nothing to do")
        return
    click.echo("the agent's service was removed" if removed else "no service was installed")
    click.echo(f"the credential was removed; other data is kept in {root}")
    if name:
        click.echo(f"on the main machine: runyard host remove {name}")


def where(data: Path) -> str:
    """The option that names the data directory to other commands; none is needed for the default one."""
    return "" if data == default_data() else f" --data {shlex.quote(str(data))}"


def _uninstalled(root: Path, clock: Clock) -> bool:
    try:
        manager = manager_of_user(clock)
    except NoManager:
        return False  # so nothing can be installed
    with explained():
        return asyncio.run(uninstall(agent_service(root), manager))


def _left(root: Path, files: MembershipFiles, clock: Clock) -> bool:
    """End the VMs that the service has left, and remove the credential; whether there was one."""
    with _locked(root):
        asyncio.run(_end_vms(root, clock))
        return files.remove()


async def _end_vms(root: Path, clock: Clock) -> None:
    for driver in opened_before(root / "vm", clock=clock):
        with contextlib.suppress(VmError):  # tart may be gone already
            await stop_all(driver, grace=_GRACE)


async def _running_vms(root: Path, clock: Clock) -> int:
    views = [
        view for driver in opened_before(root / "vm", clock=clock) for view in await driver.list()
    ]
    return sum(view.owned and view.state in _RUNS for view in views)


def _check_idle(root: Path, name: str, clock: Clock) -> None:
    """Refuse to end jobs."""
    try:
        running = asyncio.run(_running_vms(root, clock))
    except VmError as error:
        raise Failed(
            f"the VMs here cannot be listed: {error}. Use --force to leave all the same"
        ) from None
    if running:
        runners = "1 runner still runs" if running == 1 else f"{running} runners still run"
        raise Failed(
            f"{runners} here. On the main machine: runyard host drain {name}; or end them with --force"
        )


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    lock = DirectoryLock(root)
    try:
        lock.acquire()
    except (DirectoryInUse, DirectoryStuck) as error:
        raise Failed(f"an agent still runs here: {error}. Stop it, and repeat this") from None
    try:
        yield
    finally:
        lock.release()


def _span(seconds: float) -> str:
    hours, minutes = divmod(int(max(0.0, seconds)) // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _root(data: Path | None) -> Path:
    return (data or default_data()).absolute()
