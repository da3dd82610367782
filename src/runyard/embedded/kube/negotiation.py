"""What a client wants to be answered in: JSON as it is, only the metadata, or something that is not spoken here."""

from functools import lru_cache

import msgspec

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.status import not_acceptable

_JSON = "application/json"
_WELCOME = ("*/*", "application/*", _JSON)
_META = "PartialObjectMetadata"
_META_VERSION = "meta.k8s.io/v1"


def check(accept: str) -> None:
    """Raise 406 unless an answer in JSON is welcome."""
    if not _speaks(accept):
        raise not_acceptable((_JSON,))


@lru_cache(maxsize=256)
def _speaks(accept: str) -> bool:
    if not accept:
        return True
    return any(_kind(choice) in _WELCOME for choice in accept.split(","))


def _kind(choice: str) -> str:
    return choice.partition(";")[0].strip().lower()


@lru_cache(maxsize=256)
def wants_metadata(accept: str) -> bool:
    """Whether the first choice in JSON is the metadata alone."""
    for choice in accept.split(",") if _META in accept else ():
        if _kind(choice) in _WELCOME:
            told = [part.strip() for part in choice.split(";")[1:]]
            return f"as={_META}" in told or f"as={_META}List" in told
    return False


def metadata_of(obj: Object) -> Object:
    """The metadata of an object, as an object."""
    return {"kind": _META, "apiVersion": _META_VERSION, "metadata": obj["metadata"]}


def metadata_list(objects: list[Object], meta: Object) -> bytes:
    """The metadata of many."""
    items = [metadata_of(obj) for obj in objects]
    head = {"kind": f"{_META}List", "apiVersion": _META_VERSION, "metadata": meta}
    return msgspec.json.encode({**head, "items": items or None})
