"""Who is calling: service account tokens, reviewed by the Kubernetes API and remembered for a short while.

A guest's token is bound to its Pod, so the review itself names the Pod's uid: nothing that the
guest says about itself is believed.
"""

import hashlib

import msgspec

from runyard.clock import Clock
from runyard.kube.client import Kube
from runyard.kube.errors import NotFound
from runyard.kube.kinds import SERVICE_ACCOUNTS
from runyard.kube.objects import ServiceAccount
from runyard.wire.names import DISPATCH_AUDIENCE, RUNNER_POOL

_PREFIX = "system:serviceaccount:"
_REMEMBERED = 50_000


_ASK_FOR = f"use a token of the Pod's own ServiceAccount for the audience {DISPATCH_AUDIENCE}"


class NotAccepted(Exception):
    """The caller is not who may call; these are the words that it is told, and none of them is its credential."""

    def __init__(self, error: str, *, reason: str = "", fix: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.reason = reason
        self.fix = fix


class Guest(msgspec.Struct, frozen=True, kw_only=True):
    """A runner Pod that proved who it is."""

    pod_uid: str
    pod_name: str
    pool: str


class Callers:
    """Recognises guests and the pool operator."""

    def __init__(self, kube: Kube, *, namespace: str, clock: Clock, remember: float) -> None:
        self._kube = kube
        self._namespace = namespace
        self._clock = clock
        self._remember = remember
        self._guests: dict[bytes, tuple[float, Guest]] = {}

    async def guest(self, authorization: str) -> Guest:
        """The Pod behind a poll; raises `NotAccepted`."""
        token = _bearer(authorization)
        name = hashlib.sha256(token.encode()).digest()
        known = self._guests.get(name)
        if known is not None and known[0] > self._clock.monotonic():
            return known[1]
        self._guests.pop(name, None)
        guest = await self._review(token)
        self._make_room()
        self._guests[name] = (self._clock.monotonic() + self._remember, guest)
        return guest

    def _make_room(self) -> None:
        """Forget who was reviewed first, as long as that is over anyway; too many at once are not remembered."""
        now = self._clock.monotonic()
        while self._guests:
            oldest = next(iter(self._guests))
            if self._guests[oldest][0] > now and len(self._guests) < _REMEMBERED:
                return
            del self._guests[oldest]

    async def controller(self, authorization: str, *, expected: tuple[str, str]) -> None:
        """Accept only the pool operator's own account; raises `NotAccepted`."""
        review = await self._kube.review_token(_bearer(authorization), audiences=())
        if not review.authenticated:
            raise NotAccepted("invalid token", reason="the Kubernetes API does not know it")
        if review.username != _PREFIX + ":".join(expected):
            namespace, account = expected
            raise NotAccepted(
                "unauthorized principal",
                reason="the token is somebody else's",
                fix=f"run the operator as the ServiceAccount {account} of the namespace {namespace}",
            )

    async def account(self, authorization: str) -> str:
        """Any ServiceAccount of the cluster; its user name. Raises `NotAccepted`."""
        review = await self._kube.review_token(_bearer(authorization), audiences=())
        if not review.authenticated:
            raise NotAccepted("invalid token", reason="the Kubernetes API does not know it")
        if not review.username.startswith(_PREFIX):
            raise NotAccepted(
                "not a service account", fix="use the token of a ServiceAccount of this cluster"
            )
        return review.username

    async def _review(self, token: str) -> Guest:
        review = await self._kube.review_token(token, audiences=(DISPATCH_AUDIENCE,))
        # An API that knows no audiences names none: the Pod's own token is then all that can be asked for.
        ours = not review.audiences or DISPATCH_AUDIENCE in review.audiences
        if not review.authenticated or not ours:
            raise NotAccepted(
                "invalid token",
                reason="the Kubernetes API does not accept it for this audience, or no longer",
                fix=_ASK_FOR,
            )
        namespace, _, account = review.username.removeprefix(_PREFIX).partition(":")
        if not review.username.startswith(_PREFIX) or namespace != self._namespace:
            reason = f"only runners of the namespace {self._namespace} may ask for work"
            raise NotAccepted("not a service account", reason=reason, fix=_ASK_FOR)
        if not review.pod_uid or review.pod_name != account:
            reason = "the token names no Pod, or not the one that its ServiceAccount was made for"
            raise NotAccepted("token is not bound to its Pod", reason=reason, fix=_ASK_FOR)
        try:
            found = await self._kube.get_as(
                SERVICE_ACCOUNTS, account, ServiceAccount, namespace=self._namespace
            )
        except NotFound:
            reason = "it was deleted, as it is when its runner is to go"
            raise NotAccepted("service account gone", reason=reason) from None
        pool = found.metadata.labels.get(RUNNER_POOL, "")
        if not pool:
            raise NotAccepted(
                "no pool label on service account",
                reason="it belongs to no pool",
                fix=f"let the operator make runners: it sets the label {RUNNER_POOL}",
            )
        return Guest(pod_uid=review.pod_uid, pod_name=review.pod_name, pool=pool)


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAccepted(
            "missing bearer token", fix="send Authorization: Bearer with the ServiceAccount's token"
        )
    if not token.isascii():
        raise NotAccepted("invalid token", reason="it has characters that no token has")
    return token.strip()
