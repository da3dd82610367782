"""Finds the user name and password for a registry, where tart looks for them and in its order.

    1. TART_REGISTRY_USERNAME and TART_REGISTRY_PASSWORD, for TART_REGISTRY_HOSTNAME only if that is set
    2. ~/.docker/config.json: `auths`, then the program of `credHelpers`, then that of `credsStore`
    3. on macOS, the entry of the Keychain that `tart login` makes (`keychain`)

The first that has something decides. As with tart, a source that fails is noted and the next one is asked. Of
config.json tart reads `auth` and `credHelpers` only; user name and password in clear and `credsStore` are docker's.
A `tart pull` that is started with `Credentials.for_tart` uses what was found, whichever source it came from. The
Keychain's entry belongs to tart: where this process is refused it, tart itself may still read it (`OnlyForTart`).

Invariants:
- A password is in no text that this package makes: not in `repr`, errors, notes or arguments of a program.
- A program that is asked has a deadline; what it prints is never shown.
- Nothing is stored. Each lookup reads the sources again, so a changed password is used at once.
"""

import base64
import binascii
import re
from collections.abc import Awaitable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from runyard import proc

USERNAME = "TART_REGISTRY_USERNAME"
PASSWORD = "TART_REGISTRY_PASSWORD"
HOSTNAME = "TART_REGISTRY_HOSTNAME"
DEADLINE = 10.0

_LARGEST = 1 << 20  # bytes of config.json
_HELPER = re.compile(r"[A-Za-z0-9._-]{1,100}")
_IDENTITY_TOKEN = (
    "<token>"  # a user name: the secret is no password but a token for another protocol
)
_SENDABLE = re.compile(r"[^\x00-\x1f\x7f]+")


class Source(StrEnum):
    """Where credentials came from."""

    ENVIRONMENT = "environment"
    DOCKER_CONFIG = "docker-config"
    DOCKER_HELPER = "docker-helper"
    KEYCHAIN = "keychain"


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """A user name and a password, and where they were found."""

    username: str
    password: str
    source: Source
    detail: str  # the variable, file or program, for people

    def __repr__(self) -> str:
        return f"Credentials({self.source.value}: {self.detail})"

    @property
    def basic(self) -> str:
        """The value of the header `Authorization`."""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()

    def for_tart(self, host: str) -> dict[str, str]:
        """The environment with which tart uses these credentials, and for this registry only."""
        return {HOSTNAME: host, USERNAME: self.username, PASSWORD: self.password}


class Unavailable(Exception):
    """A source cannot be read; the message names it, the cause and the fix."""


class OnlyForTart(Unavailable):
    """The source may have credentials that tart can read, though this process cannot."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a lookup: credentials, if there are any, and the sources that could not be read."""

    credentials: Credentials | None = None
    notes: tuple[str, ...] = ()
    only_for_tart: bool = False  # one of these may have what tart needs


class Provider(Protocol):
    """One source."""

    def find(self, host: str) -> Awaitable[Credentials | None]:
        """The credentials for this `host[:port]`; None if it has none. Raises `Unavailable`."""
        ...


class Chain:
    """Sources, asked in their order."""

    def __init__(self, *providers: Provider) -> None:
        self._providers = providers

    async def find(self, host: str) -> Found:
        """The first credentials for this `host[:port]`."""
        notes: list[str] = []
        only_for_tart = False
        for each in self._providers:
            try:
                found = await each.find(host)
            except Unavailable as error:
                notes.append(str(error))
                only_for_tart = only_for_tart or isinstance(error, OnlyForTart)
                continue
            if found is not None:
                return Found(credentials=found, notes=tuple(notes))
        return Found(notes=tuple(notes), only_for_tart=only_for_tart)


class Environment:
    """Tart's variables."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    async def find(self, host: str) -> Credentials | None:
        """What the variables have, unless they are for another registry."""
        only = self._environ.get(HOSTNAME)
        if only is not None and only != host:
            return None
        username, password = self._environ.get(USERNAME), self._environ.get(PASSWORD)
        if username is None and password is None:
            return None
        if username is None or password is None:
            there, missing = (USERNAME, PASSWORD) if password is None else (PASSWORD, USERNAME)
            raise Unavailable(f"{there} is set without {missing}: set both")
        return checked(username, password, source=Source.ENVIRONMENT, detail=USERNAME)


class _Auth(msgspec.Struct):
    auth: str = ""
    username: str = ""
    password: str = ""


class _Config(msgspec.Struct, rename="camel"):
    auths: dict[str, _Auth] = {}
    cred_helpers: dict[str, str] = {}
    creds_store: str = ""


class _Answer(msgspec.Struct, rename="pascal"):
    """What a helper prints."""

    username: str
    secret: str


class DockerConfig:
    """Docker's configuration, and the helpers that it names."""

    def __init__(
        self, path: Path, *, environ: Mapping[str, str], deadline: float = DEADLINE
    ) -> None:
        self._path = path
        self._environ = environ  # of the helpers
        self._deadline = deadline

    async def find(self, host: str) -> Credentials | None:
        """What the file has for the registry, or what its helper has."""
        config = self._read()
        if config is None:
            return None
        if (found := self._written(config, host)) is not None:
            return found
        if (helper := _helper(config, host)) is not None:
            return await self._ask(helper, host)
        return await self._ask(config.creds_store, host) if config.creds_store else None

    def _read(self) -> _Config | None:
        try:
            with self._path.open("rb") as file:
                content = file.read(_LARGEST + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be read: {error.strerror}") from None
        if len(content) > _LARGEST:
            raise Unavailable(f"{self._path} is larger than {_LARGEST >> 20} MiB")
        try:
            return msgspec.json.decode(content, type=_Config)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # The decoder's own message could quote the file.
            raise Unavailable(
                f"{self._path} is not a configuration of docker: repair it, or 'docker login' again"
            ) from None

    def _written(self, config: _Config, host: str) -> Credentials | None:
        entry = config.auths.get(host)
        if entry is None:
            return None
        username, password = entry.username, entry.password
        if entry.auth:
            username, password = self._decoded(entry.auth, host)
        if not username or not password:
            return None  # 'docker login' leaves an empty entry where a helper has the password
        detail = str(self._path)
        return checked(username, password, source=Source.DOCKER_CONFIG, detail=detail)

    def _decoded(self, auth: str, host: str) -> tuple[str, str]:
        try:
            username, colon, password = (
                base64.b64decode(auth, validate=True).decode().partition(":")
            )
        except (binascii.Error, ValueError):
            colon = username = password = ""
        if not colon:
            raise Unavailable(
                f"{self._path} has an invalid 'auth' for {host}: it is user:password in base64"
            )
        return username, password

    async def _ask(self, name: str, host: str) -> Credentials | None:
        """Ask a helper; one that knows nothing about the registry exits with an error."""
        program = f"docker-credential-{name}"
        if not _HELPER.fullmatch(name):
            raise Unavailable(f"{self._path} names an invalid credential helper for {host}")
        try:
            done = await proc.run(
                (program, "get"),
                timeout=self._deadline,
                input=f"{host}\n".encode(),
                env=self._environ,
            )
        except proc.DeadlineExceeded:
            raise Unavailable(
                f"{program} did not answer within {self._deadline:g} s: run it by hand"
            ) from None
        except proc.ProgramMissing:
            raise Unavailable(
                f"{program}, which {self._path} names, is not on this service's PATH: install it or extend PATH"
            ) from None
        except proc.ProcError as error:
            raise Unavailable(str(error)) from None
        if done.code != 0:
            raise Unavailable(f"{program} has nothing for {host} (exit code {done.code})")
        return self._answered(program, done.stdout)

    def _answered(self, program: str, output: bytes) -> Credentials:
        try:
            found = msgspec.json.decode(output, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Unavailable(f"{program} printed something else than credentials") from None
        if found.username == _IDENTITY_TOKEN:
            raise Unavailable(
                f"{program} has an identity token, which neither tart nor runyard can use: log in with a password"
                " or a personal access token"
            )
        source = Source.DOCKER_HELPER
        return checked(found.username, found.secret, source=source, detail=program)


def checked(username: str, password: str, *, source: Source, detail: str) -> Credentials:
    """The credentials, if they can be sent at all."""
    sendable = _SENDABLE.fullmatch(username) and _SENDABLE.fullmatch(password)
    if not sendable or ":" in username:
        raise Unavailable(
            f"{detail} has an empty user name or password, or one with a line break or a colon in the name"
        )
    return Credentials(username=username, password=password, source=source, detail=detail)


def _helper(config: _Config, host: str) -> str | None:
    """The helper for a registry; tart takes the names in `credHelpers` for patterns as well."""
    if (exact := config.cred_helpers.get(host)) is not None:
        return exact
    for pattern, name in config.cred_helpers.items():
        try:
            if re.fullmatch(pattern, host):
                return name
        except (re.error, RecursionError):
            continue
    return None
