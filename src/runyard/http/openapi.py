"""Describes a table of routes in OpenAPI 3.1, with plain JSON Schema.

Invariant: the document depends on the table alone and lists everything in the table's order, so two
replicas of one version serve the same bytes.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from runyard.http.problems import Problem

if TYPE_CHECKING:
    from runyard.http.routes import Route  # which imports this module

_NAME = re.compile(r"\{([a-z0-9_]+)(?:\.\.\.)?\}")
_JSON = "application/json"
_HTML = "text/html"
_BODILESS = (204, 303)  # their answers have no body, of whatever kind the others are
_REFUSED = {
    400: "The body is not valid JSON.",
    401: "The request has no valid credential.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The body is not of the described type.",
}


class Scheme(msgspec.Struct, frozen=True, kw_only=True):
    """A credential that a route requires: a bearer token, or a header of its own."""

    name: str
    meaning: str
    header: str = ""  # empty: `Authorization: Bearer`


TOKEN = Scheme(name="token", meaning="The token of this server.")


def describe(title: str, version: str, routes: Sequence["Route"]) -> dict[str, Any]:
    """Build the OpenAPI document."""
    schemas, components = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operations = paths.setdefault(_NAME.sub(r"{\1}", route.path), {})
        operations[route.method.lower()] = _operation(route, schemas)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": components},
    }
    schemes = {
        scheme.name: _scheme(scheme)
        for route in routes
        if (scheme := _scheme_of(route)) is not None
    }
    if schemes:
        document["components"]["securitySchemes"] = schemes
    return document


def _scheme_of(route: "Route") -> Scheme | None:
    return TOKEN if route.secured else route.scheme


def _scheme(scheme: Scheme) -> dict[str, str]:
    described = {"description": scheme.meaning}
    if scheme.header:
        return {"type": "apiKey", "in": "header", "name": scheme.header, **described}
    return {"type": "http", "scheme": "bearer", **described}


class _Schemas:
    """The schema of each type that the table mentions; types are not all hashable, so by identity."""

    def __init__(self, types: list[Any]) -> None:
        made, self.components = msgspec.json.schema_components(
            types, ref_template="#/components/schemas/{name}"
        )
        self._made = {id(kind): schema for kind, schema in zip(types, made, strict=True)}

    def __getitem__(self, kind: Any) -> dict[str, Any]:
        return self._made[id(kind)]


def _schemas(routes: Sequence["Route"]) -> tuple[_Schemas, dict[str, Any]]:
    types: list[Any] = [Problem]
    for route in routes:
        kinds = (kind for _, kind in route.answers.values())
        types += [kind for kind in (route.body, route.expects, *kinds) if kind]
    schemas = _Schemas(types)
    return schemas, schemas.components


def _operation(route: "Route", schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _identifier(route),
        "summary": route.summary,
        "parameters": [
            *(_parameter("path", name, "") for name in _NAME.findall(route.path)),
            *(_parameter("query", name, meaning) for name, meaning in route.query),
            *(_parameter("header", name, meaning) for name, meaning in route.headers),
        ],
        "responses": _responses(route, schemas),
    }
    if (kind := route.body or route.expects) is not None:
        content = {_JSON: {"schema": schemas[kind]}}
        operation["requestBody"] = {"required": True, "content": content}
    if (scheme := _scheme_of(route)) is not None:
        operation["security"] = [{scheme.name: []}]
    return operation


def _parameter(place: str, name: str, meaning: str) -> dict[str, Any]:
    parameter: dict[str, Any] = {"name": name, "in": place, "schema": {"type": "string"}}
    if place == "path":
        parameter["required"] = True
    if meaning:
        parameter["description"] = meaning
    return parameter


def _responses(route: "Route", schemas: _Schemas) -> dict[str, Any]:
    refusals = [400, 413, 415, 422] if route.body else [413] if route.expects else []
    if _scheme_of(route) is not None:
        refusals.append(401)
    responses: dict[int, tuple[str, Any]] = {code: (_REFUSED[code], None) for code in refusals}
    responses |= dict(route.answers) or {200: ("", None)}
    return {
        str(status): _response(route, status, meaning, schemas[kind] if kind else None, schemas)
        for status, (meaning, kind) in sorted(responses.items())
    }


def _response(
    route: "Route", status: int, meaning: str, schema: dict[str, Any] | None, schemas: _Schemas
) -> dict[str, Any]:
    response: dict[str, Any] = {"description": meaning}
    # A refusal is a problem, unless the route declares another response for it.
    page = route.media == _HTML and status in route.answers and schema is None
    if schema is None and status >= 400 and not page:
        schema = schemas[Problem]
    media = route.media if status < 400 or page else _JSON
    if schema is not None:
        response["content"] = {media: {"schema": schema}}
    elif media != _JSON and status not in _BODILESS:
        response["content"] = {media: {}}
    return response


def _identifier(route: "Route") -> str:
    words = re.findall(r"[A-Za-z0-9]+", route.path) or ["root"]
    return "_".join([route.method.lower(), *words])
