"""Issues and reviews ServiceAccount tokens, which can be bound to a Pod.

A token is a signed set of claims. The review compares them with the stored objects: the account must exist with
the same uid, and so must the Pod that the token is bound to. So deleting a Pod revokes its token, also if a Pod
of the same name is created again.
"""

import random
import uuid
from typing import Any, TypeVar

import jwt
import msgspec
from jwt.types import Options

from runyard.clock import Clock
from runyard.embedded.kube.access.auth import AUTHENTICATED, User
from runyard.embedded.kube.resources import (
    AUTHENTICATION,
    NODES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    TOKEN_REVIEWS,
    Object,
    Resource,
)
from runyard.embedded.kube.status import (
    Cause,
    StatusError,
    bad_request,
    invalid,
    not_found,
)
from runyard.embedded.kube.storage.store import Record, Store
from runyard.wire.instants import from_rfc3339, to_rfc3339

T = TypeVar("T")

ISSUER = "https://kubernetes.default.svc"
_EXTRA = "authentication.kubernetes.io/"
POD_NAME, POD_UID = _EXTRA + "pod-name", _EXTRA + "pod-uid"
_NODE_NAME, _NODE_UID = _EXTRA + "node-name", _EXTRA + "node-uid"
_CREDENTIAL = _EXTRA + "credential-id"
_CACHE_SIZE = 4096
_MIN_SECONDS, _MAX_SECONDS, _DEFAULT_SECONDS = 600, 2**32, 3600
_DELETED_LEEWAY = 60.0  # tokens of a Pod that is overdue for so long are invalid
_UNCHECKED: Options = {
    "verify_exp": False,  # by our clock, below
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


_REQUESTS = Resource(
    plural="tokenrequests", kind="TokenRequest", group=AUTHENTICATION, stored=False
)
_BINDABLE = {("v1", resource.kind): resource for resource in (PODS, SECRETS, NODES)}


class BoundRef(msgspec.Struct, frozen=True, rename="camel"):
    """The object that the token is bound to."""

    kind: str = ""
    api_version: str = "v1"
    name: str = ""
    uid: str = ""


class TokenSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The spec of a TokenRequest."""

    audiences: tuple[str, ...] = ()
    expiration_seconds: int = _DEFAULT_SECONDS
    bound_object_ref: BoundRef | None = None


class ReviewSpec(msgspec.Struct, frozen=True):
    """The spec of a TokenReview."""

    token: str = ""
    audiences: tuple[str, ...] = ()


class Claim(msgspec.Struct, frozen=True):
    """The name and the uid of an object."""

    name: str
    uid: str


class Private(msgspec.Struct, frozen=True, omit_defaults=True):
    """The claims about objects."""

    namespace: str
    serviceaccount: Claim
    pod: Claim | None = None
    node: Claim | None = None
    secret: Claim | None = None


class Statement(msgspec.Struct, frozen=True):
    """The claims of a token."""

    sub: str
    aud: tuple[str, ...]
    exp: int
    jti: str
    private: Private = msgspec.field(name="kubernetes.io")


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """A valid token."""

    user: User
    audiences: tuple[str, ...]


class Tokens:
    """Issues and reviews tokens."""

    def __init__(self, store: Store, *, clock: Clock, rng: random.Random, key: bytes) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._key = key
        self._known: dict[
            str, Statement
        ] = {}  # tokens with a valid signature; everything else is checked each time

    def issue(self, account: Record, body: Any) -> Object:
        """Answers a TokenRequest for that account."""
        spec = _spec_of(_REQUESTS, "", body, TokenSpec)
        seconds = spec.expiration_seconds
        if seconds < _MIN_SECONDS:
            raise _invalid_seconds(seconds, "may not specify a duration less than 10 minutes")
        if seconds > _MAX_SECONDS:
            raise _invalid_seconds(seconds, "may not specify a duration larger than 2^32 seconds")
        audiences = spec.audiences or (ISSUER,)
        private = self._private(account, spec.bound_object_ref)
        now = int(self._clock.now())
        token = self._sign(account, private, audiences=audiences, now=now, seconds=seconds)
        ref = spec.bound_object_ref
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": account.name,
                "namespace": account.namespace,
                "uid": account.uid,
                "creationTimestamp": to_rfc3339(now),
            },
            "spec": {
                "audiences": list(audiences),
                "expirationSeconds": seconds,
                "boundObjectRef": None if ref is None else _as_object(ref),
            },
            "status": {"token": token, "expirationTimestamp": to_rfc3339(now + seconds)},
        }

    def _private(self, account: Record, ref: BoundRef | None) -> Private:
        """The claims about objects: the token is invalid when the object that it is bound to is gone."""
        own = Claim(account.name, account.uid)
        if ref is None:
            return Private(account.namespace, own)
        resource = _BINDABLE.get((ref.api_version, ref.kind))
        if resource is None:
            group, _, version = ref.api_version.rpartition("/")
            raise bad_request(
                f"cannot bind token to object of type {group}/{version}, Kind={ref.kind}"
            )
        found = self._store.get(
            resource, account.namespace if resource.namespaced else "", ref.name
        )
        if found is None:
            raise not_found(resource, ref.name)
        if ref.uid and ref.uid != found.uid:
            raise _other_uid(resource, ref)
        claim = Claim(found.name, found.uid)
        if resource is NODES:
            return Private(account.namespace, own, node=claim)
        if resource is SECRETS:
            return Private(account.namespace, own, secret=claim)
        if found.obj["spec"].get("serviceAccountName") != account.name:
            raise bad_request(
                f'cannot bind token for serviceaccount "{account.name}" to pod running with different'
                " serviceaccount name."
            )
        node = self._store.get(NODES, "", found.obj["spec"].get("nodeName", ""))
        where = None if node is None else Claim(node.name, node.uid)
        return Private(account.namespace, own, pod=claim, node=where)

    def _sign(
        self,
        account: Record,
        private: Private,
        *,
        audiences: tuple[str, ...],
        now: int,
        seconds: int,
    ) -> str:
        statement = {
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{account.namespace}:{account.name}",
            "aud": list(audiences),
            "iat": now,
            "nbf": now,
            "exp": now + seconds,
            "jti": str(uuid.UUID(int=self._rng.getrandbits(128), version=4)),
            "kubernetes.io": msgspec.to_builtins(private),
        }
        return jwt.encode(statement, self._key, algorithm="HS256")

    def review(self, body: Any) -> Object:
        """Answers a TokenReview."""
        spec = _spec_of(TOKEN_REVIEWS, "", body, ReviewSpec)
        if not spec.token:
            raise bad_request("token is required for TokenReview in authentication")
        try:
            verified = self.verify(spec.token, spec.audiences or (ISSUER,))
        except ValueError as error:
            return {"user": {}, "error": str(error)}
        user = verified.user
        shown: Object = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
        shown["extra"] = {key: [value] for key, value in user.extra}
        return {"authenticated": True, "user": shown, "audiences": list(verified.audiences)}

    def verify(self, token: str, audiences: tuple[str, ...]) -> Verified:
        """The user of the token; raises `ValueError` with the reason if it is not valid."""
        statement = self._read(token)
        if statement.exp <= self._clock.now():
            raise ValueError("[invalid bearer token, service account token has expired]")
        shared = tuple(item for item in statement.aud if item in audiences)
        if not shared:
            raise ValueError(
                f"[invalid bearer token, token audiences {_listed(statement.aud)} is invalid for the"
                f" target audiences {_listed(audiences)}]"
            )
        private = statement.private
        self._check_exists(SERVICE_ACCOUNTS, private.namespace, private.serviceaccount)
        if private.secret is not None:
            self._check_exists(SECRETS, private.namespace, private.secret)
        if private.pod is not None:
            self._check_exists(PODS, private.namespace, private.pod)
        elif private.node is not None:
            self._check_exists(NODES, "", private.node)
        return Verified(user=_user(statement), audiences=shared)

    def _read(self, token: str) -> Statement:
        known = self._known.get(token)
        if known is not None:
            return known
        try:
            raw = jwt.decode(token, self._key, algorithms=["HS256"], options=_UNCHECKED)
            statement = msgspec.convert(raw, Statement)
        except (jwt.PyJWTError, msgspec.ValidationError, ValueError):
            raise ValueError("invalid bearer token") from None
        if len(self._known) >= _CACHE_SIZE:
            self._known.clear()
        self._known[token] = statement
        return statement

    def _check_exists(self, resource: Resource, namespace: str, claim: Claim) -> None:
        record = self._store.get(resource, namespace, claim.name)
        if record is None or record.uid != claim.uid:
            raise ValueError(
                f"{resource.kind} {namespace}/{claim.name} of the token no longer exists"
            )
        deleted = record.meta.get("deletionTimestamp")
        if deleted and from_rfc3339(deleted) + _DELETED_LEEWAY < self._clock.now():
            raise ValueError(f"{resource.kind} {namespace}/{claim.name} of the token is deleted")


def _user(statement: Statement) -> User:
    private = statement.private
    given = [(_CREDENTIAL, f"JTI={statement.jti}")]
    if private.node is not None:
        given += [(_NODE_NAME, private.node.name), (_NODE_UID, private.node.uid)]
    if private.pod is not None:
        given += [(POD_NAME, private.pod.name), (POD_UID, private.pod.uid)]
    groups = (
        "system:serviceaccounts",
        f"system:serviceaccounts:{private.namespace}",
        AUTHENTICATED,
    )
    return User(
        name=statement.sub, uid=private.serviceaccount.uid, groups=groups, extra=tuple(given)
    )


def _as_object(ref: BoundRef) -> dict[str, str]:
    given: dict[str, str] = msgspec.to_builtins(ref)
    return {key: value for key, value in given.items() if value}


def _listed(audiences: tuple[str, ...]) -> str:
    return "[" + " ".join(f'"{each}"' for each in audiences) + "]"


def _invalid_seconds(seconds: int, why: str) -> StatusError:
    return invalid(
        _REQUESTS, "", [Cause("spec.expirationSeconds", f"Invalid value: {seconds}: {why}")]
    )


def _other_uid(resource: Resource, ref: BoundRef) -> StatusError:
    message = (
        f'Operation cannot be fulfilled on {resource.kind} "{ref.name}": the UID in the bound object'
        f" reference ({ref.uid}) does not match the UID in record. The object might have been deleted and"
        " then recreated"
    )
    return StatusError(409, "Conflict", message, {"name": ref.name, "kind": resource.kind})


def _spec_of(resource: Resource, name: str, body: Any, type_: type[T]) -> T:
    if not isinstance(body, dict):
        raise bad_request("the body of the request is not a JSON object")
    try:
        return msgspec.convert(body.get("spec", {}), type_)
    except msgspec.ValidationError as error:
        raise invalid(resource, name, [Cause("spec", str(error))]) from None
