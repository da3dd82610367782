"""The address of a Kubernetes API and the credentials for it, as values.

`kubeconfig` finds and validates them, `credentials` and `connect` act on them. Nothing here reads or runs
anything.

Invariants:
- A secret is a `Secret`: only `reveal()` returns its text. Printing, formatting, logging or
  encoding a `Config` (or an error that holds one) shows that there is a secret, never which.
- Of a plugin's arguments and environment only the names are shown: they may contain passwords.
- A `ConfigError` names the file and the entry, and says what to do; it never quotes a value.
"""

from typing import Any, NoReturn

import msgspec

REDACTED = "[redacted]"


class Secret:
    """A text that is never shown. False if it is empty."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one place that must send it."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return REDACTED if self._text else "''"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied")


class ConfigError(Exception):
    """The configuration cannot be used: where, why, and what to do about it."""

    def __init__(self, cause: str, *, fix: str, file: str = "", entry: str = "") -> None:
        where = ": ".join(part for part in (file, entry) if part)
        super().__init__(f"{where}: {cause}; {fix}" if where else f"{cause}; {fix}")
        self.cause = cause
        self.fix = fix
        self.file = file
        self.entry = entry


class Source(msgspec.Struct, frozen=True):
    """A value in the configuration itself, or in a file that may change."""

    data: Secret = Secret()
    path: str = ""

    def __bool__(self) -> bool:
        return bool(self.data or self.path)


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The address of the API. `authority` is PEM; empty means the system's own list of authorities."""

    server: str
    authority: str = ""
    insecure: bool = False
    tls_server_name: str = ""
    plugin_config: Any = None  # the cluster's configuration of plugins; opaque

    @property
    def encrypted(self) -> bool:
        """Whether the connection is TLS."""
        return self.server.startswith("https://")


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """A program that prints a credential."""

    command: str
    api_version: str
    args: tuple[Secret, ...] = ()
    env: tuple[tuple[str, Secret], ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False


class User(msgspec.Struct, frozen=True, kw_only=True):
    """The user: any of a token, a client certificate and a plugin; without any of them it is anonymous."""

    name: str = ""
    token: Source = Source()
    certificate: Source = Source()
    key: Source = Source()
    plugin: Plugin | None = None

    @property
    def anonymous(self) -> bool:
        """Whether there is no credential."""
        return not (self.token or self.certificate or self.plugin)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster, one user, one namespace, and the file that they come from."""

    source: str
    cluster: Cluster
    user: User = User()
    namespace: str = "default"
    context: str = ""
