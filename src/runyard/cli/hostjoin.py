"""Runs `runyard host join` on the other machine: checks it, joins, and starts the agent.

Everything that can fail without the main machine is checked first, because a token can be used once: the token's form,
the name, the URL, the directory, how VMs would be isolated here, the Actions runner, and the service that will run the
agent. Then the main machine is asked what it wants of its hosts, still without the token's secret; and last, whether
the disk takes what the main machine will give.

Invariant: joining again replaces everything that an earlier join has written, and starts the agent's service anew.
"""

import asyncio
import errno
import os
import random
import re
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from runyard.cli import hostservice
from runyard.cli.options import BadSetting, Failed, labels_of
from runyard.cli.pollerflags import check_no_vm_options
from runyard.cli.servicehere import boot_words, show_said
from runyard.clock import Clock, RealClock
from runyard.embedded.lock import is_owned
from runyard.embedded.up import images
from runyard.embedded.up.hosts import wanted_isolation
from runyard.embedded.up.layout import FULL, BadDirectory, Layout
from runyard.hosts.joining import enrolling
from runyard.hosts.joining.client import JoinFailed, base_url
from runyard.hosts.joining.enrolling import MainMachine
from runyard.hosts.joining.membership import Joined, Membership, MembershipFiles
from runyard.hosts.services.errors import NoManager, ServiceError
from runyard.vm.archives import Archive, BadArchive, check_file
from runyard.vm.contract import VmError
from runyard.vm.registry import Choice, Opened, Wanted, open_driver
from runyard.wire.joining import JoinToken, is_host_name, is_reserved_name, parse_token
from runyard.wire.reasons import render

_STDIN = "-"
_LONGEST_NAME = 40


class JoinFlags(msgspec.Struct, frozen=True, kw_only=True):
    """How to join, as the flags say it."""

    url: str
    token: str
    name: str = ""
    data: Path | None = None
    driver: Choice = "auto"
    labels: str = ""
    runner: str = ""  # a directory, an archive or a URL
    runner_sha256: str = ""
    runner_directory: str = ""  # in the VMs
    tart: str = "tart"
    slots: int | None = None
    insecure: tuple[str, ...] = ()


def join(flags: JoinFlags, *, service: bool, as_json: bool, clock: Clock) -> None:
    """Join, and start the agent."""
    output = _Output(as_json)
    token, name, url = _token(flags.token), _name(flags.name), _url(flags.url)
    data = (flags.data or hostservice.default_data()).absolute()
    labels_of("--labels", flags.labels)
    files = MembershipFiles(data)
    machine = _prepared(files)
    opened = asyncio.run(_probed(data, flags))
    output.say("driver", f"driver: {_described(opened)}")
    _check_runner(flags, opened)
    settings = tuple(_settings(flags, opened.name))
    arguments = hostservice.agent_arguments(data, flags.driver, settings)
    plan, why = _planned(arguments, data, opened, clock) if service else (None, "")
    if opened.name == "process" and flags.runner:
        _build_images(data, Path(flags.runner))
    main = _met(url, token)
    _check_terms(main, flags, opened)
    _check_writable(files)
    given = _joined(main, token, name=name, machine=machine)
    runner = Path(flags.runner) if flags.runner and opened.name == "process" else None
    membership = _written(
        files, given, labels=flags.labels, driver=flags.driver, runner=runner, settings=settings
    )
    output.say("joined", f"joined {membership.url} as {membership.name}", name=membership.name)
    if plan is None:
        output.command(data, hostservice.agent_command(data, membership), why)
    else:
        _installed(plan, data, output, clock)


def _settings(flags: JoinFlags, driver: str) -> Iterator[str]:
    """The arguments of the agent for what was given here."""
    if flags.tart != "tart":
        yield f"--tart-binary={flags.tart}"
    if flags.slots is not None:
        yield f"--vm-slots={flags.slots}"
    for each in flags.insecure:
        yield f"--insecure-registry={each}"
    if flags.runner and driver == "tart":
        yield f"--runner-archive={flags.runner}"
    if flags.runner_sha256:
        yield f"--runner-sha256={flags.runner_sha256}"
    if flags.runner_directory:
        yield f"--runner-directory={flags.runner_directory}"


class _Output:
    """Prints lines, or one JSON object per line."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json

    def say(self, event: str, text: str, **more: object) -> None:
        """Print what happened."""
        line = {"event": event, "message": text, **more}
        click.echo(msgspec.json.encode(line).decode() if self._json else text)

    def command(self, data: Path, argv: tuple[str, ...], why: str = "") -> None:
        """Print the command that the user must run."""
        before = f"no service is installed: {why}. " if why else ""
        # It reads only at its start what joining has written.
        verb = (
            "Stop the agent that runs here, and start it" if is_owned(data) else "Start the agent"
        )
        text = f"{before}{verb}, and keep it running: {shlex.join(argv)}"
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
    own = socket.gethostname().partition(".")[0].lower()
    name = given or re.sub(r"[^a-z0-9-]", "-", own).strip("-")[:_LONGEST_NAME].strip("-")
    if is_reserved_name(name):
        raise BadSetting(
            f"--name: {name} is a name of the main machine's own hosts. Choose another one with --name"
        )
    if is_host_name(name):
        return name
    if given:
        raise BadSetting(
            f"--name: {given!r} cannot be a host's name. Use at most 40 lower-case letters, digits and '-'"
        )
    raise BadSetting(f"this machine's name {own!r} cannot be a host's name. Choose one with --name")


def _url(given: str) -> str:
    try:
        return base_url(given)
    except JoinFailed as error:
        raise BadSetting(str(error)) from None


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


async def _probed(data: Path, flags: JoinFlags) -> Opened:
    """The driver of this machine, opened as the agent will open it."""
    try:
        wanted = Wanted(
            home=data / "vm",
            driver=flags.driver,
            tart=flags.tart,
            insecure=flags.insecure,
            isolation=wanted_isolation(os.environ),
        )
        return await open_driver(wanted, clock=RealClock())
    except BadDirectory as error:
        raise BadSetting(str(error)) from None
    except VmError as error:
        raise BadSetting(f"--driver {flags.driver}: {error}") from None


def _described(opened: Opened) -> str:
    words = f"{opened.name} ({render(opened.why)})"
    return f"{words}; isolation: {opened.detail}" if opened.detail else words


# ── the Actions runner ──────────────────────────────────────────────────────────────────────────────


def _check_runner(flags: JoinFlags, opened: Opened) -> None:
    """Refuse a runner, and options of VMs, that hosts with this driver cannot use."""
    if opened.name == "process":
        check_no_vm_options(opened.why, slots=flags.slots, directory=flags.runner_directory)
    if not flags.runner:
        if flags.runner_sha256:
            raise BadSetting("--runner-sha256 is of the archive that --runner names. Give that too")
        return
    if opened.name == "process":
        if not (Path(flags.runner) / "run.sh").is_file():
            raise BadSetting(
                f"--runner: {flags.runner}: hosts that run processes need the directory of an unpacked actions runner,"
                " with run.sh"
            )
        if flags.runner_sha256:
            raise BadSetting(
                "--runner-sha256 is of an archive, and --runner is a directory. Remove it"
            )
        return
    if Path(flags.runner).is_dir():
        raise BadSetting(f"--runner: {flags.runner}: hosts that run VMs need an archive (.tar.gz)")
    try:
        archive = Archive(source=flags.runner, sha256=flags.runner_sha256)
        archive.check_public()
        check_file(archive)
    except BadArchive as error:
        raise BadSetting(f"--runner, --runner-sha256: {error}") from None


def _build_images(data: Path, runner: Path) -> None:
    """Build what the agent builds at each start, so that a full disk is noticed before the token is used."""
    try:
        images.build(Layout(data), runner)
    except OSError as error:
        raise BadSetting(
            f"--runner: {runner} cannot be copied to {data} ({error.strerror})"
        ) from None


def _check_terms(main: MainMachine, flags: JoinFlags, opened: Opened) -> None:
    """Refuse to become a host that can run no job."""
    if opened.name == "process" and not main.terms.practice and not flags.runner:
        raise BadSetting(
            f"{main.url} runs jobs of the real GitHub, and hosts that run processes need an actions runner for them:"
            f" give the directory of an unpacked one with --runner, or install tart ({render(opened.why)})."
            " The token was not used"
        )


# ── joining ─────────────────────────────────────────────────────────────────────────────────────────


def _met(url: str, token: JoinToken) -> MainMachine:
    """Who answers at the URL; nothing of the token is sent."""
    try:
        return asyncio.run(enrolling.meet(url, token))
    except JoinFailed as error:
        raise Failed(str(error)) from None


def _check_writable(files: MembershipFiles) -> None:
    """Refuse a directory that cannot take what the main machine gives for the token."""
    try:
        files.check_writable()
    except OSError as error:
        raise BadSetting(f"--data: {_unwritten(files, error)}. The token was not used") from None


def _joined(main: MainMachine, token: JoinToken, *, name: str, machine: str) -> Joined:
    """Send the token; raises `Failed`."""
    try:
        return asyncio.run(enrolling.join(main, token, name=name, machine=machine))
    except JoinFailed as error:
        raise Failed(str(error)) from None


def _written(
    files: MembershipFiles,
    given: Joined,
    *,
    labels: str,
    driver: str,
    runner: Path | None,
    settings: tuple[str, ...],
) -> Membership:
    """Store what the main machine gave; raises `Failed`, because the token is used up by now."""
    try:
        return files.write(given, labels=labels, driver=driver, runner=runner, settings=settings)
    except OSError as error:
        raise Failed(
            f"the main machine has accepted this one, but {_unwritten(files, error)}, and join again with another"
            " token: on the main machine, runyard host token"
        ) from None


def _unwritten(files: MembershipFiles, error: OSError) -> str:
    """What cannot be written, and the fix."""
    if error.errno in FULL:
        return f"the disk of {files.folder} is full. Free some space"
    path = error.filename2 or error.filename or files.folder
    if error.errno == errno.EISDIR:
        return f"{path} is a directory. Move it away"
    return f"{path} cannot be written ({error.strerror}). Make {files.folder} writable for this user, without sudo"


def _planned(
    arguments: tuple[str, ...], data: Path, opened: Opened, clock: Clock
) -> tuple[hostservice.Plan | None, str]:
    """The service to install; without a service manager the reason instead."""
    try:
        return hostservice.planned(arguments, data, driver=opened.name, clock=clock), ""
    except NoManager as error:
        return None, str(error)


def _installed(plan: hostservice.Plan, data: Path, output: _Output, clock: Clock) -> None:
    try:
        done = hostservice.installed(plan, clock=clock)
    except ServiceError as error:
        show_said(error)
        command = shlex.join(plan.service.argv)
        raise Failed(
            f"this machine has joined, but its service cannot be installed: {error}. Start the agent with: {command}"
        ) from None
    output.say(
        "service",
        f"service {done.change}: {done.name}, process {done.pid}; its log: {done.log}",
        change=done.change,
        service=done.name,
        pid=done.pid,
    )
    boot = asyncio.run(plan.manager.at_boot(plan.service.name))
    output.say("boot", f"at boot: {boot_words(boot)}", code=boot.code, command=boot.command)
    here = hostservice.where(data)
    output.say("status", f"here: runyard host status{here}; to end it: runyard host leave{here}")
    output.say("next", "on the main machine: runyard host list")
