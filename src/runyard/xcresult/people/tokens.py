"""Who may ask for whose test results.

The server has one token, the dashboard's: whoever shows it (or sits on loopback where there is none) runs the fleet,
and sees and uploads everything. A CI job must not hold that. So whoever holds it can make narrower ones: for the test
results of one account, or of one project of it, to look only or to upload too, until a day.

    ryt1.eyJhY2NvdW50….5f3c…

Invariants:
- A token says what it is good for and is signed; the server keeps none. It ends with its day, or with the key: a key
  that is taken away takes all of its tokens with it. There is no other way to revoke one, so they are short-lived.
- What is not in a caller's scope does not exist for it: 404, as for an id that nobody has.
- Signatures are compared in constant time, against every key that is valid; the first one signs.
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
    """Whose results; an empty name is everybody's, or every project's."""

    account: str = ""
    project: str = ""
    may_upload: bool = True

    @property
    def everything(self) -> bool:
        """Whoever runs the fleet."""
        return not self.account

    def holds(self, account: str, project: str) -> bool:
        """Whether that project's results are within it."""
        return self.account in ("", account) and self.project in ("", project)


EVERYTHING = Scope()


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    account: str
    project: str
    may_upload: bool
    until: int


class Tokens:
    """Makes tokens and judges them."""

    def __init__(self, keys: Sequence[bytes], *, clock: Clock) -> None:
        if not keys:
            raise ValueError("tokens need a key")
        self._keys = tuple(hmac.new(key, _PURPOSE, hashlib.sha256).digest() for key in keys)
        self._clock = clock

    def make(self, scope: Scope, *, lasts: float) -> tuple[str, float]:
        """A token of that scope, and when it ends."""
        if scope.everything:
            raise ValueError("a token is for one account")
        until = int(self._clock.now() + lasts)
        said = _Said(
            account=scope.account,
            project=scope.project,
            may_upload=scope.may_upload,
            until=until,
        )
        text = base64.urlsafe_b64encode(msgspec.json.encode(said)).decode().rstrip("=")
        return f"{PREFIX}{text}.{_signature(self._keys[0], text)}", float(until)

    def judge(self, token: str) -> Scope | None:
        """What the token is good for; None: it is not ours, or has ended."""
        text, dot, signature = token.removeprefix(PREFIX).partition(".")
        if not token.startswith(PREFIX) or not dot or len(token) > _LONGEST or not token.isascii():
            return None
        good = [hmac.compare_digest(signature, _signature(key, text)) for key in self._keys]
        if not any(good):
            return None
        try:
            said = msgspec.json.decode(base64.urlsafe_b64decode(text + "=="), type=_Said)
        except (binascii.Error, ValueError):  # signed by a release that says it otherwise
            return None
        if said.until <= self._clock.now() or not said.account:
            return None
        return Scope(account=said.account, project=said.project, may_upload=said.may_upload)


def _signature(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
