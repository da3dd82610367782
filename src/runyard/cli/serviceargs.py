"""Turns what somebody typed into what a service runs: the same options with absolute paths, and a stable program.

Invariants:
- The service sees exactly what the command was given: options of the command line become arguments, variables of the
  environment that the command reads become variables of the service. Defaults stay defaults.
- No secret gets into a file that other users can read: files of secrets are named, URLs with a password are refused.
- The program's path still exists tomorrow: environments that tools create for one run are refused.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from runyard.cli.options import BadSetting

# Where services find programs; launchd's own PATH has neither Homebrew's nor /usr/local.
SYSTEM_PATH = (
    "/opt/homebrew/bin",
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/sbin",
    "/sbin",
)
_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]+@")
# Directories in which tools keep environments for one run; CACHEDIR.TAG finds the others.
_ONE_RUN = (("pipx", ".cache"), (".cache", "pipx"))


class Given(msgspec.Struct, frozen=True):
    """What a command was given, for a service."""

    arguments: tuple[str, ...]
    environment: dict[str, str]


def given_options(context: click.Context, *, without: Collection[str]) -> Given:
    """The options that were given, in the order in which the command declares them."""
    arguments: list[str] = []
    environment: dict[str, str] = {}
    for option in context.command.params:
        name = option.name or ""
        if name in without or not isinstance(option, click.Option):
            continue
        value, source = context.params.get(name), context.get_parameter_source(name)
        if source is ParameterSource.COMMANDLINE:
            arguments += _words(option, value)
        elif source is ParameterSource.ENVIRONMENT:
            environment[_variable(option)] = _text(value)
    for text in (*arguments, *environment.values()):
        if _PASSWORD.search(text):
            raise BadSetting(
                "an option has a URL with a password, and other users can read what a service runs."
                " Give the password in a file"
            )
    return Given(tuple(arguments), environment)


def _words(option: click.Option, value: Any) -> Iterator[str]:
    flag = max(option.opts, key=len)
    if option.is_flag:
        named = flag if value else max(option.secondary_opts, key=len, default="")
        if named:
            yield named
        return
    for each in value if option.multiple else (value,):
        yield f"{flag}={_text(each)}"  # one word, also if the value begins with a dash


def _text(value: Any) -> str:
    return str(value.absolute()) if isinstance(value, Path) else str(value)


def _variable(option: click.Option) -> str:
    given = (option.envvar,) if isinstance(option.envvar, str) else option.envvar or ()
    return next(name for name in given if os.environ.get(name))


def stable_program(name: str, argv0: str, *, prefix: Path, temporary: Collection[Path]) -> Path:
    """The command's path for a service: as it was called, or the one of its environment; raises `BadSetting`."""
    called = Path(argv0).absolute()
    program = called if called.name == name and _runs(called) else prefix / "bin" / name
    if not _runs(program):
        raise BadSetting(
            f"{program} does not exist, so a service cannot run it. Install runyard (uv tool install 'runyard[up]')"
            " and call it by its name"
        )
    for each in (program, prefix):
        _check_lasting(each, temporary)
    return program


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _check_lasting(path: Path, temporary: Collection[Path]) -> None:
    real = path.resolve()
    cache = _cache_of(real) or next(
        (each for each in temporary if real.is_relative_to(each.resolve())), None
    )
    if cache is not None:
        raise BadSetting(
            f"{path} is in {cache}, which is emptied some day (uvx, uv run, pipx run), so a service cannot start from"
            " it. Install runyard first: uv tool install 'runyard[up]', or pipx install 'runyard[up]'"
        )


def _cache_of(path: Path) -> Path | None:
    """The cache that holds this path. `uv venv` marks the environment itself too, which is no cache."""
    for folder in path.parents:
        if (folder / "CACHEDIR.TAG").exists() and not (folder / "pyvenv.cfg").exists():
            return folder
        if (folder.parent.name, folder.name) in _ONE_RUN:
            return folder
    return None


def service_path(found: Collection[str | None]) -> str:
    """PATH of a service: the system's directories, and those of programs found elsewhere."""
    more = {str(Path(each).absolute().parent) for each in found if each}
    return ":".join((*SYSTEM_PATH, *sorted(more - set(SYSTEM_PATH))))


def carried(environ: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Those variables that are set; the caller lists only names without secrets."""
    return {name: environ[name] for name in sorted(names) if environ.get(name)}
