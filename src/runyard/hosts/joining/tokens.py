"""Stores join tokens at the Kubernetes API, hashed, and lets each be used once.

A token is a Secret with the SHA-256 of its secret part; the secret itself is printed once and never stored. It is
random and long, so a plain hash cannot be reversed.

Invariants:
- **Single use**: a token is marked as used by a patch with the resourceVersion that was read. Of two machines that
  show it at the same moment, one gets a conflict.
- **No oracle**: only who knows the secret learns whether the token was used or has expired. An unknown id and a wrong
  secret get the same answer after the same comparison.
- Used and expired tokens are kept for a day, so that their holder gets the exact reason.
"""

import base64
import contextlib
import hashlib
import hmac
import random

import msgspec

from runyard.kube.client import Kube
from runyard.kube.errors import Conflict, NotFound
from runyard.kube.kinds import SECRETS
from runyard.wire import names
from runyard.wire.joining import TOKEN_ID, TOKEN_LABEL, TOKEN_PREFIX, JoinToken
from runyard.wire.problem_codes import ProblemCode

KEPT = 86400.0  # seconds after which an expired token is forgotten
_NAMESPACE = names.CONTROLLER_NAMESPACE
_ID_BYTES, _SECRET_BYTES = 5, 20
_NO_DIGEST = hashlib.sha256(b"").hexdigest()  # compared when there is no such token


class StoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """A join token as it is stored. Times are seconds since the epoch; `name` is empty if any host may use it."""

    id: str
    digest: str
    created: float
    expires: float
    name: str = ""
    used_by: str = ""
    resource_version: str = ""

    def state(self, now: float) -> str:
        """`used`, `expired` or `valid`."""
        if self.used_by:
            return "used"
        return "expired" if self.expires <= now else "valid"


class TokenRefused(Exception):
    """A token that cannot be used; the code is the reason."""

    def __init__(self, code: ProblemCode, **detail: str) -> None:
        super().__init__(code.value)
        self.code = code
        self.detail = detail


def digest_of(secret: str) -> str:
    """What is stored of a token's secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


class JoinTokens:
    """The join tokens of one machine."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def create(
        self, pin: str, *, now: float, seconds: float, rng: random.Random, name: str = ""
    ) -> JoinToken:
        """A new token; `rng` must be the system's generator."""
        await self._forget(now)
        token = JoinToken(rng.randbytes(_ID_BYTES).hex(), rng.randbytes(_SECRET_BYTES).hex(), pin)
        stored = StoredToken(
            id=token.id,
            digest=digest_of(token.secret),
            created=now,
            expires=now + seconds,
            name=name,
        )
        meta = {"name": TOKEN_PREFIX + token.id, "labels": {TOKEN_LABEL: "true"}}
        body = {"metadata": meta, "type": TOKEN_LABEL, "data": _data(stored)}
        await self._kube.create(SECRETS, body, namespace=_NAMESPACE)
        return token

    async def all(self) -> tuple[StoredToken, ...]:
        """Every token that is kept, oldest first."""
        found = await self._kube.list(SECRETS, namespace=_NAMESPACE, labels=f"{TOKEN_LABEL}=true")
        tokens = (_stored(each) for each in found.items)
        return tuple(sorted(tokens, key=lambda each: (each.created, each.id)))

    async def revoke(self, id_: str) -> bool:
        """Forget a token; false if there is none with this id."""
        try:
            await self._kube.delete(SECRETS, TOKEN_PREFIX + id_, namespace=_NAMESPACE)
        except NotFound:
            return False
        return True

    async def check(self, id_: str, secret: str, *, name: str, now: float) -> StoredToken:
        """The token if this host may use it now; else `TokenRefused`."""
        stored = await self._read(id_) if TOKEN_ID.fullmatch(id_) else None
        expected = _NO_DIGEST if stored is None else stored.digest
        known = hmac.compare_digest(expected, digest_of(secret))
        if stored is None or not known:
            raise TokenRefused(ProblemCode.JOIN_TOKEN_WRONG)
        match stored.state(now):
            case "used":
                raise TokenRefused(ProblemCode.JOIN_TOKEN_USED)
            case "expired":
                raise TokenRefused(ProblemCode.JOIN_TOKEN_EXPIRED)
        if stored.name and stored.name != name:
            raise TokenRefused(ProblemCode.JOIN_TOKEN_OTHER_NAME, name=stored.name)
        return stored

    async def use(self, token: StoredToken, *, host: str) -> None:
        """Mark it as used; `TokenRefused` if another machine was faster, or if it was revoked meanwhile."""
        used = msgspec.structs.replace(token, used_by=host)
        try:
            await self._kube.patch(
                SECRETS,
                TOKEN_PREFIX + token.id,
                {"data": _data(used)},
                namespace=_NAMESPACE,
                resource_version=token.resource_version,
            )
        except Conflict:
            raise TokenRefused(ProblemCode.JOIN_TOKEN_USED) from None
        except NotFound:
            raise TokenRefused(ProblemCode.JOIN_TOKEN_WRONG) from None

    async def _read(self, id_: str) -> StoredToken | None:
        try:
            found = await self._kube.get(SECRETS, TOKEN_PREFIX + id_, namespace=_NAMESPACE)
        except NotFound:
            return None
        return _stored(found)

    async def _forget(self, now: float) -> None:
        for each in await self.all():
            if each.expires + KEPT <= now:
                with contextlib.suppress(NotFound):
                    await self._kube.delete(SECRETS, TOKEN_PREFIX + each.id, namespace=_NAMESPACE)


def _data(token: StoredToken) -> dict[str, str]:
    fields = {
        "digest": token.digest,
        "created": repr(token.created),
        "expires": repr(token.expires),
        "name": token.name,
        "used-by": token.used_by,
    }
    return {key: base64.b64encode(value.encode()).decode() for key, value in fields.items()}


def _stored(secret: dict[str, object]) -> StoredToken:
    found = msgspec.convert(secret, _Secret)
    fields = {key: base64.b64decode(value).decode() for key, value in found.data.items()}
    return StoredToken(
        id=found.metadata.name.removeprefix(TOKEN_PREFIX),
        digest=fields.get("digest", ""),
        created=float(fields.get("created") or 0),
        expires=float(fields.get("expires") or 0),
        name=fields.get("name", ""),
        used_by=fields.get("used-by", ""),
        resource_version=found.metadata.resource_version,
    )


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    resource_version: str = ""


class _Secret(msgspec.Struct, frozen=True):
    metadata: _Meta
    data: dict[str, str] = {}
