"""Authenticates callers by ServiceAccount tokens, which the Kubernetes API reviews; results are cached briefly.

A runner's token is bound to its Pod, so the review itself names the Pod's uid. Nothing in the request
is used to identify the runner.
"""

import hashlib

import msgspec

from runyard.clock import Clock
from runyard.kube.client import Kube
from runyard.kube.errors import NotFound
from runyard.kube.kinds import SERVICE_ACCOUNTS
from runyard.kube.objects import ServiceAccount
from runyard.wire.names import DISPATCH_AUDIENCE, RUNNER_POOL
from runyard.wire.reasons import Reason
from runyard.wire.reasons_dispatch import Denied

_PREFIX = "system:serviceaccount:"
_CACHE_LIMIT = 50_000


_ASK_FOR = f"use a token of the Pod's own ServiceAccount for the audience {DISPATCH_AUDIENCE}"


class NotAuthenticated(Exception):
    """The caller is not authenticated. No field contains its credential."""

    def __init__(self, error: str, *, reason: Reason, fix: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.reason = reason
        self.fix = fix


class RunnerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated runner Pod."""

    pod_uid: str
    pod_name: str
    pool: str


class Authenticator:
    """Authenticates runners, the pool operator and other ServiceAccounts."""

    def __init__(self, kube: Kube, *, namespace: str, clock: Clock, cache_seconds: float) -> None:
        self._kube = kube
        self._namespace = namespace
        self._clock = clock
        self._cache_seconds = cache_seconds
        self._cache: dict[bytes, tuple[float, RunnerIdentity]] = {}

    async def runner(self, authorization: str) -> RunnerIdentity:
        """Return the runner Pod that a token belongs to; raises `NotAuthenticated`."""
        token = _bearer(authorization)
        name = hashlib.sha256(token.encode()).digest()
        known = self._cache.get(name)
        if known is not None and known[0] > self._clock.monotonic():
            return known[1]
        self._cache.pop(name, None)
        guest = await self._review(token)
        self._evict()
        self._cache[name] = (self._clock.monotonic() + self._cache_seconds, guest)
        return guest

    def _evict(self) -> None:
        """Remove expired entries, and the oldest ones while the cache is full."""
        now = self._clock.monotonic()
        while self._cache:
            oldest = next(iter(self._cache))
            if self._cache[oldest][0] > now and len(self._cache) < _CACHE_LIMIT:
                return
            del self._cache[oldest]

    async def require_operator(self, authorization: str, *, expected: tuple[str, str]) -> None:
        """Accept only the pool operator's ServiceAccount; raises `NotAuthenticated`."""
        review = await self._kube.review_token(_bearer(authorization), audiences=())
        if not review.authenticated:
            raise NotAuthenticated("invalid token", reason=Denied.TOKEN_UNKNOWN.because())
        if review.username != _PREFIX + ":".join(expected):
            namespace, account = expected
            raise NotAuthenticated(
                "unauthorized principal",
                reason=Denied.OTHER_PRINCIPAL.because(),
                fix=f"run the operator as the ServiceAccount {account} of the namespace {namespace}",
            )

    async def service_account(self, authorization: str) -> str:
        """Accept any ServiceAccount of the cluster and return its user name; raises `NotAuthenticated`."""
        review = await self._kube.review_token(_bearer(authorization), audiences=())
        if not review.authenticated:
            raise NotAuthenticated("invalid token", reason=Denied.TOKEN_UNKNOWN.because())
        if not review.username.startswith(_PREFIX):
            raise NotAuthenticated(
                "not a service account",
                reason=Denied.NOT_AN_ACCOUNT.because(),
                fix="use the token of a ServiceAccount of this cluster",
            )
        return review.username

    async def _review(self, token: str) -> RunnerIdentity:
        review = await self._kube.review_token(token, audiences=(DISPATCH_AUDIENCE,))
        # An API without support for audiences returns none; then any token of the Pod's own account is accepted.
        ours = not review.audiences or DISPATCH_AUDIENCE in review.audiences
        if not review.authenticated or not ours:
            raise NotAuthenticated(
                "invalid token",
                reason=Denied.TOKEN_OUT_OF_AUDIENCE.because(),
                fix=_ASK_FOR,
            )
        namespace, _, account = review.username.removeprefix(_PREFIX).partition(":")
        if not review.username.startswith(_PREFIX) or namespace != self._namespace:
            reason = Denied.OTHER_NAMESPACE.because(namespace=self._namespace)
            raise NotAuthenticated("not a service account", reason=reason, fix=_ASK_FOR)
        if not review.pod_uid or review.pod_name != account:
            reason = Denied.TOKEN_UNBOUND.because()
            raise NotAuthenticated("token is not bound to its Pod", reason=reason, fix=_ASK_FOR)
        try:
            found = await self._kube.get_as(
                SERVICE_ACCOUNTS, account, ServiceAccount, namespace=self._namespace
            )
        except NotFound:
            reason = Denied.ACCOUNT_DELETED.because()
            raise NotAuthenticated("service account gone", reason=reason) from None
        pool = found.metadata.labels.get(RUNNER_POOL, "")
        if not pool:
            raise NotAuthenticated(
                "no pool label on service account",
                reason=Denied.ACCOUNT_WITHOUT_POOL.because(),
                fix=f"let the operator make runners: it sets the label {RUNNER_POOL}",
            )
        return RunnerIdentity(pod_uid=review.pod_uid, pod_name=review.pod_name, pool=pool)


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAuthenticated(
            "missing bearer token",
            reason=Denied.TOKEN_MISSING.because(),
            fix="send Authorization: Bearer with the ServiceAccount's token",
        )
    if not token.isascii():
        raise NotAuthenticated("invalid token", reason=Denied.TOKEN_MALFORMED.because())
    return token.strip()
