"""Makes and checks tokens that limit a caller to the test results of one account or project.

The dashboard's token (or a loopback client where there is none) may see and upload everything. A CI job must not have
it. So its holder can make narrower tokens: for the results of one account or one project, to read or also to upload,
until a day.

    ryt1.eyJhY2NvdW50….5f3c…

Invariants:
- A token contains its scope and is signed; the server stores none. It is valid until its day or until its key is
  removed, which revokes all tokens of that key. There is no other revocation, so tokens are short-lived.
- What is outside a caller's scope is 404, like an id that does not exist.
- Signatures are compared in constant time with every valid key; the first one signs.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

import msgspec

from runyard.clock import Clock

PREFIX = "ryt1."
_PURPOSE = b"runyard test results token 1"
_LONGEST = 1000


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The results that a caller may use; an empty name means all accounts, or all projects."""

    account: str = ""
    project: str = ""
    may_upload: bool = True

    @property
    def everything(self) -> bool:
        """Whether it covers all accounts and projects."""
        return not self.account

    def holds(self, account: str, project: str) -> bool:
        """Whether it covers the results of that project."""
        return self.account in ("", account) and self.project in ("", project)


EVERYTHING = Scope()


class _Claims(msgspec.Struct, frozen=True, kw_only=True):
    account: str
    project: str
    may_upload: bool
    until: int


class Tokens:
    """Makes and checks tokens."""

    def __init__(self, keys: Sequence[bytes], *, clock: Clock) -> None:
        if not keys:
            raise ValueError("no key to sign tokens with is given")
        self._keys = tuple(hmac.new(key, _PURPOSE, hashlib.sha256).digest() for key in keys)
        self._clock = clock

    def make(self, scope: Scope, *, lasts: float) -> tuple[str, float]:
        """Make a token of that scope; returns it and when it expires."""
        if scope.everything:
            raise ValueError("a token needs an account")
        until = int(self._clock.now() + lasts)
        claims = _Claims(
            account=scope.account,
            project=scope.project,
            may_upload=scope.may_upload,
            until=until,
        )
        text = base64.urlsafe_b64encode(msgspec.json.encode(claims)).decode().rstrip("=")
        return f"{PREFIX}{text}.{_signature(self._keys[0], text)}", float(until)

    def verify(self, token: str) -> Scope | None:
        """The scope of the token; None: it is not valid or has expired."""
        text, dot, signature = token.removeprefix(PREFIX).partition(".")
        if not token.startswith(PREFIX) or not dot or len(token) > _LONGEST or not token.isascii():
            return None
        good = [hmac.compare_digest(signature, _signature(key, text)) for key in self._keys]
        if not any(good):
            return None
        try:
            claims = msgspec.json.decode(base64.urlsafe_b64decode(text + "=="), type=_Claims)
        except (binascii.Error, ValueError):  # signed by a release with another format
            return None
        if claims.until <= self._clock.now() or not claims.account:
            return None
        return Scope(account=claims.account, project=claims.project, may_upload=claims.may_upload)


def _signature(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
