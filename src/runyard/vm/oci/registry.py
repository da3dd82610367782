"""Asks registries which image a reference means now, and how large it is.

A tag is looked up with HEAD, which names the digest of the image's manifest; the manifest is then read by that digest
and checked against it. A registry without HEAD or without that header is read by tag instead, and the digest is
computed. So what is returned is always the hash of something that was read and understood.

What is known is kept: a tag's digest for `Settings.keep` seconds, the sizes of a digest for ever, since its content
cannot change. Lookups of the same reference share one request, its failure included.

Invariants:
- Every failure is an error of `vm.contract` that names the image, the cause and the fix. None contains a secret or text
  of the registry.
- A lookup ends within `Settings.deadline`, whatever the registry, its token server or a credential helper does.
- A registry that says when to come back (`Retry-After`) is not asked before that time, at most `LONGEST_REST`.
"""

import asyncio
import hashlib
import re
import ssl
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cache

import msgspec

from runyard.clock import Clock
from runyard.http.errors import TransportError
from runyard.http.messages import Pairs
from runyard.vm.contract import (
    Busy,
    DriverFailed,
    ImageMissing,
    ResolvedImage,
    Unreachable,
    VmError,
)
from runyard.vm.oci.credentials import Chain, Credentials, Found, Source
from runyard.vm.oci.failures import Explaining, WithoutTls
from runyard.vm.oci.fetching import Answer, NoToken, Refused, Session, is_tls, why
from runyard.vm.oci.manifest import LARGEST, LISTS, TYPES, NotAnImage, Sizes, sizes
from runyard.vm.oci.reference import InvalidReference, Reference, is_digest, parse

LONGEST_REST = 3600.0

_ACCEPT = ", ".join((*TYPES, *LISTS))  # lists are refused here, with a better message than 404
_DIGEST = "docker-content-digest"
_KEPT = 1000  # references and digests that are remembered
_SECONDS = re.compile(r"[0-9]{1,9}")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How registries are asked."""

    insecure: frozenset[str] = frozenset()  # `host:port` of registries that speak plain HTTP
    keep: float = 60.0  # seconds that the meaning of a tag is remembered
    deadline: float = 30.0  # seconds for one lookup, all its requests included
    connect: float = 10.0  # seconds for one connection


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """What a registry says about a reference."""

    reference: Reference  # with digest
    sizes: Sizes
    insecure: bool = False  # it was asked over plain HTTP
    source: Source | None = None  # of the credentials that were used; None: none were used
    source_detail: str = ""

    @property
    def resolved(self) -> ResolvedImage:
        """The same for the driver contract."""
        return ResolvedImage(reference=str(self.reference), bytes=self.sizes.bytes)


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """What a registry says about a pull before it begins; empty if it does not answer."""

    bytes: int = 0  # to be downloaded; 0 if unknown
    insecure: bool = False  # it speaks plain HTTP
    credentials: Credentials | None = None  # that it asks for
    host: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which tart uses these credentials, for this registry only."""
        return {} if self.credentials is None else self.credentials.for_tart(self.host)


class _Lookup:
    """One reference: its last result, and the lock of the task that asks now."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.turn = 0  # results so far
        self.image: Image | None = None
        self.failure: VmError | None = None
        self.until = float("-inf")


class Registry:
    """A client for all registries."""

    def __init__(
        self,
        credentials: Chain,
        clock: Clock,
        settings: Settings = Settings(),  # noqa: B008 it is frozen
        *,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._credentials = credentials
        self._clock = clock
        self._settings = settings
        self._tls = cache(tls)
        self._lookups: dict[str, _Lookup] = {}
        self._sizes: dict[Reference, Sizes] = {}
        self._rests: dict[str, float] = {}  # registry → when it may be asked again

    async def resolve(self, image: str) -> ResolvedImage:
        """What a reference means now; one with a digest is answered without a request."""
        reference = _parsed(image)
        if not reference.digest:
            return (await self.inspect(image)).resolved
        known = self._sizes.get(reference)
        return ResolvedImage(reference=str(reference), bytes=known.bytes if known else 0)

    async def download(self, image: str) -> Download:
        """What a pull of this image takes: its size, and credentials if the registry asks for some.

        Whatever fails here may still work for tart, which has its own way to the registry and to the Keychain. So
        nothing is raised: the pull decides.
        """
        try:
            found = await self.inspect(image)
        except VmError:
            return Download()
        host = found.reference.host
        known = await self._credentials.find(host) if found.source else Found()
        return Download(
            bytes=found.sizes.bytes,
            insecure=found.insecure,
            credentials=known.credentials,
            host=host,
        )

    async def inspect(self, image: str) -> Image:
        """What a reference means now, with its sizes and the credentials that were used."""
        reference = _parsed(image)
        lookup = self._lookups.setdefault(str(reference), _Lookup())
        turn = lookup.turn
        async with lookup.lock:
            if lookup.turn == turn:
                if lookup.image is not None and self._clock.monotonic() < lookup.until:
                    return lookup.image
                await self._look_up(reference, lookup)
        if lookup.failure is not None:
            raise type(lookup.failure)(str(lookup.failure)) from lookup.failure
        assert lookup.image is not None
        return lookup.image

    async def _look_up(self, reference: Reference, lookup: _Lookup) -> None:
        self._forget()
        lookup.image = lookup.failure = None
        try:
            lookup.image = await self._ask(reference)
        except VmError as error:
            lookup.failure = error
        lookup.turn += 1
        lookup.until = self._clock.monotonic() + self._settings.keep

    def _forget(self) -> None:
        """Drop what is old, so that an agent's memory does not grow with every tag of a year."""
        if len(self._lookups) > _KEPT:
            now = self._clock.monotonic()
            idle = [
                key
                for key, each in self._lookups.items()
                if each.until < now and not each.lock.locked()
            ]
            for key in idle:
                del self._lookups[key]
        while len(self._sizes) >= _KEPT:
            del self._sizes[next(iter(self._sizes))]

    # ── one lookup ──────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, reference: Reference) -> Image:
        """Ask over TLS; a registry that was declared insecure, or one on loopback without TLS, over plain HTTP."""
        self._check_rest(reference)
        declared = reference.host in self._settings.insecure
        try:
            return await self._ask_once(reference, insecure=declared)
        except WithoutTls as refused:
            if not reference.on_loopback:
                raise
            try:
                return await self._ask_once(reference, insecure=True)
            except (Unreachable, DriverFailed):  # it does have TLS, which says what is wrong
                raise refused from None

    async def _ask_once(self, reference: Reference, *, insecure: bool) -> Image:
        session = Session(
            reference,
            self._credentials.find,
            insecure=insecure,
            only_loopback=reference.host not in self._settings.insecure,
            tls=self._tls,
            connect=self._settings.connect,
            answer=self._settings.deadline,
        )
        explain = Explaining(reference, session)
        try:
            async with self._clock.timeout(self._settings.deadline):
                return await self._read(reference, session, explain)
        except TimeoutError:
            raise explain.silent(f"no answer within {self._settings.deadline:g} s") from None
        except TransportError as error:
            raise explain.silent(why(error), plain=is_tls(error)) from error
        except Refused as error:
            raise explain.unusable(str(error)) from error
        except NoToken as error:
            raise self._refusal(error.status, error.headers, str(error), explain) from error

    async def _read(self, reference: Reference, session: Session, explain: Explaining) -> Image:
        digest = reference.digest or await self._digest(reference, session, explain)
        known = (
            self._sizes.get(reference.pinned(digest)) if digest and not reference.digest else None
        )
        if known is None:
            target = digest or reference.tag
            answer = await session.manifest("GET", target, accept=_ACCEPT, limit=LARGEST)
            if answer.status != 200:
                raise self._refusal(answer.status, answer.headers, _status(answer), explain)
            digest = _verified(answer, digest)
            try:
                known = sizes(answer.body)
            except NotAnImage as error:
                raise explain.no_image(str(error)) from error
        pinned = reference.pinned(digest)
        self._sizes[pinned] = known
        used = session.credentials
        return Image(
            reference=pinned,
            sizes=known,
            insecure=session.insecure,
            source=used.source if used else None,
            source_detail=used.detail if used else "",
        )

    async def _digest(self, reference: Reference, session: Session, explain: Explaining) -> str:
        """The digest that a tag means, by HEAD; empty if only the manifest itself shows it."""
        answer = await session.manifest("HEAD", reference.tag, accept=_ACCEPT, limit=LARGEST)
        if answer.status in (401, 403, 429) or answer.status >= 500:
            raise self._refusal(answer.status, answer.headers, _status(answer), explain)
        digest = answer.header(_DIGEST)
        return digest if answer.status == 200 and is_digest(digest) else ""

    # ── failures ────────────────────────────────────────────────────────────────────────────────────

    def _refusal(self, status: int, headers: Pairs, text: str, explain: Explaining) -> VmError:
        if status in (401, 403):
            return explain.unauthorized(text)
        if status == 404:
            return explain.missing(text)
        if status == 429 or status >= 500:
            return explain.busy(text, self._rest(explain.reference.host, headers))
        return explain.unusable(f"it answered {text}")

    def _rest(self, host: str, headers: Pairs) -> float:
        """How long the registry wants to be left alone, in seconds; it is remembered."""
        text = next((value for key, value in headers if key == "retry-after"), "")
        wait = min(max(0.0, self._seconds(text)), LONGEST_REST)
        if wait:
            self._rests[host] = self._clock.monotonic() + wait
        return wait

    def _seconds(self, text: str) -> float:
        if _SECONDS.fullmatch(text):
            return float(text)
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return 0.0
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - self._clock.now()

    def _check_rest(self, reference: Reference) -> None:
        left = self._rests.get(reference.host, float("-inf")) - self._clock.monotonic()
        if left > 0:
            raise Busy(
                f"image {reference}: {reference.host} asked to be left alone; retry in {left:.0f} s"
            )


def _parsed(image: str) -> Reference:
    try:
        return parse(image)
    except InvalidReference as error:
        raise ImageMissing(str(error)) from error


def _verified(answer: Answer, expected: str) -> str:
    """The digest of a manifest; it must be the one that was asked for and the one that the registry names."""
    digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
    named = answer.header(_DIGEST)
    if expected not in ("", digest) or (is_digest(named) and named != digest):
        raise Refused("it returned a manifest that has another digest")
    return digest


def _status(answer: Answer) -> str:
    return f"{answer.status} {answer.code}".rstrip()
