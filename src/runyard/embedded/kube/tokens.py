"""ServiceAccount tokens: issued on request, bound to a Pod, and reviewed.

A token is a signed statement; whether it still counts is decided at the review, against the objects of
this moment: the account must exist with the same uid, and so must the Pod that the token is bound to.
So deleting a Pod revokes its token, also if a Pod of the same name comes back.
"""

import random
from typing import Any, TypeVar

import jwt
import msgspec
from jwt.types import Options

from runyard.clock import Clock
from runyard.embedded.kube.auth import User
from runyard.embedded.kube.resources import PODS, SERVICE_ACCOUNTS, TOKEN_REVIEWS, Object, Resource
from runyard.embedded.kube.status import (
    Cause,
    bad_request,
    conflict,
    invalid,
    not_found,
    not_served,
)
from runyard.embedded.kube.store import Record, Store
from runyard.wire.instants import from_rfc3339, to_rfc3339

T = TypeVar("T")

ISSUER = "https://kubernetes.default.svc"
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
_SHORTEST, _LONGEST, _USUAL = 600, 2**32, 3600
_DELETED_LEEWAY = 60.0  # a Pod that is overdue for so long no longer speaks for itself
_UNCHECKED: Options = {
    "verify_exp": False,  # by our clock, below
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


class BoundRef(msgspec.Struct, frozen=True, rename="camel"):
    """The object whose end is the token's end."""

    kind: str = ""
    api_version: str = "v1"
    name: str = ""
    uid: str = ""


class TokenSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a TokenRequest asks for."""

    audiences: tuple[str, ...] = ()
    expiration_seconds: int = _USUAL
    bound_object_ref: BoundRef | None = None


class ReviewSpec(msgspec.Struct, frozen=True):
    """What a TokenReview asks about."""

    token: str
    audiences: tuple[str, ...] = ()


class Claim(msgspec.Struct, frozen=True):
    """A name and the uid behind it."""

    name: str
    uid: str


class Private(msgspec.Struct, frozen=True):
    """The part of the statement about objects."""

    namespace: str
    serviceaccount: Claim
    pod: Claim | None = None


class Statement(msgspec.Struct, frozen=True):
    """What a token says."""

    sub: str
    aud: tuple[str, ...]
    exp: int
    jti: str
    private: Private = msgspec.field(name="kubernetes.io")


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """A token that counts."""

    user: User
    audiences: tuple[str, ...]


class Tokens:
    """Issues and reviews tokens."""

    def __init__(self, store: Store, *, clock: Clock, rng: random.Random, key: bytes) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._key = key

    def issue(self, account: Record, body: Any) -> Object:
        """Answer a TokenRequest for that account."""
        spec = _spec_of(SERVICE_ACCOUNTS, account.name, body, TokenSpec)
        seconds = spec.expiration_seconds
        if not _SHORTEST <= seconds <= _LONGEST:
            why = f"must be between {_SHORTEST} and {_LONGEST} seconds"
            cause = Cause("spec.expirationSeconds", why)
            raise invalid(SERVICE_ACCOUNTS, account.name, [cause])
        audiences = spec.audiences or (ISSUER,)
        pod = self._bound_pod(account, spec.bound_object_ref)
        now = int(self._clock.now())
        token = self._sign(account, pod, audiences=audiences, now=now, seconds=seconds)
        status = {"token": token, "expirationTimestamp": to_rfc3339(now + seconds)}
        asked = {"audiences": list(audiences), "expirationSeconds": seconds}
        if pod is not None:
            asked["boundObjectRef"] = msgspec.to_builtins(spec.bound_object_ref)
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": account.name, "namespace": account.namespace},
            "spec": asked,
            "status": status,
        }

    def _bound_pod(self, account: Record, ref: BoundRef | None) -> Record | None:
        if ref is None:
            return None
        if (ref.kind, ref.api_version) != ("Pod", "v1"):
            raise not_served(f"tokens bound to a {ref.kind or 'nameless kind'}")
        pod = self._store.get(PODS, account.namespace, ref.name)
        if pod is None:
            raise not_found(PODS, ref.name)
        if ref.uid and ref.uid != pod.uid:
            why = f"the UID in the bound object reference ({ref.uid}) does not match the Pod's"
            raise conflict(PODS, ref.name, why)
        if pod.obj["spec"].get("serviceAccountName") != account.name:
            raise bad_request(
                f"cannot bind token for serviceaccount {account.name!r} to a Pod that runs as another"
            )
        return pod

    def _sign(
        self,
        account: Record,
        pod: Record | None,
        *,
        audiences: tuple[str, ...],
        now: int,
        seconds: int,
    ) -> str:
        private: Object = {
            "namespace": account.namespace,
            "serviceaccount": {"name": account.name, "uid": account.uid},
        }
        if pod is not None:
            private["pod"] = {"name": pod.name, "uid": pod.uid}
        statement = {
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{account.namespace}:{account.name}",
            "aud": list(audiences),
            "iat": now,
            "nbf": now,
            "exp": now + seconds,
            "jti": f"{self._rng.getrandbits(128):032x}",
            "kubernetes.io": private,
        }
        return jwt.encode(statement, self._key, algorithm="HS256")

    def review(self, body: Any) -> Object:
        """Answer a TokenReview."""
        spec = _spec_of(TOKEN_REVIEWS, "", body, ReviewSpec)
        try:
            verified = self.verify(spec.token, spec.audiences or (ISSUER,))
        except ValueError as error:
            return {"authenticated": False, "user": {}, "error": str(error)}
        user = verified.user
        shown: Object = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
        if user.extra:
            shown["extra"] = {key: [value] for key, value in user.extra}
        return {"authenticated": True, "user": shown, "audiences": list(verified.audiences)}

    def verify(self, token: str, audiences: tuple[str, ...]) -> Verified:
        """Who the token speaks for, now; raises `ValueError` with the reason if for nobody."""
        statement = self._read(token)
        if statement.exp <= self._clock.now():
            raise ValueError("token has expired")
        shared = tuple(item for item in statement.aud if item in audiences)
        if not shared:
            raise ValueError(f"token audiences {list(statement.aud)} is invalid for {audiences}")
        private = statement.private
        account = private.serviceaccount
        self._still(SERVICE_ACCOUNTS, private.namespace, account)
        extra: tuple[tuple[str, str], ...] = ()
        if private.pod is not None:
            self._still(PODS, private.namespace, private.pod)
            extra = ((POD_NAME, private.pod.name), (POD_UID, private.pod.uid))
        groups = (
            "system:serviceaccounts",
            f"system:serviceaccounts:{private.namespace}",
            "system:authenticated",
        )
        user = User(name=statement.sub, uid=account.uid, groups=groups, extra=extra)
        return Verified(user=user, audiences=shared)

    def _read(self, token: str) -> Statement:
        try:
            raw = jwt.decode(token, self._key, algorithms=["HS256"], options=_UNCHECKED)
            return msgspec.convert(raw, Statement)
        except (jwt.PyJWTError, msgspec.ValidationError, ValueError):
            raise ValueError("invalid bearer token") from None

    def _still(self, resource: Resource, namespace: str, claim: Claim) -> None:
        record = self._store.get(resource, namespace, claim.name)
        if record is None or record.uid != claim.uid:
            raise ValueError(f"{resource.kind} {namespace}/{claim.name} of the token has gone")
        deleted = record.meta.get("deletionTimestamp")
        if deleted and from_rfc3339(deleted) + _DELETED_LEEWAY < self._clock.now():
            raise ValueError(f"{resource.kind} {namespace}/{claim.name} of the token is deleted")


def _spec_of(resource: Resource, name: str, body: Any, type_: type[T]) -> T:
    if not isinstance(body, dict):
        raise bad_request("the body of the request is not a JSON object")
    try:
        return msgspec.convert(body.get("spec", {}), type_)
    except msgspec.ValidationError as error:
        raise invalid(resource, name, [Cause("spec", str(error))]) from None
