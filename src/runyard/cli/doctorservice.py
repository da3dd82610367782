"""Reads the files of services that run an agent here: its directory and its log. Nothing is started or asked."""

import plistlib
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import msgspec

from runyard.hosts.services.systemd import units_directory
from runyard.hosts.services.unit import PREFIX, unit_name

AGENT = "agent"  # what the names of these services begin with
_DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError)
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')


class AgentService(msgspec.Struct, frozen=True):
    """A service that `runyard host join` has installed."""

    name: str  # among runyard's own
    data: Path
    log: str
    tart_home: str = ""  # if it is not the usual one


def agent_services(home: Path, environ: Mapping[str, str]) -> tuple[AgentService, ...]:
    """The services that are installed for this user; a file that cannot be understood is left out."""
    return (*_launchd(home), *_systemd(home, environ))


def _launchd(home: Path) -> Iterator[AgentService]:
    for path in sorted((home / "Library" / "LaunchAgents").glob(f"{PREFIX}{AGENT}*.plist")):
        try:
            content = plistlib.loads(path.read_bytes())
            words, log = content["ProgramArguments"], content["StandardOutPath"]
            tart = content.get("EnvironmentVariables", {}).get("TART_HOME", "")
        except (*_DAMAGED, plistlib.InvalidFileException):
            continue
        name = path.name.removeprefix(PREFIX).removesuffix(".plist")
        for each in _service(name, words, log):
            yield msgspec.structs.replace(each, tart_home=str(tart))


def _systemd(home: Path, environ: Mapping[str, str]) -> Iterator[AgentService]:
    before, _, after = unit_name("\0").partition("\0")
    for path in sorted(units_directory(environ, home).glob(unit_name(f"{AGENT}*"))):
        try:
            lines = dict(line.partition("=")[::2] for line in path.read_text("utf-8").splitlines())
        except (OSError, ValueError):
            continue
        words = [_plain(each) for each in _WORD.findall(lines.get("ExecStart", ""))]
        log = lines.get("StandardOutput", "").removeprefix("append:").replace("%%", "%")
        yield from _service(path.name.removeprefix(before).removesuffix(after), words, log)


def _plain(word: str) -> str:
    return re.sub(r"\\(.)", r"\1", word).replace("%%", "%").replace("$$", "$")


def _service(name: str, words: object, log: object) -> Iterator[AgentService]:
    texts = [each for each in words if isinstance(each, str)] if isinstance(words, list) else []
    for flag, value in pairwise(texts):
        if flag == "--data":
            yield AgentService(name, Path(value), log if isinstance(log, str) else "")
            return
