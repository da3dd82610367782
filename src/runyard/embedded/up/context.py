"""The dependencies of a component's process: configuration, clock, random generator, telemetry, transports."""

import random
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from runyard.clock import Clock
from runyard.embedded.up.boot import Boot
from runyard.embedded.up.secrets import Secrets, load
from runyard.embedded.up.trust import kube_transport
from runyard.github.app import AppAuth, Auth, TokenAuth
from runyard.http.client import HttpTransport
from runyard.http.tls import client_context
from runyard.telemetry.log import Logger, get_logger

_REREAD = 10.0


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a role's `run`."""

    boot: Boot
    clock: Clock
    rng: random.Random
    ready: Callable[[], None]

    def secrets(self) -> Secrets:
        """The machine's secrets."""
        return load(self.boot.layout)

    def log(self) -> Logger:
        """This component's logger."""
        return get_logger(self.boot.role, component=self.boot.name)

    def sockets(self) -> tuple[tuple[str, socket.socket], ...]:
        """The sockets of this component with their addresses, loopback first."""
        return tuple((address, socket.socket(fileno=fd)) for address, fd in self.boot.sockets)

    def socket(self) -> socket.socket:
        """The one socket of a component that listens on loopback alone."""
        ((_, only),) = self.sockets()
        return only

    def github(self) -> HttpTransport:
        """A transport to GitHub; close it."""
        github = self.boot.github
        if github is None or not github.ca_file:
            return transport(self.boot.github_url)
        tls = client_context(Path(github.ca_file).read_bytes())
        return HttpTransport(self.boot.github_url, tls=tls)

    def auth(self) -> Auth:
        """The server's credentials at GitHub."""
        github = self.boot.github
        if github is None:
            key = self.secrets().app_key
            return AppAuth(app_id=self.boot.app_id, private_key=key, clock=self.clock)
        if github.token_file:
            token = Path(github.token_file).read_text(encoding="utf-8").strip()
            return TokenAuth(token, repository_name=github.repository)
        key = Path(github.key_file).read_text(encoding="utf-8")
        return AppAuth(app_id=github.app_id, private_key=key, clock=self.clock)

    def webhook_secrets(self) -> tuple[str, ...]:
        """The secrets of GitHub's webhooks: the machine's, and the App's if it has another."""
        own, github = self.secrets().webhook_secret, self.boot.github
        return (own, github.secret) if github is not None and github.secret else (own,)

    def kube(self) -> HttpTransport:
        """A transport to the API; close it."""
        return kube_transport(self.boot.layout, self.boot.kube_url, now=self.clock.now())

    def token(self, component: str) -> Callable[[], str]:
        """This component's credential, re-read every few seconds: the machine renews it."""
        return TokenFile(self, component)


class TokenFile:
    """A credential in a file, re-read every few seconds."""

    def __init__(self, context: Context, component: str) -> None:
        self._path = context.boot.layout.token(component)
        self._clock = context.clock
        self._value = ""
        self._until = float("-inf")

    def __call__(self) -> str:
        """The current credential."""
        now = self._clock.monotonic()
        if now >= self._until:
            self._value = self._path.read_text(encoding="utf-8").strip()
            self._until = now + _REREAD
        return self._value


def transport(url: str) -> HttpTransport:
    """A transport to another component on this machine."""
    return HttpTransport(url)
