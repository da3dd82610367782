"""Authenticates callers: the App by a JWT signed with its key, an installation by a token that lasts an hour.

Refusals carry GitHub's status and GitHub's reasons in our own wording. A verified JWT is cached until it expires,
because its text proves the same thing every time.
"""

import hashlib
import random
from collections.abc import Mapping

import jwt
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from runyard.clock import Clock
from runyard.embedded.github.changes import Touch, ignored
from runyard.embedded.github.model import Installation
from runyard.embedded.github.settings import PracticeSettings

_MAX_LIFETIME = 600
_SKEW = 5.0


class KeyPair(msgspec.Struct, frozen=True, kw_only=True):
    """An App's key pair: the private key that GitHub issues, and the public key that GitHub stores."""

    private_pem: str
    public_pem: str

    def __repr__(self) -> str:
        return "KeyPair(…)"


def generate_key_pair() -> KeyPair:
    """Generates a key; slow, so generate one and share it. A replay does not depend on its bits."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return KeyPair(private_pem=private.decode(), public_pem=public.decode())


class Denied(Exception):
    """The caller is not authenticated, or may not do this."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class NotFound(Denied):
    """404: absent, or hidden from this caller."""

    def __init__(self) -> None:
        super().__init__(404, "Not Found")


class Grant(msgspec.Struct, frozen=True):
    """An issued token, without its text: it cannot be used from here."""

    installation_id: int
    expires_at: float


class Personal(msgspec.Struct, frozen=True):
    """What a personal access token is for."""

    repository: str
    hooks: bool  # whether it may read webhooks


class Authenticator:
    """Checks credentials and issues installation tokens."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        app_id: int,
        public_key: str,
        installations: Mapping[int, Installation],
        settings: PracticeSettings,
        touch: Touch = ignored,
    ) -> None:
        self._keys = [_rsa(public_key)]
        self._installations = installations
        self._clock = clock
        self._rng = rng
        self._app_id = app_id
        self._settings = settings
        self.touch = touch
        self._known: dict[str, float] = {}
        self._grants: dict[str, Grant] = {}  # by the digest of the token
        self._personal: dict[str, Personal] = {}  # by the digest of the token

    def allow(self, token: str, *, repository: str, hooks: bool = True) -> None:
        """Adds a personal access token for one repository. Configured, not stored."""
        self._personal[_digest(token)] = Personal(repository.lower(), hooks)

    def personal(self, credential: str) -> Personal | None:
        """What a personal access token is for; None if it is no such token."""
        return self._personal.get(_digest(credential))

    def add_key(self, public_key: str) -> None:
        """Adds a key to the App, beside those that it had."""
        self._keys.append(_rsa(public_key))

    def check_app(self, credential: str) -> None:
        """Authenticates the App by its JWT; raises `Denied`."""
        now = self._clock.now()
        ends = self._known.get(credential)
        if ends is None:
            ends = self._verify(credential, now=now)
            self._known = {text: end for text, end in self._known.items() if end > now}
            self._known[credential] = ends
        if ends <= now - _SKEW:
            raise Denied(401, "'Expiration time' claim ('exp') is in the past")

    def check_installation(self, credential: str) -> Installation:
        """Authenticates an installation by its token; raises `Denied`."""
        grant = self._grants.get(_digest(credential))
        if grant is None or grant.expires_at <= self._clock.now():
            raise Denied(401, "Bad credentials")
        installation = self._installations[grant.installation_id]
        if installation.suspended_at is not None:
            raise Denied(403, "This installation has been suspended")
        return installation

    def grant(self, installation: Installation) -> tuple[str, float]:
        """Issues a token; returns it and when it expires."""
        now = self._clock.now()
        for key in [key for key, held in self._grants.items() if held.expires_at <= now]:
            self._drop(key)
        token = "ghs_" + self._rng.randbytes(18).hex()
        expires_at = float(int(now) + self._settings.token_seconds)
        self._grants[_digest(token)] = Grant(installation.id, expires_at)
        self.touch("grant", _digest(token))
        return token, expires_at

    def revoke_all(self) -> None:
        """Revokes every token issued so far."""
        for key in list(self._grants):
            self._drop(key)

    def held(self, key: str) -> Grant | None:
        """A grant by its token's digest."""
        return self._grants.get(key)

    def restore(self, grants: Mapping[str, Grant]) -> None:
        """Restores the grants."""
        self._grants.update(grants)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the first key, for logs and records."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return hashlib.sha256(
            self._keys[0].public_bytes(serialization.Encoding.DER, form)
        ).hexdigest()

    def _drop(self, key: str) -> None:
        del self._grants[key]
        self.touch("grant", key)

    def _claims(self, credential: str) -> dict[str, object]:
        for key in self._keys:
            try:
                claims: dict[str, object] = jwt.decode(
                    credential,
                    key,
                    algorithms=["RS256"],
                    # The caller checks the times with the injected clock.
                    options={"verify_exp": False, "verify_iat": False, "verify_nbf": False},
                )
            except (jwt.PyJWTError, ValueError, UnicodeError):
                continue
            return claims
        raise Denied(401, "A JSON web token could not be decoded")

    def _verify(self, credential: str, *, now: float) -> float:
        claims = self._claims(credential)
        issued, ends = claims.get("iat"), claims.get("exp")
        if str(claims.get("iss")) != str(self._app_id):
            raise Denied(401, "'Issuer' claim ('iss') must be the App's id")
        if type(issued) is not int or issued > now + _SKEW:
            raise Denied(401, "'Issued at' claim ('iat') must be an integer in the past")
        if type(ends) is not int or ends > now + _MAX_LIFETIME + _SKEW:
            raise Denied(401, "'Expiration time' claim ('exp') is too far in the future")
        return float(ends)


def _rsa(public_key: str) -> rsa.RSAPublicKey:
    key = serialization.load_pem_public_key(public_key.encode())
    if not isinstance(key, rsa.RSAPublicKey):
        raise ValueError("an App's key is an RSA key")
    return key


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
