"""What the process of a part has at hand: its orders, time, chance, telemetry, and ways to its peers."""

import random
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from runyard.clock import Clock
from runyard.embedded.up.boot import Boot
from runyard.embedded.up.secrets import Secrets, load
from runyard.embedded.up.trust import kube_transport
from runyard.http.client import HttpTransport
from runyard.telemetry.log import Logger, get_logger

_REREAD = 10.0


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Given to a role's `run`."""

    boot: Boot
    clock: Clock
    rng: random.Random
    ready: Callable[[], None]

    def secrets(self) -> Secrets:
        """The machine's secrets."""
        return load(self.boot.layout)

    def log(self) -> Logger:
        """This part's logger."""
        return get_logger(self.boot.role, part=self.boot.name)

    def sockets(self) -> tuple[tuple[str, socket.socket], ...]:
        """What this part listens on: addresses and sockets, loopback first."""
        return tuple((address, socket.socket(fileno=fd)) for address, fd in self.boot.sockets)

    def socket(self) -> socket.socket:
        """The one socket of a part that listens on loopback alone."""
        ((_, only),) = self.sockets()
        return only

    def app_key(self) -> str:
        """The GitHub App's private key."""
        path = self.boot.app_key_file
        return Path(path).read_text(encoding="utf-8") if path else self.secrets().app_key

    def kube(self) -> HttpTransport:
        """A way to the API; close it."""
        return kube_transport(self.boot.layout, self.boot.kube_url, now=self.clock.now())

    def token(self, part: str) -> Callable[[], str]:
        """This part's own credential, read again now and then: the machine renews it."""
        return TokenFile(self, part)


class TokenFile:
    """A credential in a file, read again every few seconds."""

    def __init__(self, context: Context, part: str) -> None:
        self._path = context.boot.layout.token(part)
        self._clock = context.clock
        self._value = ""
        self._until = float("-inf")

    def __call__(self) -> str:
        """The credential of this moment."""
        now = self._clock.monotonic()
        if now >= self._until:
            self._value = self._path.read_text(encoding="utf-8").strip()
            self._until = now + _REREAD
        return self._value


def transport(url: str) -> HttpTransport:
    """A way to a peer on this machine."""
    return HttpTransport(url)
