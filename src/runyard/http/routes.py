"""A table of routes: dispatch, refusals and OpenAPI from one declaration.

A route names a method, a path, a handler, the type of its body and its possible answers. From that one
value come the dispatch, the decoding of the body with typed refusals, and the OpenAPI description, so the
three cannot disagree.

    Route("GET", "/api/v1/pools/{pool}", show, summary="One pool.", answers={200: ("The pool.", Pool)})

Templates: `{pool}` is one segment, `{path...}` at the end is the rest, slashes included. The handler gets
them by name, and the decoded body as `body`. A literal segment wins over a name, a name over the rest.

Invariants:
- A table with two routes for the same requests, with a handler that does not take the names of its
  template, or with a secured route and no guard, cannot be built.
- Refusals: 404 no such path, 405 (with Allow) no such method, then the guard, then 413 too large, 415 not
  JSON, 400 not parseable, 422 parseable but not the declared type. Each has a reason.
- A route whose handler authenticates before it decodes the body declares `expects` instead of `body`: the type is
  described, and the handler decodes it.
- HEAD is answered by the route of GET.
- A handler's exception passes through: the adapter at the socket makes it a 500, the simulator a failed run.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from runyard.http.expectations import in_words
from runyard.http.messages import Request, Response, Stream
from runyard.http.openapi import Scheme, describe
from runyard.http.problems import problem
from runyard.wire.problem_codes import ProblemCode

Answers = Mapping[
    int, tuple[str, Any]
]  # by status: what it means, and the type of its body or None
Guard = Callable[[Request], Awaitable[Response | None]]

OPENAPI = "/openapi.json"

_NAME = re.compile(r"\{([a-z_][a-z0-9_]*)(\.\.\.)?\}")
_LITERAL, _SEGMENT, _REST = 0, 1, 2


class Route(msgspec.Struct, frozen=True):
    """One route: method, path, handler, types and description."""

    method: str
    path: str
    handler: Callable[..., Awaitable[Response | Stream]]
    summary: str = ""
    body: Any = None  # the type that a body must decode to; None: the handler gets the bytes
    expects: Any = None  # described as its body, and decoded by the handler itself
    answers: Answers = {}
    secured: bool = False  # described as such, and given to the guard first
    scheme: Scheme | None = None  # described: the credential that the handler itself checks
    query: tuple[tuple[str, str], ...] = ()  # parameters that the handler reads, with their meaning
    headers: tuple[tuple[str, str], ...] = ()  # likewise
    media: str = "application/json"  # what a good answer is made of
    limit: int = 4 << 20  # bytes of body


class Routes:
    """Dispatches requests to routes; with `private` the OpenAPI document needs the guard, too."""

    def __init__(
        self,
        title: str,
        version: str,
        routes: Sequence[Route],
        *,
        guard: Guard | None = None,
        private: bool = False,
    ) -> None:
        self._title = title
        self._version = version
        self._guard = guard
        self._described = Route(
            "GET", OPENAPI, self._describe, summary="This description.", secured=private
        )
        self.routes = (*routes, self._described)
        self._decoders = {
            id(route): msgspec.json.Decoder(route.body) for route in self.routes if route.body
        }
        self._literal: dict[str, dict[str, Route]] = {}
        self._patterns: list[_Pattern] = []
        for route in self.routes:
            self._add(route)
        self._patterns.sort(key=lambda pattern: pattern.rank)
        self._document = msgspec.json.encode(self.openapi())

    def openapi(self) -> dict[str, Any]:
        """The table as an OpenAPI 3.1 document."""
        return describe(self._title, self._version, self.routes)

    async def handle(self, request: Request) -> Response | Stream:
        """Answer a request; a `Handler`."""
        method = "GET" if request.method == "HEAD" else request.method
        route, names, allowed = self._find(method, request.path)
        if route is None:
            return _no_method(allowed) if allowed else problem(404, ProblemCode.PATH_UNKNOWN)
        if route.secured:
            assert self._guard is not None  # the table could not have been built
            refusal = await self._guard(request)
            if refusal is not None:
                return refusal
        if len(request.body) > route.limit:
            reason = f"at most {route.limit} bytes are accepted"
            return problem(413, ProblemCode.BODY_TOO_LARGE, reason=reason)
        decoder = self._decoders.get(id(route))
        if decoder is None:
            return await route.handler(request, **names)
        try:
            body = _decoded(request, decoder)
        except _Refusal as refused:
            return refused.answer
        return await route.handler(request, body=body, **names)

    def _find(self, method: str, path: str) -> tuple[Route | None, dict[str, str], dict[str, None]]:
        methods = self._literal.get(path, {})
        if method in methods:
            return methods[method], {}, {}
        allowed = dict.fromkeys(methods)
        for pattern in self._patterns:
            found = pattern.regex.fullmatch(path)
            if found:
                if method in pattern.methods:
                    return pattern.methods[method], found.groupdict(), {}
                allowed.update(dict.fromkeys(pattern.methods))
        return None, {}, allowed

    def _add(self, route: Route) -> None:
        names = check_route(route)
        if route.secured and self._guard is None:
            raise ValueError(f"{route.method} {route.path} is secured and has no guard")
        if not names:
            methods = self._literal.setdefault(route.path, {})
        else:
            methods = self._pattern(route.path).methods
        if route.method in methods:
            raise ValueError(f"two routes for {route.method} {route.path}")
        methods[route.method] = route

    def _pattern(self, template: str) -> "_Pattern":
        pattern = _Pattern(template)
        for known in self._patterns:
            if known.rank == pattern.rank:
                if known.regex.pattern != pattern.regex.pattern:
                    raise ValueError(f"{known.template} and {template} name the same paths")
                return known
        self._patterns.append(pattern)
        return pattern

    async def _describe(self, _: Request) -> Response:
        return Response(
            status=200, headers=(("content-type", "application/json"),), body=self._document
        )


class _Pattern:
    """A template with names in it, and the routes that share it."""

    def __init__(self, template: str) -> None:
        self.template = template
        self.methods: dict[str, Route] = {}
        segments = template.split("/")[1:]
        # Compared segment by segment: a literal comes first, the rest of a path last.
        self.rank = tuple(_rank(segment) for segment in segments)
        self.regex = re.compile("".join("/" + _regex(segment) for segment in segments), re.DOTALL)


class _Refusal(Exception):
    def __init__(self, answer: Response) -> None:
        super().__init__(answer.status)
        self.answer = answer


def check_route(route: Route) -> tuple[str, ...]:
    """Return the names in a route's template; raises `ValueError` if the route is invalid."""
    where = f"{route.method} {route.path}"
    if not route.path.startswith("/") or route.method not in _METHODS:
        raise ValueError(f"not a route: {where}")
    names: list[str] = []
    segments = route.path.split("/")[1:]
    for place, segment in enumerate(segments):
        found = _NAME.fullmatch(segment)
        if found is None:
            if "{" in segment or "}" in segment:
                raise ValueError(f"not a template: {where}")
            continue
        if found[2] and place != len(segments) - 1:
            raise ValueError(f"the rest of a path can only be at its end: {where}")
        names.append(found[1])
    if route.body and route.expects:
        raise ValueError(
            f"the body is decoded by the table or by the handler, not by both: {where}"
        )
    expected = [*names, *(["body"] if route.body else [])]
    if len({*expected, "request"}) != len(expected) + 1:
        raise ValueError(f"a name is used twice: {where}")
    try:
        inspect.signature(route.handler).bind(None, **dict.fromkeys(expected))
    except TypeError as error:
        raise ValueError(f"the handler of {where} does not fit: {error}") from None
    return tuple(names)


_METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE"))


def _rank(segment: str) -> tuple[int, str]:
    found = _NAME.fullmatch(segment)
    if found is None:
        return (_LITERAL, segment)
    return (_REST if found[2] else _SEGMENT, "")


def _regex(segment: str) -> str:
    found = _NAME.fullmatch(segment)
    if found is None:
        return re.escape(segment)
    return f"(?P<{found[1]}>{'.*' if found[2] else '[^/]+'})"


def _no_method(allowed: dict[str, None]) -> Response:
    methods = sorted({*allowed, "HEAD"} if "GET" in allowed else allowed)
    text = ", ".join(methods)
    return problem(
        405,
        ProblemCode.METHOD_UNKNOWN,
        reason=f"this path allows {text}",
        headers=(("allow", text),),
    )


def _decoded(request: Request, decoder: "msgspec.json.Decoder[Any]") -> Any:
    kind = request.header("content-type").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        reason = f"the content-type is {kind}" if kind else "there is no content-type"
        fix = "send JSON with content-type: application/json"
        raise _Refusal(problem(415, ProblemCode.BODY_NOT_JSON, reason=reason, fix=fix))
    coding = request.header("content-encoding", "identity").lower()
    if coding != "identity":
        reason = f"the content-encoding is {coding}"
        raise _Refusal(
            problem(415, ProblemCode.BODY_COMPRESSED, reason=reason, fix="send it as it is")
        )
    try:
        return decoder.decode(request.body)
    except msgspec.ValidationError as error:
        raise _Refusal(problem(422, ProblemCode.BODY_UNEXPECTED, reason=in_words(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Refusal(problem(400, ProblemCode.BODY_INVALID_JSON, reason=str(error))) from None
