"""What commands that install a service share: the service manager of this user, the service's environment, the errors.

Invariants:
- What a service would not have is carried to it, or refused with the fix: no setting is dropped without a word.
- No secret gets into a service's file, which other users can read.
"""

import contextlib
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from runyard.cli.options import Failed
from runyard.cli.serviceargs import carried, service_path, stable_program
from runyard.cli.tables import moment
from runyard.clock import Clock
from runyard.embedded.up.layout import FULL, BadDirectory
from runyard.hosts.services.contract import AtBoot, Manager
from runyard.hosts.services.errors import DidNotStay, ServiceError
from runyard.hosts.services.here import manager_here
from runyard.hosts.services.installing import Status
from runyard.hosts.services.unit import BadService

# Variables without secrets that runyard, its components and its VMs' driver read. Of these, paths are made absolute.
_PATHS = ("RUNYARD_PG_BIN", "SSL_CERT_FILE", "TART_HOME", "XDG_CONFIG_HOME")
CARRIED = (
    *_PATHS,
    "RUNYARD_ISOLATION",
    "RUNYARD_LOG",
    "SSL_CERT_DIR",
    "TART_REGISTRY_HOSTNAME",
    "TART_REGISTRY_USERNAME",
)
TOOLS = ("tart", "bwrap", "slirp4netns", "git")  # whose directories the service's PATH needs
TEMPORARY = (Path(tempfile.gettempdir()),)
PLATFORM = sys.platform
_PASSWORD = "TART_REGISTRY_PASSWORD"
_BOOT: dict[str, str] = {
    "ready": "yes, without anybody's login",
    "disabled": "no: it is disabled",
    "no-auto-login": "only once this user logs in at the screen: automatic login is off",
    "other-auto-login": "only once this user logs in at the screen: automatic login is of another user",
    "filevault": "only once a person has typed a password at the Mac: FileVault is on",
    "no-linger": "only while this user is logged in: lingering is off",
    "unknown": "unknown",
}


class CannotInstall(click.ClickException):
    """Nothing was changed."""

    exit_code = 2


def manager_of_user(clock: Clock) -> Manager:
    """This user's service manager; raises `NoManager`."""
    return manager_here(
        os.environ, platform=PLATFORM, home=Path.home(), uid=os.getuid(), clock=clock
    )


def service_name(kind: str, root: Path, *, default: Path) -> str:
    """The service of a data directory: `kind` for the default one, else a name with its last part and a hash."""
    root = root.resolve()
    if root == default.resolve():
        return kind
    last = re.sub(r"[^a-z0-9]+", "-", root.name.lower()).strip("-")[:24].strip("-")
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
    return "-".join(part for part in (kind, last, digest) if part)


def service_program() -> str:
    """The path by which a service runs this program; raises `BadSetting` if it may not exist tomorrow."""
    return str(stable_program("runyard", sys.argv[0], prefix=Path(sys.prefix), temporary=TEMPORARY))


def service_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a service."""
    found = [shutil.which(tool, path=environ.get("PATH")) for tool in TOOLS]
    given = carried(environ, CARRIED)
    absolute = {name: str(Path(given[name]).absolute()) for name in _PATHS if name in given}
    return {**given, **absolute, "HOME": str(Path.home()), "PATH": service_path(found)}


def check_registry_password(environ: Mapping[str, str], driver: str) -> None:
    """Refuse a password of an image registry that the service could not have."""
    if driver == "tart" and environ.get(_PASSWORD):
        raise CannotInstall(
            f"{_PASSWORD} is set, and a service has no safe place for it. Unset it, and run `tart login HOST` or put"
            " the credentials into ~/.docker/config.json (mode 0600)"
        )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn errors into one line; of a program that did not stay, the end of its log follows."""
    try:
        yield
    except (ServiceError, BadService, BadDirectory) as error:
        kind = Failed if isinstance(error, DidNotStay) else CannotInstall
        show_said(error)
        raise kind(str(error)) from None
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise CannotInstall(f"no space left on the disk ({error}). Free some") from None


def show_said(error: Exception) -> None:
    """Print the end of the program's log, if the error has it."""
    for line in error.said if isinstance(error, ServiceError) else ():
        click.echo(f"  {line}", err=True)


def show_status(found: Status, *, install: str, logs: str) -> None:
    """Print what a service does; `install` is the command that installs or starts it."""
    if not found.installed:
        still = f", but still runs as process {found.pid}" if found.pid else ""
        click.echo(f"{found.name} is not installed{still}; to install it: {install}")
        return
    if found.pid:
        click.echo(f"{found.name} runs as process {found.pid} since {moment(found.since)}")
    else:
        click.echo(f"{found.name} does not run; to start it: {install}")
    click.echo(f"restarts:  {found.restarts}")
    if found.last_exit:
        click.echo(f"last exit: {found.last_exit}")
    click.echo(f"file:      {found.path}")
    click.echo(f"logs:      {logs}")
    click.echo(f"at boot:   {boot_words(found.at_boot)}")


def boot_words(boot: AtBoot) -> str:
    """Whether it starts after a reboot, and the command that makes it so."""
    return _BOOT[boot.code] + (f"; run: {boot.command}" if boot.command else "")
