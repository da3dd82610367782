"""A client of the Kubernetes API: get, list, watch, create, patch, delete.

The client sends requests through a `Transport`. It does not retry (except once with a renewed token), because whether a
repetition is harmless depends on the caller.

Invariants:
- Nothing here PUTs: writes are creations, merge patches or server-side applies of the fields that the
  caller names, so that other fields keep their values.
- A destructive request can always carry its precondition (`uid`, `resource_version`): a stale plan
  becomes `Conflict` and never damage.
- A request never addresses a collection when an object was meant: see `kinds`.
- An answer that cannot be read is `ServerFailed`, never a decoding error.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from runyard.http.errors import OutcomeUnknown
from runyard.http.messages import Pairs, Request, Response, Stream, Transport
from runyard.kube.errors import Gone, ServerFailed, error_for
from runyard.kube.kinds import SERVICE_ACCOUNTS, TOKEN_REVIEWS, Kind
from runyard.kube.objects import Reader, T
from runyard.kube.paging import Found, read_pages

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
POD_NAME_CLAIM = "authentication.kubernetes.io/pod-name"
POD_UID_CLAIM = "authentication.kubernetes.io/pod-uid"
DEFAULT_PAGE = 500

U = TypeVar("U")


class Listing(msgspec.Struct, frozen=True):
    """All objects of a list, whatever the number of pages, and the version to watch from."""

    items: tuple[dict[str, Any], ...]
    resource_version: str


class RawListing(msgspec.Struct, frozen=True):
    """The same, with each object still encoded."""

    items: tuple[msgspec.Raw, ...]
    resource_version: str


class TokenReview(msgspec.Struct, frozen=True):
    """The API's review of a token; `pod_name` and `pod_uid` are empty if it is not bound to a Pod."""

    authenticated: bool
    username: str
    audiences: tuple[str, ...]
    pod_name: str
    pod_uid: str
    error: str


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    extra: dict[str, tuple[str, ...]] = {}


class _ReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: tuple[str, ...] = ()
    error: str = ""


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class _TokenStatus(msgspec.Struct, frozen=True):
    token: str


class _TokenAnswer(msgspec.Struct, frozen=True):
    status: _TokenStatus


_OBJECT = msgspec.json.Decoder(dict[str, Any])
_REVIEW: Reader[_Review] = Reader(_Review)
_TOKEN: Reader[_TokenAnswer] = Reader(_TokenAnswer)


class Kube:
    """The Kubernetes API. Methods raise `KubeError` for a refusal, `TransportError` for no answer."""

    def __init__(
        self,
        transport: Transport,
        *,
        token: Callable[[], str] = lambda: "",
        timeout: float = 10.0,
        agent: str = "runyard",
    ) -> None:
        self._transport = transport
        self._token = token
        self._timeout = timeout
        self._agent = agent
        self._readers: dict[Any, Reader[Any]] = {}

    @property
    def transport(self) -> Transport:
        """Where requests are sent."""
        return self._transport

    def through(self, wrap: Callable[[Transport], Transport]) -> "Kube":
        """The same client on another transport, which `wrap` makes from this one's."""
        transport = wrap(self._transport)
        return Kube(transport, token=self._token, timeout=self._timeout, agent=self._agent)

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> dict[str, Any]:
        """One object; `NotFound` if it is not there."""
        path = kind.object_path(name, namespace=namespace)
        return _object(await self._call("GET", path), path)

    async def get_as(self, kind: Kind, name: str, type_: type[T], *, namespace: str = "") -> T:
        """One object as a struct of `objects`; `ServerFailed` if it does not fit the type."""
        path = kind.object_path(name, namespace=namespace)
        return _read(await self._call("GET", path), self.reader(type_), path)

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = DEFAULT_PAGE,
    ) -> Listing:
        """All objects that match, page after page. It is complete or it raises."""
        raw = await self.list_raw(
            kind, namespace=namespace, labels=labels, fields=fields, limit=limit
        )
        items = tuple(_decoded(_OBJECT.decode, item, kind.plural) for item in raw.items)
        return Listing(items, raw.resource_version)

    async def list_as(
        self, kind: Kind, type_: type[T], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> tuple[T, ...]:
        """All objects that match, as structs; one that does not fit fails the whole list.

        Decoded page by page, so that a long list does not hold up everything else.
        """
        read = self.reader(type_).read
        items, _ = await self.list_through(
            kind,
            lambda raw: _decoded(read, raw, kind.plural),
            namespace=namespace,
            labels=labels,
            fields=fields,
        )
        return tuple(items)

    async def list_raw(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = DEFAULT_PAGE,
    ) -> RawListing:
        """All objects that match, not yet decoded, so that one bad object does not fail the list."""
        items, version = await self.list_through(
            kind,
            lambda raw: raw,
            namespace=namespace,
            labels=labels,
            fields=fields,
            limit=limit,
        )
        return RawListing(tuple(items), version)

    async def list_through(
        self,
        kind: Kind,
        read: Callable[[msgspec.Raw], U],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = DEFAULT_PAGE,
    ) -> Found[U]:
        """What `read` makes of each object that matches, and the version to watch from.

        If the continue token expires between two pages, the list starts again in one single page.
        """
        path = kind.path(namespace)
        query = _selectors(labels, fields)

        async def get_page(paging: Pairs) -> Response:
            return await self._call("GET", path, query=(*paging, *query))

        try:
            return await read_pages(get_page, read, limit=limit, what=path)
        except Gone:
            return await read_pages(get_page, read, limit=0, what=path)

    async def watch(
        self,
        kind: Kind,
        *,
        resource_version: str,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        seconds: int = 300,
    ) -> Stream:
        """The stream of changes after `resource_version`, which the server ends after `seconds`.

        The caller must close it. `Gone` if the version is too old.
        """
        path = kind.path(namespace)
        query = (
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", resource_version),
            ("timeoutSeconds", str(seconds)),
            *_selectors(labels, fields),
        )
        answer = await self._send("GET", path, query=query)
        if isinstance(answer, Stream):
            if answer.status == 200:
                return answer
            await answer.aclose()
            raise error_for(Response(status=answer.status), what=f"WATCH {path}")
        if answer.status >= 300:
            raise error_for(answer, what=f"WATCH {path}")
        raise ServerFailed(answer.status, "NotAStream", f"WATCH {path}")

    async def create(
        self, kind: Kind, body: dict[str, Any], *, namespace: str = ""
    ) -> dict[str, Any]:
        """Create an object and return it as stored; `AlreadyExists` if the name is taken."""
        path = kind.collection_path(namespace)
        full = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        return _object(await self._call("POST", path, body=full), path)

    async def patch(
        self,
        kind: Kind,
        name: str,
        body: dict[str, Any],
        *,
        namespace: str = "",
        subresource: str = "",
        uid: str = "",
        resource_version: str = "",
    ) -> dict[str, Any]:
        """JSON merge patch; `Conflict` if the object has another uid or resourceVersion by now."""
        path = kind.object_path(name, namespace=namespace, subresource=subresource)
        conditions = _preconditions(uid, resource_version)
        if conditions:
            body = {**body, "metadata": {**body.get("metadata", {}), **conditions}}
        return _object(await self._call("PATCH", path, body=body, content=MERGE_PATCH), path)

    async def apply(
        self,
        kind: Kind,
        name: str,
        body: dict[str, Any],
        *,
        manager: str,
        namespace: str = "",
        subresource: str = "",
        force: bool = False,
    ) -> dict[str, Any]:
        """Server-side apply; `Conflict` if another manager owns a field and `force` is not set."""
        path = kind.object_path(name, namespace=namespace, subresource=subresource)
        metadata = {**body.get("metadata", {}), "name": name}
        if namespace:
            metadata["namespace"] = namespace
        full = {"apiVersion": kind.api_version, "kind": kind.kind, **body, "metadata": metadata}
        query = (("fieldManager", manager), ("force", "true" if force else "false"))
        answer = await self._call("PATCH", path, query=query, body=full, content=APPLY_PATCH)
        return _object(answer, path)

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        grace: int | None = None,
    ) -> None:
        """Delete an object; `NotFound` if it is not there, `Conflict` if it is another one by now.

        A success means that the deletion was accepted. Finalizers and a grace period may keep the
        object for long afterwards.
        """
        path = kind.object_path(name, namespace=namespace)
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if conditions := _preconditions(uid, resource_version):
            options["preconditions"] = conditions
        await self._call("DELETE", path, body=options)

    async def create_token(
        self,
        account: str,
        *,
        namespace: str,
        audience: str,
        seconds: int,
        pod_name: str = "",
        pod_uid: str = "",
    ) -> str:
        """Create a token of a ServiceAccount; with `pod_name` it expires with that Pod."""
        path = SERVICE_ACCOUNTS.object_path(account, namespace=namespace, subresource="token")
        spec: dict[str, Any] = {"expirationSeconds": seconds}
        if audience:
            spec["audiences"] = [audience]
        if pod_name:
            bound = {"apiVersion": "v1", "kind": "Pod", "name": pod_name}
            spec["boundObjectRef"] = {**bound, "uid": pod_uid} if pod_uid else bound
        api_version = "authentication.k8s.io/v1"
        body = {"apiVersion": api_version, "kind": "TokenRequest", "spec": spec}
        return _read(await self._call("POST", path, body=body), _TOKEN, path).status.token

    async def review_token(self, token: str, *, audiences: tuple[str, ...]) -> TokenReview:
        """Review a token. An unauthenticated token is a result, not an error."""
        path = TOKEN_REVIEWS.path()
        body = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token, "audiences": audiences},
        }
        status = _read(await self._call("POST", path, body=body), _REVIEW, path).status
        return TokenReview(
            authenticated=status.authenticated,
            username=status.user.username,
            audiences=status.audiences,
            pod_name=_first(status.user.extra, POD_NAME_CLAIM),
            pod_uid=_first(status.user.extra, POD_UID_CLAIM),
            error=status.error,
        )

    def reader(self, type_: type[T]) -> Reader[T]:
        """The decoder for a type, built once per client."""
        found = self._readers.get(type_)
        if found is None:
            found = self._readers[type_] = Reader(type_)
        return found

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Pairs = (),
        body: dict[str, Any] | None = None,
        content: str = JSON,
    ) -> Response:
        answer = await self._send(method, path, query=query, body=body, content=content)
        if isinstance(answer, Stream):
            await answer.aclose()
            raise OutcomeUnknown(f"{method} {path}: a stream where an answer was expected")
        if answer.status >= 300:
            raise error_for(answer, what=f"{method} {path}")
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Pairs = (),
        body: dict[str, Any] | None = None,
        content: str = JSON,
    ) -> Response | Stream:
        payload = b"" if body is None else msgspec.json.encode(body)
        headers: Pairs = (("accept", JSON), ("user-agent", self._agent))
        if body is not None:
            headers = (*headers, ("content-type", content))
        token = self._token()
        request = _request(method, path, query, headers, payload, token)
        answer = await self._transport.send(request, timeout=self._timeout)
        renewed = self._token() if answer.status == 401 else token
        if renewed == token:
            return answer
        # The token file was rotated between reading it and its use; the refused request did nothing.
        if isinstance(answer, Stream):
            await answer.aclose()
        request = _request(method, path, query, headers, payload, renewed)
        return await self._transport.send(request, timeout=self._timeout)


def _request(
    method: str, path: str, query: Pairs, headers: Pairs, body: bytes, token: str
) -> Request:
    if token:
        headers = (*headers, ("authorization", f"Bearer {token}"))
    return Request(method=method, path=path, query=query, headers=headers, body=body)


def _selectors(labels: str, fields: str) -> Pairs:
    pairs = (("labelSelector", labels), ("fieldSelector", fields))
    return tuple(pair for pair in pairs if pair[1])


def _preconditions(uid: str, resource_version: str) -> dict[str, str]:
    pairs = (("uid", uid), ("resourceVersion", resource_version))
    return {name: value for name, value in pairs if value}


def _object(answer: Response, what: str) -> dict[str, Any]:
    return _decoded(_OBJECT.decode, answer.body, what)


def _read(answer: Response, reader: Reader[T], what: str) -> T:
    return _decoded(reader.read, answer.body, what)


def _decoded(decode: Callable[[Any], U], raw: object, what: str) -> U:
    try:
        return decode(raw)
    except msgspec.MsgspecError as error:
        raise ServerFailed(200, "UnreadableAnswer", f"{what}: {error}") from error


def _first(extra: dict[str, tuple[str, ...]], name: str) -> str:
    values = extra.get(name, ())
    return values[0] if values else ""
