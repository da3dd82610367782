"""Flags of hosts that ask the dispatch server for jobs on behalf of their VMs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runyard.cli.options import BadSetting, Option

if TYPE_CHECKING:
    from runyard.wire.reasons import Reason


class ArchiveSource(click.ParamType[str]):
    """An existing file, as an absolute path, or a URL; both as text."""

    name = "archive"

    def __init__(self, *, dir_okay: bool = False) -> None:
        self._path = click.Path(exists=True, dir_okay=dir_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Convert the text."""
        from runyard.vm.archives import is_url

        text = str(value)
        if not text or is_url(text):
            return text
        found = self._path.convert(text, param, ctx)
        return str(Path(str(found)).absolute())


RUNNER_SHA256: Option = click.option(
    "--runner-sha256",
    default="",
    metavar="HEX",
    help="SHA-256 of the archive: needed for a URL, checked for a path if it is given.",
)
RUNNER_DIRECTORY: Option = click.option(
    "--runner-directory",
    default="",
    help="Directory of the Actions runner in the VMs.  [default: ~/actions-runner, ~/runner, /opt/actions-runner]",
)
POLLING: tuple[Option, ...] = (
    click.option(
        "--server-ca-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Certificates (PEM) by which this host checks the server when it polls.  [default: the system's]",
    ),
    RUNNER_DIRECTORY,
    click.option(
        "--runner-archive",
        type=ArchiveSource(),
        default="",
        metavar="PATH|URL",
        help="Actions runner (.tar.gz) that is copied into VMs whose image has none. A URL is downloaded once, and kept"
        " in the data directory.",
    ),
    RUNNER_SHA256,
)


def check_no_vm_options(why: "Reason", *, slots: int | None, directory: str) -> None:
    """Refuse options of VMs where hosts run processes, which would ignore them; `why` they do."""
    from runyard.wire.reasons import render

    for option, given in (("--vm-slots", slots), ("--runner-directory", directory)):
        if given:
            raise BadSetting(
                f"{option} is of VMs, and hosts run processes ({render(why)}). Install tart, or remove {option}"
            )
