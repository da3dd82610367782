"""Credentials for the Kubernetes API, and how they are refreshed.

Tokens and certificates are replaced while we run: the kubelet rewrites a Pod's token before it expires, a certificate
manager renews a pair of files. So everything is read again from time to time. `current()` returns the credential to use
now; `renew(refused)` returns a newer one after a 401, if there is one.

    Credentials                    the protocol
    ├── StoredCredentials          a token and a certificate in the configuration or in files
    └── plugins.PluginCredentials  a program prints them

Invariants:
- A file is read again when what we hold is a minute old, and at once after a refusal. A file that cannot be read then
  costs a log line and nothing else while we hold something.
- A missing credential is `CredentialsUnavailable`, which is a `NotSent`: no request was made.
- No message, log line or `repr` holds a token, a key or a file's content.
"""

from typing import Protocol

import msgspec

from runyard.clock import Clock
from runyard.http.errors import NotSent
from runyard.kube.config import Secret, Source, User
from runyard.kube.entries import file_problem, is_token, read_text
from runyard.telemetry.log import get_logger

MAX_AGE = 60.0  # seconds after which a file is read again


class Certificate(msgspec.Struct, frozen=True):
    """A client certificate (a chain, PEM) and its key (PEM)."""

    chain: Secret  # not secret as such; hidden because it names a user and is long
    key: Secret


class Credential(msgspec.Struct, frozen=True):
    """A credential: a bearer token, a client certificate, both, or nothing."""

    token: Secret = Secret()
    certificate: Certificate | None = None


class CredentialsUnavailable(NotSent):
    """There is no credential at the moment, so nothing was sent. The message has the fix."""

    def __init__(self, cause: str, *, fix: str) -> None:
        super().__init__(f"{cause}; {fix}")
        self.cause = cause
        self.fix = fix


class Credentials(Protocol):
    """Provides the credential for a request, and renews it."""

    async def current(self) -> Credential:
        """Return the current credential. Raises `CredentialsUnavailable`."""
        ...

    async def renew(self, refused: Credential) -> Credential:
        """Return a newer credential, or the same one. Raises `CredentialsUnavailable`."""
        ...

    async def close(self) -> None:
        """End running programs."""
        ...


class StoredCredentials:
    """A token and a certificate in the configuration or in files. Implements `Credentials`."""

    def __init__(self, user: User, *, clock: Clock) -> None:
        self._user = user
        self._clock = clock
        self._fixed = not (user.token.path or user.certificate.path or user.key.path)
        self._held: Credential | None = None
        self._read_at = 0.0
        self._log = get_logger("kube.auth")

    async def current(self) -> Credential:
        """What was read last, if that is not older than a minute."""
        if self._held is None or not (self._fixed or self._fresh()):
            return self._read_again()
        return self._held

    async def renew(self, refused: Credential) -> Credential:
        """Read again, unless another task has done so since."""
        if self._fixed or self._held is None or self._held != refused:
            return await self.current()
        return self._read_again()

    async def close(self) -> None:
        """Do nothing: no task is running."""

    def _fresh(self) -> bool:
        return self._clock.monotonic() - self._read_at < MAX_AGE

    def _read_again(self) -> Credential:
        self._read_at = self._clock.monotonic()
        try:
            self._held = self._read()
        except CredentialsUnavailable as error:
            if self._held is None:
                raise
            self._log.warning(
                "cannot read the credential files, keeping what was read before", cause=error.cause
            )
        return self._held

    def _read(self) -> Credential:
        user = self._user
        certificate = None
        if user.certificate:
            certificate = Certificate(_pem(user.certificate), _pem(user.key))
        return Credential(_token(user.token), certificate)


def _token(source: Source) -> Secret:
    if not source.path:
        return source.data
    try:
        text, why = read_text(source.path).strip(), "holds no token"
    except (OSError, ValueError) as error:
        text, why = "", file_problem(error)
    if is_token(text):
        return Secret(text)
    if source.data:
        return source.data  # as with kubectl: the file is newer, if there is one
    cause = f"{source.path} {why}"
    raise CredentialsUnavailable(cause, fix="write a token into that file")


def _pem(source: Source) -> Secret:
    if not source.path:
        return source.data
    try:
        return Secret(read_text(source.path))
    except (OSError, ValueError) as error:
        cause = f"{source.path} {file_problem(error)}"
    raise CredentialsUnavailable(cause, fix="check the path and its permissions")
