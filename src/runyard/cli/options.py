"""Shared click options and errors of commands; imports only click.

Command modules declare options and help; they import the code that runs the command inside the function, so that
`--help` stays fast and only commands that need an optional package fail without it.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_WORD}")
_LABEL_VALUE = re.compile(rf"(?:{_WORD})?")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")

Option = Callable[[Callable[..., Any]], Callable[..., Any]]

# Those of `vm/registry.py`, which is slow to import.
DRIVERS = click.Choice(["auto", "tart", "process"])

LOGGING: tuple[Option, ...] = (
    click.option("--json", "as_json", is_flag=True, help="Log one JSON object per line."),
    click.option(
        "--log-level",
        envvar="RUNYARD_LOG",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="Least severe level that is logged.",
    ),
)

DATA: Option = click.option(
    "--data",
    envvar="RUNYARD_DATA",
    show_envvar=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Data directory of 'runyard up'.  [default: ~/.local/share/runyard]",
)


def listen_option(default: str, serves: str) -> Option:
    """`--listen` of a command; every one of them is on loopback unless it is told otherwise."""
    return click.option(
        "--listen",
        envvar="RUNYARD_LISTEN",
        default=default,
        show_default=True,
        metavar="HOST:PORT",
        help=f"Address of {serves}; port 0 is any free port.",
    )


def metrics_token_option(reads: str) -> Option:
    """`--metrics-token-file` of a command that serves metrics."""
    return click.option(
        "--metrics-token-file",
        envvar="RUNYARD_METRICS_TOKEN_FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help=f"File with a token that reads {reads}, for Prometheus if --listen is not loopback.",
    )


class RegistryHost(click.ParamType[str]):
    """The host of an image registry, perhaps with its port."""

    name = "registry"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Convert the text."""
        host, _, port = str(value).partition(":")
        if not _HOST.fullmatch(host) or ((port or ":" in str(value)) and not _is_port(port)):
            self.fail(
                f"{value!r} is not HOST or HOST:PORT of a registry: write it as in the image's name",
                param,
                ctx,
            )
        return str(value)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 65536


INSECURE_REGISTRY: Option = click.option(
    "--insecure-registry",
    multiple=True,
    type=RegistryHost(),
    metavar="HOST:PORT",
    help="Image registry without TLS; repeatable.",
)


VM_SLOTS: Option = click.option(
    "--vm-slots",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="VMs of tart that may run at once, those of other tools included; macOS allows two.",
)


def label_value(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """Callback of an option whose text becomes the value of a Kubernetes label."""
    if text is not None and not _LABEL_VALUE.fullmatch(text):
        raise click.BadParameter(
            f"{text!r} cannot be a label's value. Use up to 63 letters (a-z, A-Z), digits, '-', '_' and '.',"
            " with a letter or digit at both ends"
        )
    return text


def labels_of(flag: str, text: str) -> tuple[tuple[str, str], ...]:
    """`key=value,key=value` as pairs of a Kubernetes label."""
    pairs: dict[str, str] = {}
    for pair in text.split(",") if text else ():
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise BadSetting(
                f"{flag}: {pair!r} is not a label. Write it as key=value, with letters, digits, '-', '_' and '.'"
            )
        pairs[key] = value
    return tuple(pairs.items())


class NumberRange(click.FloatRange):
    """A number in a range; "nan", which is in every range of click's, is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert the text."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a valid {self.name}.", param, ctx)
        return found


class Program(click.ParamType[str]):
    """A program: its name on PATH, or its path, which is made absolute; services run in another directory."""

    name = "program"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Convert the text."""
        text = str(value)
        return str(Path(text).absolute()) if "/" in text else text


def is_typed(name: str) -> bool:
    """Whether this option is on the command line; environment variables may be meant for other commands."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def is_set(name: str) -> bool:
    """Whether this option was given, on the command line or by its variable."""
    source = click.get_current_context().get_parameter_source(name)
    return source is not click.core.ParameterSource.DEFAULT


class BadSetting(click.ClickException):
    """An option, a variable or a file is not usable; nothing was started."""

    exit_code = 2


class Failed(click.ClickException):
    """The command had started, and failed."""

    exit_code = 1


def with_options(options: tuple[Option, ...]) -> Option:
    """Add these options to a command; `--help` lists them in this order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add
