"""The OpenAPI document of a table of routes matches its behaviour, and an invalid table cannot be built."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.http.peers import answer, carried, serving

from runyard.http.messages import Request, Response, Stream, json_response
from runyard.http.openapi import Scheme
from runyard.http.problems import problem
from runyard.http.routes import OPENAPI, Route, Routes
from runyard.wire.problem_codes import ProblemCode

JSON = (("content-type", "application/json"),)


class Labels(msgspec.Struct, frozen=True):
    values: dict[str, str]


class Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request."""

    name: str
    replicas: int = 1
    labels: Labels | None = None


async def echo(request: Request, **names: Any) -> Response:
    return json_response(200, {"method": request.method, **names})


async def make(_: Request, *, body: Pool) -> Response:
    return json_response(201, body)


async def one(_: Request, *, name: str) -> Response:
    return json_response(200, {"one": name})


def table(*routes: Route) -> Routes:
    return Routes("test", "1.2", routes)


async def refuse_all(_: Request) -> Response | None:
    return problem(401, ProblemCode.DASHBOARD_TOKEN_NEEDED)


def guarded(*routes: Route, private: bool = False) -> Routes:
    return Routes("test", "1.2", routes, guard=refuse_all, private=private)


def send(routes: Routes, method: str, path: str, **parts: Any) -> Response:
    got: Response | Stream = asyncio.run(routes.handle(Request(method=method, path=path, **parts)))
    assert isinstance(got, Response)
    return got


FULL = table(
    Route("GET", "/", echo),
    Route("GET", "/pools", echo),
    Route("POST", "/pools", make, body=Pool, limit=1000),
    Route("GET", "/pools/{name}", one),
    Route("DELETE", "/pools/{name}", one),
    Route("GET", "/pools/default", echo),
    Route("GET", "/pools/{pool}/pods/{pod}", echo),
    Route("GET", "/static/{path...}", echo),
    Route("GET", "/static/{name}/index", echo),
)


NO_PATH = {
    "error": ProblemCode.PATH_UNKNOWN.template,
    "code": ProblemCode.PATH_UNKNOWN.value,
}


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/", 200, {"method": "GET"}),
        ("GET", "/pools", 200, {"method": "GET"}),
        ("HEAD", "/pools", 200, {"method": "HEAD"}),
        ("GET", "/pools/a b", 200, {"one": "a b"}),
        ("GET", "/pools/ü\n", 200, {"one": "ü\n"}),
        ("GET", "/pools/default", 200, {"method": "GET"}),
        ("DELETE", "/pools/default", 200, {"one": "default"}),
        ("GET", "/pools/a/pods/b", 200, {"method": "GET", "pool": "a", "pod": "b"}),
        ("GET", "/static/", 200, {"method": "GET", "path": ""}),
        ("GET", "/static/a/../b", 200, {"method": "GET", "path": "a/../b"}),
        ("GET", "/static/a/index", 200, {"method": "GET", "name": "a"}),
        ("GET", "/pools/", 404, NO_PATH),
        ("GET", "/pools/a/", 404, NO_PATH),
        ("GET", "/Pools", 404, NO_PATH),
        ("GET", "/pools/a/pods//", 404, NO_PATH),
    ],
)
def test_a_request_finds_its_route(
    method: str, path: str, status: int, body: dict[str, str]
) -> None:
    got = send(FULL, method, path)
    assert (got.status, got.json()) == (status, body)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/pools", "GET, HEAD, POST"),
        ("POST", "/pools/default", "DELETE, GET, HEAD"),
        ("BREW", "/", "GET, HEAD"),
    ],
)
def test_a_wrong_method_gets_the_allowed_ones(method: str, path: str, allow: str) -> None:
    got = send(FULL, method, path)
    assert (got.status, got.header("allow")) == (405, allow)


@pytest.mark.parametrize(
    ("headers", "body", "status", "reason"),
    [
        (JSON, b'{"name": "a"}', 201, ""),
        ((("content-type", "application/JSON; charset=utf-8"),), b'{"name": "a"}', 201, ""),
        ((("content-type", "application/merge-patch+json"),), b'{"name": "a"}', 201, ""),
        ((), b'{"name": "a"}', 415, "there is no content-type"),
        ((("content-type", "text/plain"),), b'{"name": "a"}', 415, "text/plain"),
        ((*JSON, ("content-encoding", "gzip")), b"\x1f\x8b", 415, "gzip"),
        (JSON, b"", 400, "truncated"),
        (JSON, b'{"name": ', 400, "truncated"),
        (JSON, b'{"name": "\xff"}', 400, "utf-8"),
        (JSON, b'{"name": 1}', 422, "name: "),
        (JSON, b'{"name": "a", "replicas": "2"}', 422, "replicas: "),
        (JSON, b'{"name": "a", "nam": "b"}', 422, "nam"),
        (JSON, b"[]", 422, "object"),
        (JSON, b'{"name": "' + b"a" * 1000 + b'"}', 413, "1000 bytes"),
    ],
)
def test_a_body_is_what_was_declared_or_refused_with_a_reason(
    headers: Any, body: bytes, status: int, reason: str
) -> None:
    got = send(FULL, "POST", "/pools", headers=headers, body=body)
    assert got.status == status, got.body
    assert reason.lower() in got.json().get("reason", "").lower()


async def anything(_: Request, *, body: Any) -> Response:
    return json_response(200, {"kind": type(body).__name__})


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000], ids=["arrays", "objects"])
def test_a_body_that_is_nested_too_deep_is_refused(body: bytes) -> None:
    routes = table(Route("POST", "/", anything, body=Any))
    assert send(routes, "POST", "/", headers=JSON, body=body).status == 400


def test_a_secured_route_calls_its_guard_before_it_decodes_the_body() -> None:
    async def guard(request: Request) -> Response | None:
        return (
            None
            if request.header("authorization")
            else problem(401, ProblemCode.DASHBOARD_TOKEN_NEEDED)
        )

    routes = Routes(
        "test",
        "1",
        (Route("POST", "/in", make, body=Pool, secured=True), Route("GET", "/out", echo)),
        guard=guard,
    )
    assert send(routes, "POST", "/in", body=b"nonsense").status == 401
    known = (*JSON, ("authorization", "Bearer x"))
    assert send(routes, "POST", "/in", body=b'{"name":"a"}', headers=known).status == 201
    assert send(routes, "GET", "/out").status == 200


BROKEN = {
    "twice": (Route("GET", "/a", echo), Route("GET", "/a", echo)),
    "twice by name": (Route("GET", "/{a}", echo), Route("GET", "/{b}", echo)),
    "no slash": (Route("GET", "a", echo),),
    "no method": (Route("get", "/a", echo),),
    "half a name": (Route("GET", "/{a", echo),),
    "name inside": (Route("GET", "/a-{b}", echo),),
    "rest not at the end": (Route("GET", "/{a...}/b", echo),),
    "name twice": (Route("GET", "/{a}/{a}", echo),),
    "named request": (Route("GET", "/{request}", echo),),
    "named body": (Route("POST", "/{body}", echo, body=Pool),),
    "unknown to its handler": (Route("GET", "/{other}", one),),
    "missing for its handler": (Route("GET", "/a", one),),
    "body for refuse_all": (Route("POST", "/{name}", one, body=Pool),),
    "description": (Route("GET", OPENAPI, echo),),
    "guarded by refuse_all": (Route("GET", "/a", echo, secured=True),),
    "decoded twice": (Route("POST", "/a", make, body=Pool, expects=Pool),),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_invalid_table_cannot_be_built(name: str) -> None:
    with pytest.raises(ValueError):
        table(*BROKEN[name])


def test_a_handler_that_fails_is_not_hidden_from_a_caller_in_process() -> None:
    async def broken(_: Request) -> Response:
        raise KeyError("x")

    with pytest.raises(KeyError):
        send(table(Route("GET", "/a", broken)), "GET", "/a")


# ── the description ─────────────────────────────────────────────────────────────────────────────────

RUNNER = Scheme(name="runner", meaning="Its own.")
SIGNED = Scheme(name="signed", meaning="By GitHub.", header="x-signature")

DESCRIBED = guarded(
    Route(
        "PUT",
        "/pools/{name}",
        echo,
        summary="Change a pool.",
        body=Pool,
        answers={200: ("The pool.", Pool), 404: ("No such pool.", None)},
        secured=True,
        query=(("dryRun", "Only pretend."),),
    ),
    Route("GET", "/pools", echo, answers={200: ("All.", list[Pool])}),
    Route("GET", "/static/{path...}", echo, media="text/html"),
    Route("POST", "/poll", echo, scheme=RUNNER, headers=(("prefer", "`wait=25`"),)),
    Route("POST", "/hook", echo, expects=Pool, scheme=SIGNED),
)


def test_the_openapi_document_matches_the_table() -> None:
    document = DESCRIBED.openapi()
    assert document["openapi"] == "3.1.0"
    assert document["info"] == {"title": "test", "version": "1.2"}
    paths = ["/pools/{name}", "/pools", "/static/{path}", "/poll", "/hook", OPENAPI]
    assert list(document["paths"]) == paths
    put = document["paths"]["/pools/{name}"]["put"]
    assert [(p["name"], p["in"]) for p in put["parameters"]] == [
        ("name", "path"),
        ("dryRun", "query"),
    ]
    assert put["security"] == [{"token": []}]
    assert list(put["responses"]) == ["200", "400", "401", "404", "413", "415", "422"]
    pool = {"$ref": "#/components/schemas/Pool"}
    assert put["requestBody"]["content"]["application/json"]["schema"] == pool
    assert put["responses"]["404"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/Problem"
    }
    listed = document["paths"]["/pools"]["get"]["responses"]["200"]
    assert listed["content"]["application/json"]["schema"] == {"type": "array", "items": pool}
    assert sorted(document["components"]["schemas"]) == ["Labels", "Pool", "Problem"]
    assert "text/html" in document["paths"]["/static/{path}"]["get"]["responses"]["200"]["content"]


def test_credentials_that_a_handler_checks_are_described() -> None:
    document = DESCRIBED.openapi()
    poll, hook = (document["paths"][path]["post"] for path in ("/poll", "/hook"))
    assert [(p["name"], p["in"]) for p in poll["parameters"]] == [("prefer", "header")]
    assert (poll["security"], hook["security"]) == ([{"runner": []}], [{"signed": []}])
    assert list(poll["responses"]) == ["200", "401"]
    schemes = document["components"]["securitySchemes"]
    assert list(schemes) == ["token", "runner", "signed"]
    assert schemes["runner"] == {"type": "http", "scheme": "bearer", "description": "Its own."}
    assert (schemes["signed"]["type"], schemes["signed"]["name"]) == ("apiKey", "x-signature")
    schema = hook["requestBody"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/Pool"}
    assert list(hook["responses"]) == ["200", "401", "413"]


def test_a_body_that_the_handler_decodes_is_not_decoded_before() -> None:
    async def hook(request: Request) -> Response:
        return Response(status=401, body=request.body)

    got = send(
        table(Route("POST", "/hook", hook, expects=Pool)), "POST", "/hook", body=b"{nonsense"
    )
    assert (got.status, got.body) == (401, b"{nonsense")


def test_a_private_description_is_behind_the_guard() -> None:
    assert send(guarded(), "GET", OPENAPI).status == 200
    assert send(guarded(private=True), "GET", OPENAPI).status == 401


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        found = [value["$ref"]] if "$ref" in value else []
        return found + [ref for item in value.values() for ref in references(item)]
    if isinstance(value, list):
        return [ref for item in value for ref in references(item)]
    return []


def test_every_reference_resolves_and_operation_ids_are_unique() -> None:
    document = DESCRIBED.openapi()
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document)
    assert set(references(document)) <= known
    names = [op["operationId"] for path in document["paths"].values() for op in path.values()]
    assert sorted(names) == sorted(set(names))


def test_the_description_is_served_over_http() -> None:
    async def scenario() -> None:
        async with serving(DESCRIBED.handle) as server, carried(server.url) as transport:
            got = await answer(transport, Request(method="GET", path=OPENAPI))
            assert got.header("content-type") == "application/json"
            assert got.json() == msgspec.json.decode(msgspec.json.encode(DESCRIBED.openapi()))

    asyncio.run(scenario())
