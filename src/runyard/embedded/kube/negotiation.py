"""Negotiates the form of the answer: JSON or protobuf; the object itself, a table, or only the metadata.

The choices of the Accept header are tried in their order, the best quality first and wildcards last; the first that
this server can serve for the resource wins. Tables exist in JSON only. Custom resources exist in JSON only, but their
metadata and a refusal do not. A refusal that no choice fits is JSON.
"""

from functools import lru_cache

import msgspec

from runyard.embedded.kube.protobuf.decoding import PROTOBUF
from runyard.embedded.kube.resources import Object, Resource
from runyard.embedded.kube.status import not_acceptable
from runyard.embedded.kube.tables import tables
from runyard.http.messages import Request

_JSON = "application/json"
_META = "PartialObjectMetadata"
_LISTS = (_META, f"{_META}List")
_GROUP = "meta.k8s.io"
_VERSIONS = ("v1", "v1beta1")
_WATCH = "watch"


class Form(msgspec.Struct, frozen=True):
    """The form of an answer."""

    protobuf: bool = False
    shown: str = ""  # Table, PartialObjectMetadata or the list of them; empty: the object itself
    version: str = ""  # of that group


class _Choice(msgspec.Struct, frozen=True):
    """One choice of an Accept header."""

    media: str
    quality: float
    given: dict[str, str]


_PLAIN = Form()


def negotiated(request: Request, resource: Resource) -> Form:
    """The form of the answer about a resource; raises 406 if no choice can be served."""
    form = _negotiated(request.header("accept"), resource.custom)
    if form is None:
        raise not_acceptable((_JSON,) if resource.custom else (_JSON, PROTOBUF))
    return form


@lru_cache(maxsize=256)
def wants_protobuf(accept: str) -> bool:
    """Whether a refusal, or another answer that has no other form, is encoded as protobuf."""
    if PROTOBUF not in accept:
        return False
    for choice in _choices(accept):
        if not choice.given.keys() & {"as", "g", "v"} and (found := _media(choice)):
            return found[0] == PROTOBUF
    return False


@lru_cache(maxsize=256)
def _negotiated(accept: str, custom: bool) -> Form | None:
    if not accept:
        return _PLAIN
    for choice in _choices(accept):
        for media in _media(choice):
            form = _form(media == PROTOBUF, choice.given)
            if form is not None and not (form.protobuf and custom and not form.shown):
                return form
    return None


def _choices(accept: str) -> list[_Choice]:
    """The choices of an Accept header: the best first, wildcards last."""
    found: list[_Choice] = []
    for choice in accept.split(","):
        media, *rest = (part.strip() for part in choice.split(";"))
        given = dict(part.partition("=")[::2] for part in rest)
        found.append(_Choice(media.lower(), _quality(given.pop("q", "1")), given))
    return sorted(found, key=lambda item: (-item.quality, item.media.count("*")))


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _media(choice: _Choice) -> tuple[str, ...]:
    """The types of content that a choice stands for."""
    if choice.given.get("stream", "") not in ("", _WATCH):
        return ()
    if choice.media in ("*/*", "*", "application/*"):
        return (_JSON, PROTOBUF)
    return (choice.media,) if choice.media in (_JSON, PROTOBUF) else ()


def _form(protobuf: bool, given: dict[str, str]) -> Form | None:
    """The requested form; None if there is none of that name."""
    if not given.keys() & {"as", "g", "v"}:
        return Form(protobuf)
    shown, version = given.get("as", ""), given.get("v", "")
    if given.get("g") != _GROUP or version not in _VERSIONS:
        return None
    if shown in _LISTS:
        return Form(protobuf, shown, version)
    return Form(False, shown, version) if shown == "Table" and not protobuf else None


def table_of(request: Request, form: Form) -> tables.Form | None:
    """The requested form of a table; None if no table is requested."""
    if form.shown != "Table":
        return None
    return tables.Form(form.version, request.param("includeObject") or "Metadata")


def wants_metadata(form: Form, *, listed: bool | None = None) -> bool:
    """Whether the answer is the metadata alone; raises 406 if a list is requested of one object, or the opposite."""
    if form.shown not in _LISTS:
        return False
    if listed is not None and form.shown != _LISTS[listed]:
        raise not_acceptable((_LISTS[listed],))
    return True


def metadata_of(obj: Object) -> Object:
    """The metadata of an object, as an object."""
    return {"kind": _META, "apiVersion": f"{_GROUP}/v1", "metadata": obj["metadata"]}


def metadata_list(objects: list[Object], meta: Object) -> bytes:
    """The metadata of many."""
    items = [metadata_of(obj) for obj in objects]
    head = {"kind": f"{_META}List", "apiVersion": f"{_GROUP}/v1", "metadata": meta}
    return msgspec.json.encode({**head, "items": items or None})
