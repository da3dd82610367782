"""Runs `runyard host join` on the other machine: checks it, joins, and starts the agent.

Everything that can fail without the main machine is checked first, because a token can be used once: the token's form,
the name, the directory, and how VMs would be isolated here.
"""

import asyncio
import os
import random
import re
import shlex
import socket
import sys
from pathlib import Path

import click
import msgspec

from runyard.cli.cluster import labels_of
from runyard.cli.options import BadSetting, Failed
from runyard.clock import RealClock
from runyard.hosts.joining import enrolling
from runyard.hosts.joining.client import JoinFailed, base_url
from runyard.hosts.joining.membership import Membership, MembershipFiles
from runyard.hosts.services.errors import NoManager, ServiceError
from runyard.hosts.services.here import manager_here
from runyard.hosts.services.installing import Installed, install
from runyard.hosts.services.unit import Service
from runyard.vm.contract import VmError
from runyard.vm.registry import Choice, Wanted, open_driver
from runyard.wire.joining import JoinToken, is_host_name, parse_token
from runyard.wire.reasons import render

_STDIN = "-"
_LONGEST_NAME = 40


class JoinFlags(msgspec.Struct, frozen=True, kw_only=True):
    """How to join, as the flags say it."""

    url: str
    token: str
    name: str
    data: Path | None
    driver: Choice
    labels: str


def join(flags: JoinFlags, *, service: bool, as_json: bool) -> None:
    """Join, and start the agent."""
    output = _Output(as_json)
    token, name, data = _token(flags.token), _name(flags.name), _data(flags.data)
    labels_of("--labels", flags.labels)
    files = MembershipFiles(data)
    machine = _prepared(files)
    try:
        url = base_url(flags.url)
        output.say("driver", f"driver: {asyncio.run(_probed(data, flags.driver))}")
        given = asyncio.run(enrolling.join(url, token, name=name, machine=machine))
    except JoinFailed as error:
        raise Failed(str(error)) from None
    membership = files.write(given, labels=flags.labels, driver=flags.driver)
    output.say("joined", f"joined {membership.url} as {membership.name}", name=membership.name)
    command = agent_command(data, membership)
    if service:
        _installed(command, membership, data, output)
    else:
        output.command(command)


def agent_command(data: Path, membership: Membership) -> tuple[str, ...]:
    """The command that runs the agent of this host."""
    driver = () if membership.driver in ("", "auto") else ("--driver", membership.driver)
    # Port 0: another agent or another program may have the default one.
    return (
        *_program(),
        "agent",
        "--joined",
        "--data",
        str(data),
        *driver,
        "--listen",
        "127.0.0.1:0",
    )


class _Output:
    """Prints lines, or one JSON object per line."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json

    def say(self, event: str, text: str, **more: object) -> None:
        """Print what happened."""
        line = {"event": event, "message": text, **more}
        click.echo(msgspec.json.encode(line).decode() if self._json else text)

    def command(self, argv: tuple[str, ...], why: str = "") -> None:
        """Print the command that the user must run."""
        shown = shlex.join(argv)
        before = f"{why}. " if why else ""
        text = f"{before}Start the agent, and keep it running: {shown}"
        self.say("start", text, command=list(argv))


def _token(text: str) -> JoinToken:
    given = sys.stdin.readline() if text == _STDIN else text
    token = parse_token(given)
    if token is None:
        raise BadSetting(
            "the token is not complete. Copy the whole line that 'runyard host token' printed"
        )
    return token


def _name(given: str) -> str:
    if given:
        if is_host_name(given):
            return given
        raise BadSetting(
            f"--name: {given!r} cannot be a host's name. Use at most 40 lower-case letters, digits and '-'"
        )
    own = socket.gethostname().partition(".")[0].lower()
    name = re.sub(r"[^a-z0-9-]", "-", own).strip("-")[:_LONGEST_NAME].strip("-")
    if not is_host_name(name):
        raise BadSetting(
            f"this machine's name {own!r} cannot be a host's name. Choose one with --name"
        )
    return name


def _data(given: Path | None) -> Path:
    return (given or Path.home() / ".local" / "share" / "runyard-agent").absolute()


def _prepared(files: MembershipFiles) -> str:
    """Make the directory; returns the identifier of this machine."""
    data = files.folder.parent
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        return files.machine(random.SystemRandom())
    except OSError as error:
        raise BadSetting(
            f"--data: {data} cannot be used ({error.strerror}). Use a directory that you can write to"
        ) from None


async def _probed(data: Path, driver: Choice) -> str:
    """How VMs are run and isolated on this machine."""
    try:
        opened = await open_driver(Wanted(home=data / "vm", driver=driver), clock=RealClock())
    except VmError as error:
        raise BadSetting(f"--driver {driver}: {error}") from None
    words = f"{opened.name} ({render(opened.why)})"
    return f"{words}; isolation: {opened.detail}" if opened.detail else words


def _installed(
    command: tuple[str, ...], membership: Membership, data: Path, output: _Output
) -> None:
    """Install the service; without a service manager, print the command instead."""
    try:
        done = asyncio.run(_install(command, data))
    except NoManager as error:
        output.command(command, f"no service is installed: {error}")
        return
    except ServiceError as error:
        fix = f"This machine has joined; start the agent with: {shlex.join(command)}"
        raise Failed(f"the service cannot be installed: {error}. {fix}") from None
    output.say(
        "service",
        f"service {done.change}: {done.name}, process {done.pid}; its log: {done.log}",
        change=done.change,
        service=done.name,
        pid=done.pid,
    )
    output.say("next", "on the main machine: runyard host list")


async def _install(command: tuple[str, ...], data: Path) -> Installed:
    from importlib.metadata import version

    clock = RealClock()
    manager = manager_here(
        dict(os.environ), platform=sys.platform, home=Path.home(), uid=os.getuid(), clock=clock
    )
    service = Service(
        name="agent",
        description="runyard node agent",
        version=version("runyard"),
        argv=command,
        environment={"PATH": os.environ.get("PATH", os.defpath)},
        directory=str(data),
        log=str(data / "agent.log"),
    )
    return await install(service, manager, clock=clock)


def _program() -> tuple[str, ...]:
    """How this program is started again, by absolute paths."""
    here = Path(sys.executable)
    command = here.with_name("runyard")
    return (str(command),) if command.exists() else (str(here), "-m", "runyard.cli.main")
