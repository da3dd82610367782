"""Serves OpenAPI v3: an index, and one document per group and version, from the rows and the definitions.

kubectl looks up a kind that it does not find there in OpenAPI v2, and treats a missing document as a broken
server. So an empty v2 document is served, as JSON and as protobuf.
"""

import hashlib

import msgspec

from runyard.embedded.kube.catalogue import Catalogue
from runyard.embedded.kube.openapi import paths, types
from runyard.embedded.kube.resources import Object
from runyard.http.messages import Request, Response

_JSON = (("content-type", "application/json"),)
_ROOT = "/openapi/v3"
_V2 = "/openapi/v2"
_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_V2_ACCEPTED = ("application/com.github.proto-openapi.spec.v2", "+protobuf")
_INFO = {"title": "Kubernetes, embedded in runyard", "version": "unversioned"}


class OpenApi:
    """Serves the documents, cached until the catalogue changes."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._edition = -1
        self._cache: dict[str, bytes] = {}

    def document(self, path: str, request: Request) -> Response | None:
        """The document at that path, or None if there is none."""
        if self._edition != self._catalogue.edition:
            self._edition = self._catalogue.edition
            self._cache = {}
        if path == _V2:
            return _v2_document(request)
        if path == _ROOT:
            return Response(status=200, headers=_JSON, body=self._index())
        group = self._groups().get(path.removeprefix(f"{_ROOT}/"))
        if group is None or not path.startswith(f"{_ROOT}/"):
            return None
        return Response(status=200, headers=_JSON, body=self._body(*group))

    def _groups(self) -> dict[str, tuple[str, str]]:
        return {
            (f"apis/{group}/{version}" if group else f"api/{version}"): (group, version)
            for group, version in self._catalogue.groups
        }

    def _index(self) -> bytes:
        found = self._cache.get("")
        if found is None:
            served = {
                name: {"serverRelativeURL": f"{_ROOT}/{name}?hash={self._hash(*group)}"}
                for name, group in self._groups().items()
            }
            found = self._cache[""] = msgspec.json.encode({"paths": served})
        return found

    def _hash(self, group: str, version: str) -> str:
        return hashlib.sha256(self._body(group, version)).hexdigest().upper()

    def _body(self, group: str, version: str) -> bytes:
        key = f"{group}/{version}"
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = msgspec.json.encode(self._document(group, version))
        return found

    def _document(self, group: str, version: str) -> Object:
        rows = [
            item
            for item in self._catalogue.served
            if (item.group, item.version) == (group, version)
        ]
        return {
            "openapi": "3.0.0",
            "info": _INFO,
            "paths": {key: value for row in rows for key, value in paths.of(row).items()},
            "components": {"schemas": types.schemas(rows)},
        }


def _v2_document(request: Request) -> Response:
    """Returns the empty OpenAPI v2 document."""
    if not all(part in request.header("accept") for part in _V2_ACCEPTED):
        body = msgspec.json.encode({"swagger": "2.0", "info": _INFO, "paths": {}})
        return Response(status=200, headers=_JSON, body=body)
    info = b"".join(_text(number, text) for number, text in enumerate(_INFO.values(), 1))
    body = _text(1, "2.0") + b"\x12" + bytes([len(info)]) + info
    return Response(status=200, headers=(("content-type", _V2_TYPE),), body=body)


def _text(number: int, text: str) -> bytes:
    """A short text as a field of a message in protobuf."""
    return bytes([number << 3 | 2, len(text)]) + text.encode()
