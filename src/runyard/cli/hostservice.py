"""The agent of a joined host as a service on its own machine: install it, show it, and leave the main machine again.

What can be refused is refused by `planned`, before the join token is sent: a program or a directory that a service
manager cannot carry, a setting that would be lost, another agent in the same directory. There is one service for each
data directory.

Exit codes: 0 done (of `status`: the agent runs), 1 it does not run, or runners still run here, 2 it cannot be done.
"""

import asyncio
import contextlib
import os
import shlex
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
from runyard.hosts.joining.membership import MembershipFiles, NotJoined
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
    """Print where this machine has joined, and what the agent's service does; the exit code is 0 if that runs."""
    root = _root(data)
    files = MembershipFiles(root)
    with explained():
        found = asyncio.run(status(agent_service(root), manager_of_user(clock)))
    try:
        member = files.read()
        age = files.age(now=clock.now())
    except NotJoined as error:
        joined, line = None, str(error)
    else:
        joined = {"name": member.name, "url": member.url, "credential_age": age}
        line = f"joined {member.url} as {member.name}; its credential is {_span(age)} old"
    log = str(service_log(root))
    if as_json:
        show_json({**msgspec.to_builtins(found), "log": log, "joined": joined})
        return 0 if found.pid else 1
    click.echo(line)
    show_status(found, install="runyard host join URL TOKEN", logs=log)
    return 0 if found.pid else 1


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
