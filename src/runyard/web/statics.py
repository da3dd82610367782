"""Serves the page's static files: one style sheet, one script, one icon.

They are read once at start and looked up by name, so a path from a request never reaches the file system. Their URLs
contain a hash of their content, so browsers may cache them for ever.
"""

import hashlib
from importlib import resources

import msgspec

from runyard.http.messages import Request, Response
from runyard.http.problems import problem
from runyard.web.page import Assets
from runyard.wire.problem_codes import ProblemCode

_TYPES = {
    "app.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "favicon.svg": "image/svg+xml",
}
_FOREVER = "public, max-age=31536000, immutable"


class _File(msgspec.Struct, frozen=True):
    type: str
    body: bytes
    hash: str


class Statics:
    """Holds and serves the files."""

    def __init__(self) -> None:
        folder = resources.files("runyard.web") / "static"
        self._files = {name: _load((folder / name).read_bytes(), _TYPES[name]) for name in _TYPES}
        hashes = "".join(file.hash for file in self._files.values())
        self.assets = Assets(
            style=self._address("app.css"),
            script=self._address("app.js"),
            icon=self._address("favicon.svg"),
            version=hashlib.sha256(hashes.encode()).hexdigest()[:12],
        )

    async def answer(self, request: Request, name: str) -> Response:
        """Serve one file, without authentication because the login page needs it."""
        file = self._files.get(name)
        if file is None:
            return problem(404, ProblemCode.FILE_UNKNOWN)
        tag = f'"{file.hash}"'
        cache = _FOREVER if request.param("v") == file.hash else "no-cache"
        headers = (("etag", tag), ("cache-control", cache), ("x-content-type-options", "nosniff"))
        if request.header("if-none-match") == tag:
            return Response(status=304, headers=headers)
        return Response(status=200, headers=(("content-type", file.type), *headers), body=file.body)

    def _address(self, name: str) -> str:
        return f"/static/{name}?v={self._files[name].hash}"


def _load(body: bytes, type_: str) -> _File:
    return _File(type=type_, body=body, hash=hashlib.sha256(body).hexdigest()[:16])
