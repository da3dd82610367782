"""Turns tart's messages and exit codes into the driver contract's errors.

tart tells failures apart by text only: nearly everything exits with 1. The texts are those of tart 2.32.1, Foundation's
with straight and with curly quotes. What is recognised here is a typed error from here on; no other module looks at a
message of tart, except `refusal.py`, for the shim.

    DriverFailed
    ├── DoesNotExist     there is no such VM or image on this host: success when tearing down
    ├── NotRunning       the VM does not run: success when stopping
    ├── StillRunning     the VM runs, so it can be neither started nor deleted
    └── Incomplete       files of the VM are missing: a copy was interrupted or damaged
"""

import re
from collections.abc import Callable

from runyard.vm.contract import (
    DriverFailed,
    ImageMissing,
    NoSpace,
    SlotsFull,
    Unauthorized,
    Unreachable,
    VmError,
)
from runyard.vm.tart.refusal import NO_SLOT

_LONGEST = 500  # characters of tart's message that are passed on
# Characters of the end of its output that are looked at: it quotes what a registry answered.
_READ = 1 << 18


class DoesNotExist(DriverFailed):
    """There is no such VM or image on this host."""


class NotRunning(DriverFailed):
    """The VM does not run."""


class StillRunning(DriverFailed):
    """The VM runs."""


class Incomplete(DriverFailed):
    """Files of the VM are missing."""


_NO_SPACE = "free space, or let images be collected that no Pod uses"
_FULL = (
    r"(?i:isn['’]t enough (free )?(disk )?space|out of space|no space left on device"
    r"|(disk|volume) is (\d+ ?% )?full)"
)
_NO_AGENT = r"Failed to connect to the VM using its control socket"
# Of the answer, not one that it quotes. Bounded: an answer may repeat the beginning ten thousand times.
_STATUS = r"UnexpectedHTTPStatusCode\((?:(?!code: ).){0,300}code: "
_OFFLINE = (
    r"NSURLErrorDomain|timed out"
    r"|[Cc]ould not connect|connection was lost|appears to be offline"
    r"|hostname could not be found|Connection (refused|reset)|network is unreachable"
)
_OTHER_PULL = r"waiting for lock\b"
_REFUSED = r"AuthFailed|CredentialsNotFound|UNAUTHORIZED|access to the resource is denied"
_LOG_IN = "log in with `tart login`, or set TART_REGISTRY_USERNAME and TART_REGISTRY_PASSWORD"
_NAME = "check its name and digest in the registry"
_NETWORK = "check the network and the registry"
# The first that fits counts. What a registry answered comes first: the text that it sent may look like the others.
_RULES: tuple[tuple[str, type[VmError], str], ...] = (
    (rf"{_STATUS}(401|403)\b", Unauthorized, _LOG_IN),
    (rf"{_STATUS}404\b", ImageMissing, _NAME),
    (rf"{_STATUS}(408|429|5\d\d)\b", Unreachable, _NETWORK),
    (NO_SLOT, SlotsFull, "wait until one of the running VMs ends"),
    (_FULL, NoSpace, _NO_SPACE),
    (r"\bmissing some of its files\b", Incomplete, "it is to be deleted and made again"),
    (r"\bdoes not exist\b", DoesNotExist, ""),
    (r"\bis not running\b", NotRunning, ""),
    (r"\bis (already )?running\b", StillRunning, "stop it first"),
    (
        _NO_AGENT,
        Unreachable,
        "use an image with tart's guest agent, or wait until it has booted",
    ),
    (r"no IP address found", Unreachable, "it may still boot"),
    (_REFUSED, Unauthorized, _LOG_IN),
    (r"manifest unknown|NAME_UNKNOWN", ImageMissing, _NAME),
    (_OFFLINE, Unreachable, _NETWORK),
)
_COMPILED: tuple[tuple[re.Pattern[str], Callable[[str], VmError], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), kind, fix) for pattern, kind, fix in _RULES
)


def failure(what: str, code: int, stderr: str) -> VmError:
    """The error for a command of tart that failed; `what` is the command and its object, as `clone of web-1`."""
    text = stderr.strip()[-_READ:]
    for pattern, kind, fix in _COMPILED:
        if found := pattern.search(text):
            line = text.rfind("\n", 0, found.start()) + 1
            message = text[line : line + _LONGEST].strip()
            return kind(f"tart {what}: {message}{'; ' if fix else ''}{fix}")
    message = text[-_LONGEST:] or f"it exited with {code} without a message"
    return DriverFailed(f"tart {what} failed with {code}: {message}")


def is_waiting_for_its_turn(line: str) -> bool:
    """Whether `tart pull` has printed that another one pulls from the same registry."""
    return re.match(rf"\s*{_OTHER_PULL}", line) is not None


def is_unreachable_agent(output: str) -> bool:
    """Whether `tart exec` has printed that the guest's agent does not answer."""
    return re.match(rf"(Error: )?{_NO_AGENT}", output.lstrip()) is not None
