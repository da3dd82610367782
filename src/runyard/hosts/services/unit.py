"""Renders a service as a launchd property list or a systemd user unit.

A `Service` is a program that the service manager starts when its user's session begins, and again whenever it ends.
Both renderings are pure and deterministic, so "is it up to date?" is a comparison of bytes. The version of runyard is
in them: after an upgrade the file differs, and the next install restarts the service.

Why they look as they do:
- A *LaunchAgent* of the logged-in user and not a daemon: macOS starts virtual machines only in a GUI session (Aqua).
- The service is always restarted, once in `throttle` seconds at most; systemd never gives up (`StartLimitIntervalSec`).
- Stopping ends the main process only (`KillMode=process`, `AbandonProcessGroup`). The VMs' shims are not part of the
  service: runners continue while the service restarts, and the next start takes them over.

Invariants:
- What a service manager could read differently from what was meant is refused by `check` and never escaped by guess:
  control characters, relative paths, blanks at the ends of paths.
- No value comes from the environment of the caller except through `Service.environment`, which holds no secret: other
  users can read these files.
"""

import plistlib
import re
from collections.abc import Iterator

import msgspec

PREFIX = "dev.runyard."  # of launchd labels: reversed, as Apple asks
OPEN_FILES = 8192  # launchd's default is 256
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Neither format holds them: control characters, halves of surrogate pairs, and what XML calls no characters.
_UNUSABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


class BadService(ValueError):
    """A service manager cannot carry this value; the message names it."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A program that runs from the login on, and is restarted whenever it ends."""

    name: str  # of the service among runyard's own: `up`
    description: str
    version: str  # of the program; another one makes the next install restart it
    argv: tuple[str, ...]  # the first is an absolute path
    environment: dict[str, str]
    directory: str  # in which it starts
    log: str  # the file to which its output is appended
    throttle: int = 10  # seconds between two starts
    stop_within: int = 30  # seconds for its end, before it is killed

    @property
    def label(self) -> str:
        """The name for launchd."""
        return PREFIX + self.name

    @property
    def unit(self) -> str:
        """The name for systemd."""
        return unit_name(self.name)


def unit_name(name: str) -> str:
    """The name of a service's systemd unit."""
    return f"runyard-{name}.service"


def check(service: Service) -> None:
    """Refuses what a service manager could misread; raises `BadService`."""
    if not _NAME.fullmatch(service.name):
        raise BadService(f"the service's name {service.name!r} is not of the form [a-z0-9-]")
    if not service.argv:
        raise BadService("the service has no program")
    for what, value in _values(service):
        if _UNUSABLE.search(value):
            raise BadService(
                f"{what} has a character that no service manager takes: {value!r}. Rename it"
            )
    for what, path in _paths(service):
        if not path.startswith("/"):
            raise BadService(f"{what} is not an absolute path: {path!r}. Give the whole path")
    for what, text in (*_paths(service), ("the description", service.description)):
        if text != text.strip() or text.endswith("\\"):
            raise BadService(f"{what} ends in a blank or a backslash: {text!r}. Rename it")
    for name in service.environment:
        if not _VARIABLE.fullmatch(name):
            raise BadService(f"{name!r} is no name of an environment variable")


def _values(service: Service) -> Iterator[tuple[str, str]]:
    yield from _paths(service)
    yield "the description", service.description
    yield "the version", service.version
    for argument in service.argv:
        yield "an argument", argument
    for name, value in service.environment.items():
        yield f"the variable {name}", value


def _paths(service: Service) -> Iterator[tuple[str, str]]:
    yield "the program", service.argv[0]
    yield "the working directory", service.directory
    yield "the log", service.log


def launchd_plist(service: Service) -> bytes:
    """The property list of a LaunchAgent."""
    check(service)
    content = {
        "AbandonProcessGroup": True,
        "EnvironmentVariables": service.environment,
        "ExitTimeOut": service.stop_within,
        "KeepAlive": True,
        "Label": service.label,
        "LimitLoadToSessionType": "Aqua",
        "ProcessType": "Interactive",  # others may be slowed down, and the VMs with them
        "ProgramArguments": list(service.argv),
        "RunAtLoad": True,
        "RunyardDescription": service.description,  # launchd ignores what it does not know
        "RunyardVersion": service.version,
        "SoftResourceLimits": {"NumberOfFiles": OPEN_FILES},
        "StandardErrorPath": service.log,
        "StandardOutPath": service.log,
        "ThrottleInterval": service.throttle,
        "Umask": 0o077,
        "WorkingDirectory": service.directory,
    }
    return plistlib.dumps(content, sort_keys=True)


def systemd_unit(service: Service) -> bytes:
    """The unit file for the user's systemd."""
    check(service)
    program, *arguments = service.argv
    if re.search(r"[\"'\\]", program):
        raise BadService(
            f"the program's path has a quote or a backslash, which systemd refuses: {program!r}. Install it elsewhere"
        )
    # systemd expands $ in arguments only; the program's own path keeps it.
    command = [_quoted(program), *(_quoted(each).replace("$", "$$") for each in arguments)]
    environment = [
        f"Environment={_quoted(f'{name}={value}')}"
        for name, value in sorted(service.environment.items())
    ]
    lines = [
        "[Unit]",
        f"Description={_literal(service.description)}",
        "StartLimitIntervalSec=0",
        f"X-RunyardVersion={_literal(service.version)}",
        "",
        "[Service]",
        *environment,
        f"ExecStart={' '.join(command)}",
        "KillMode=process",
        "Restart=always",
        f"RestartSec={service.throttle}",
        f"StandardError=append:{_literal(service.log)}",
        f"StandardOutput=append:{_literal(service.log)}",
        f"TimeoutStopSec={service.stop_within}",
        "Type=exec",
        "UMask=0077",
        f"WorkingDirectory={_literal(service.directory)}",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    return "\n".join(lines).encode()


def _quoted(word: str) -> str:
    """One word of a line that systemd splits into words."""
    return '"' + _literal(word).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _literal(text: str) -> str:
    """A value that systemd takes as it is, except for its own specifiers."""
    return text.replace("%", "%%")
