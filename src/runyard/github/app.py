"""Authenticates to GitHub: as an App that exchanges JWTs for installation tokens; or, for one repository alone, with
a personal access token.

Signing is the slow part (a millisecond of RSA), so one JWT serves for most of its ten minutes. An
installation token lives for an hour and is replaced well before, so that no call starts with a
token that ends while it travels.

Invariants:
- `iat` lies a minute in the past: a host whose clock is slightly ahead is still accepted.
- One refresh per installation is in flight; other callers wait for that one and share
  its result or its failure. A cancelled leader hands over to a follower.
- Neither the key nor a token appears in a repr.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Protocol

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from runyard.clock import Clock
from runyard.github.errors import NotAllowed
from runyard.github.scope import Scope, repository

_BACKDATE = 60
_LIFETIME = 540  # after now; with the backdating this is GitHub's maximum of ten minutes
_JWT_MARGIN = 30


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """An installation token and the wall-clock time at which it ends."""

    value: str
    expires_at: float

    def __repr__(self) -> str:
        return f"Token(expires_at={self.expires_at})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("expires_at", self.expires_at)]


Fetch = Callable[[int], Awaitable[Token]]
_Flight = asyncio.Future[Token | Exception | None]


class Auth(Protocol):
    """Provides credentials for a call. `only` is the one repository that may be used, if there is just one."""

    @property
    def only(self) -> Scope | None:
        """The one repository that we may act in; `None`: wherever the App is installed."""
        ...

    def jwt(self) -> str:
        """Return the App's JWT."""
        ...

    def forget_jwt(self) -> None:
        """Drop the last JWT, because GitHub did not accept it."""
        ...

    async def token(self, installation_id: int, fetch: Fetch) -> str:
        """Return the token of an installation."""
        ...

    def forget(self, installation_id: int, token: str) -> None:
        """Drop a token that GitHub did not accept."""
        ...


class TokenAuth:
    """A personal access token, fine-grained or classic, for one repository."""

    # There is no installation, but rows and budgets need a number; no App's ids are that low.
    INSTALLATION = 1

    def __init__(self, token: str, *, repository_name: str) -> None:
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError("invalid token: it is empty, or has characters that no token has")
        self._token = token
        self.only: Scope | None = repository(repository_name, installation_id=self.INSTALLATION)

    def __repr__(self) -> str:
        return f"TokenAuth({self.only})"

    def jwt(self) -> str:
        """A personal access token has no JWT."""
        raise NotAllowed(
            "this call needs a GitHub App, and only a personal access token is configured"
        )

    def forget_jwt(self) -> None:
        """Do nothing: there is no JWT."""

    async def token(self, installation_id: int, fetch: Fetch) -> str:
        """Return the configured token."""
        return self._token

    def forget(self, installation_id: int, token: str) -> None:
        """Do nothing: there is no other token."""


@lru_cache(maxsize=8)
def _load_key(pem: bytes) -> RSAPrivateKey:
    """Load and check an RSA key. That takes 60 ms, and a process loads the same key several times."""
    key = load_pem_private_key(pem, password=None)
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("an App's private key is an RSA key")
    return key


class AppAuth:
    """The App's key, its current JWT, and its installation tokens."""

    def __init__(
        self, *, app_id: int, private_key: str | bytes, clock: Clock, refresh_early: float = 300.0
    ) -> None:
        pem = private_key.encode() if isinstance(private_key, str) else private_key
        self.app_id = app_id
        self.only: Scope | None = None
        self._key = _load_key(pem)
        self._clock = clock
        self._refresh_early = refresh_early
        self._jwt = ""
        self._jwt_ends = 0.0
        self._tokens: dict[int, Token] = {}
        self._flights: dict[int, _Flight] = {}

    def jwt(self) -> str:
        """The App's JWT, signed again when the last one is about to end."""
        now = self._clock.now()
        # Also when the wall clock was set back: a JWT issued in GitHub's future is refused.
        stale = now >= self._jwt_ends - _JWT_MARGIN or now < self._jwt_ends - _LIFETIME
        if stale:
            issued = int(now)
            claims = {"iat": issued - _BACKDATE, "exp": issued + _LIFETIME, "iss": str(self.app_id)}
            self._jwt = jwt.encode(claims, self._key, algorithm="RS256")
            self._jwt_ends = float(issued + _LIFETIME)
        return self._jwt

    def forget_jwt(self) -> None:
        """Sign a new one next time: GitHub did not accept this one."""
        self._jwt_ends = 0.0

    def forget(self, installation_id: int, token: str) -> None:
        """Drop a token that GitHub refused, unless it has been replaced meanwhile."""
        held = self._tokens.get(installation_id)
        if held is not None and held.value == token:
            del self._tokens[installation_id]

    async def token(self, installation_id: int, fetch: Fetch) -> str:
        """A token with some life left; `fetch` is called when there is none, once for all waiting callers."""
        while True:
            held = self._tokens.get(installation_id)
            if held is not None and held.expires_at - self._clock.now() > self._refresh_early:
                return held.value
            flight = self._flights.get(installation_id)
            if flight is None:
                return (await self._lead(installation_id, fetch)).value
            # Shielded: a follower that is cancelled must not cancel the others' future.
            outcome = await asyncio.shield(flight)
            if isinstance(outcome, Exception):
                raise outcome
            if outcome is not None:
                return outcome.value

    async def _lead(self, installation_id: int, fetch: Fetch) -> Token:
        flight: _Flight = asyncio.get_running_loop().create_future()
        self._flights[installation_id] = flight
        outcome: Token | Exception | None = None
        try:
            outcome = self._tokens[installation_id] = await fetch(installation_id)
            return outcome
        except Exception as error:
            outcome = error
            raise
        finally:
            del self._flights[installation_id]
            # `None` after a cancellation: one of the followers becomes the leader.
            flight.set_result(outcome)
