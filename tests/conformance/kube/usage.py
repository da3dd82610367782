"""Names the kind of a Kubernetes request: `patch pods/status merge`, `list by labels`, `watch ?limit`.

The embedded API serves the requests of runyard's components and of kubectl. `used.txt` lists them, recorded by running
them. Tests fail when one of them sends an unlisted request, when a listed request is not sent, and when a listed
request is in no conformance script.
"""

import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from urllib.parse import unquote

import msgspec

from runyard.http.messages import Request, Response, Stream

LIST = Path(__file__).with_name("used.txt")
RECORD = "RUNYARD_RECORD_USAGE"  # a directory into which the words of the scripts are written

Handle = Callable[[Request], Awaitable[Response | Stream]]

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_CONTENTS = {
    "application/json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/json-patch+json": "json-patch",
    "application/apply-patch+yaml": "apply",
    "application/vnd.kubernetes.protobuf": "protobuf",
}
# Said by the verb, or without a meaning for what is answered.
_PLAIN = ("watch", "labelSelector", "fieldSelector", "timeout")
NODES_OWN = ("pods/log", "pods/exec", "pods/attach", "pods/portforward")  # a node answers these


def words(request: Request) -> tuple[str, ...]:
    """The names of one request."""
    found = _resource(request.path)
    if found is None:
        return (f"{request.method.lower()} {_document(request)}",)
    resource, named = found
    verb = _verb(request, named=named)
    if resource in NODES_OWN:
        return (f"{verb} {resource}",)
    kind = request.header("content-type").split(";")[0]
    content = f" {_CONTENTS.get(kind, kind)}" if request.body and verb != "delete" else ""
    table = " table" if "as=Table" in request.header("accept") else ""
    return (
        f"{verb} {resource}{content}{table}",
        *(f"{verb} ?{key}" for key, value in request.query if key not in _PLAIN and value),
        *(f"{verb} {resource} by {field}" for field in _fields(request.param("fieldSelector"))),
        *((f"{verb} by labels",) if request.param("labelSelector") else ()),
        *(_delete_options(request) if verb.startswith("delete") else ()),
    )


def _resource(path: str) -> tuple[str, bool] | None:
    """The resource with its subresource, and whether the path names one object; None for documents."""
    steps = [unquote(step) for step in path.strip("/").split("/")]
    rest = steps[2:] if steps[0] == "api" else steps[3:] if steps[0] == "apis" else []
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        rest = rest[2:]
    if not rest:
        return None
    resource = "/".join([rest[0], *rest[2:3]])
    return resource, len(rest) > 1


def _document(request: Request) -> str:
    path, form = request.path.rstrip("/"), ""
    if "as=APIGroupDiscoveryList" in request.header("accept"):
        form = " aggregated"
    if path.startswith("/apis/"):
        path = "/apis/*"
    return ("/openapi/v3/*" if path.startswith("/openapi/v3/") else path) + form


def _verb(request: Request, *, named: bool) -> str:
    if request.method in ("GET", "HEAD"):
        if request.param("watch") in ("true", "1"):
            return "watch"
        return "get" if named else "list"
    verb = _VERBS[request.method]
    return "deletecollection" if verb == "delete" and not named else verb


def _fields(selector: str) -> list[str]:
    given = [part for part in selector.split(",") if part]
    return [part.replace("==", "=").split("=")[0] + "=" for part in given]


def _delete_options(request: Request) -> list[str]:
    try:
        options = msgspec.json.decode(request.body or b"{}")
    except msgspec.DecodeError:
        return []
    return (
        [
            f"delete ?{key}"
            for key, value in options.items()
            if key not in ("kind", "apiVersion") and value is not None
        ]
        if isinstance(options, dict)
        else []
    )


def recording(handle: Handle, seen: dict[str, None]) -> Handle:
    """The same server with a record of its requests."""

    async def answer(request: Request) -> Response | Stream:
        for word in words(request):
            seen[word] = None
        return await handle(request)

    return answer


def used() -> dict[str, set[str]]:
    """The list: what is asked, and by whom; with `unserved` for what the embedded API knowingly has not."""
    lines = [line.split(": ", 1) for line in LIST.read_text("utf-8").splitlines()]
    return {what: set(who.split()) for who, what in lines}


def compare(who: str, seen: Iterable[str]) -> None:
    """Fails unless the list equals what was recorded."""
    found, listed = set(seen), {what for what, askers in used().items() if who in askers}
    missing, unused = sorted(found - listed), sorted(listed - found)
    assert not missing, f"{who} sends requests that {LIST.name} does not list: {missing}"
    assert not unused, f"{who} no longer sends requests that {LIST.name} lists: {unused}"


def leave(seen: Iterable[str]) -> None:
    """Writes the requests of this process's scripts to the directory from the environment, if one is set."""
    folder = os.environ.get(RECORD)
    if folder:
        Path(folder, f"{os.getpid()}.txt").write_text("\n".join(sorted(seen)), encoding="utf-8")
