"""Negotiates the form of the answer: JSON, only the metadata, or an unsupported one."""

from functools import lru_cache

import msgspec

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.status import not_acceptable

_JSON = "application/json"
_ACCEPTED_AS_JSON = ("*/*", "application/*", _JSON)
_META = "PartialObjectMetadata"
_META_VERSION = "meta.k8s.io/v1"


def check(accept: str) -> None:
    """Raises 406 unless the client accepts JSON."""
    if not _accepts_json(accept):
        raise not_acceptable((_JSON,))


@lru_cache(maxsize=256)
def _accepts_json(accept: str) -> bool:
    if not accept:
        return True
    return any(_kind(choice) in _ACCEPTED_AS_JSON for choice in accept.split(","))


def _kind(choice: str) -> str:
    return choice.partition(";")[0].strip().lower()


@lru_cache(maxsize=256)
def wants_metadata(accept: str) -> bool:
    """Whether the first JSON choice is the metadata alone."""
    for choice in accept.split(",") if _META in accept else ():
        if _kind(choice) in _ACCEPTED_AS_JSON:
            given = [part.strip() for part in choice.split(";")[1:]]
            return f"as={_META}" in given or f"as={_META}List" in given
    return False


def metadata_of(obj: Object) -> Object:
    """The metadata of an object, as an object."""
    return {"kind": _META, "apiVersion": _META_VERSION, "metadata": obj["metadata"]}


def metadata_list(objects: list[Object], meta: Object) -> bytes:
    """The metadata of many."""
    items = [metadata_of(obj) for obj in objects]
    head = {"kind": f"{_META}List", "apiVersion": _META_VERSION, "metadata": meta}
    return msgspec.json.encode({**head, "items": items or None})
