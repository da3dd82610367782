"""Tests signed links: one operation, until they expire, and only unchanged."""

from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from tests.blobs.blobstores import ShiftedClock

from runyard.blobs.downloads import headers, safe_name
from runyard.blobs.errors import BadKey
from runyard.blobs.links import BadLink, Links
from runyard.http.messages import Request
from runyard.wire.paths import BLOBS

OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32


def request_of(link: str, method: str = "", **changed: str) -> tuple[Request, str]:
    parts = urlsplit(link)
    query = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **changed}
    path = parts.path
    request = Request(method=method or query["method"], path=path, query=tuple(query.items()))
    return request, path.removeprefix(BLOBS + "/")


def test_a_link_allows_its_own_operation() -> None:
    links = Links((NEW,), clock=ShiftedClock())
    put = links.verify(*request_of(links.put("a/b", lasts=60, limit=500)))
    assert (put.method, put.key, put.limit) == ("PUT", "a/b", 500)
    get = links.verify(*request_of(links.get("a/b", lasts=60, name="Größe & Co.png")))
    assert (get.method, get.key, get.name) == ("GET", "a/b", "Größe & Co.png")


CHANGED = {
    "another method": ("PUT", {}),
    "a later end": ("", {"until": "9999999999"}),
    "another name": ("", {"name": "other"}),
    "a limit": ("", {"limit": "1"}),
    "another signature": ("", {"signature": "0" * 64}),
    "no signature": ("", {"signature": ""}),
    "half a signature": ("", {"signature": "ab"}),
    "letters for an end": ("", {"until": "soon"}),
    "a negative end": ("", {"until": "-1"}),
    "digits of another script": ("", {"until": "١٢٣"}),
    "a very long name": ("", {"name": "x" * 5000}),
}


@pytest.mark.parametrize(("method", "changed"), CHANGED.values(), ids=CHANGED)
def test_a_changed_link_is_refused(method: str, changed: dict[str, str]) -> None:
    links = Links((NEW,), clock=ShiftedClock())
    with pytest.raises(BadLink):
        links.verify(*request_of(links.get("a/b", lasts=60, name="n"), method, **changed))


def test_a_link_is_refused_for_another_key() -> None:
    links = Links((NEW,), clock=ShiftedClock())
    request, _ = request_of(links.get("a/b", lasts=60))
    for key in ("a/c", "a", "a/b/c", "../a/b", ""):
        with pytest.raises(BadLink):
            links.verify(request, key)
    with pytest.raises(BadKey):
        links.get("../secret", lasts=60)


def test_moving_characters_between_fields_changes_the_signature() -> None:
    links = Links((NEW,), clock=ShiftedClock())
    request, _ = request_of(links.get("a", lasts=60, name="b"))
    moved, _ = request_of(f"{BLOBS}/ab?{urlencode(dict(request.query) | {'name': ''})}")
    with pytest.raises(BadLink):
        links.verify(moved, "ab")


def test_a_link_expires() -> None:
    clock = ShiftedClock()
    links = Links((NEW,), clock=clock)
    request, key = request_of(links.get("a", lasts=60))
    clock.ahead = 58
    links.verify(request, key)
    clock.ahead = 61
    with pytest.raises(BadLink, match="expired"):
        links.verify(request, key)


def test_signing_keys_can_be_rotated() -> None:
    clock = ShiftedClock()
    before = request_of(Links((OLD,), clock=clock).get("a", lasts=60))
    meanwhile = Links((NEW, OLD), clock=clock)
    meanwhile.verify(*before)
    after = request_of(meanwhile.get("a", lasts=60))
    Links((NEW,), clock=clock).verify(*after)
    with pytest.raises(BadLink, match="signature"):
        Links((NEW,), clock=clock).verify(*before)
    with pytest.raises(BadLink, match="signature"):
        Links((OTHER,), clock=clock).verify(*after)


def test_a_short_signing_key_is_refused() -> None:
    for keys in ((), (b"short",), (NEW, b"")):
        with pytest.raises(ValueError, match="16 bytes"):
            Links(keys, clock=ShiftedClock())


NAMES = {
    "Launch Screen_0_AB.png": "Launch Screen_0_AB.png",
    "../../etc/passwd": "_.._etc_passwd",
    "C:\\x\\y.exe": "C__x_y.exe",
    'a"; filename="evil.html': "a__ filename=_evil.html",
    "line\r\nset-cookie: a=b": "line__set-cookie_ a=b",
    "gpj.\u202eexe": "gpj._exe",
    ".bashrc": "bashrc",
    "": "download",
    "...": "download",
    "x" * 300 + ".txt": "x" * 146 + ".txt",
    "日本.png": "日本.png",
}


@pytest.mark.parametrize(("name", "safe"), NAMES.items())
def test_download_names_are_made_safe(name: str, safe: str) -> None:
    assert safe_name(name) == safe
    sent = dict(headers(name))
    assert sent["content-disposition"].startswith('attachment; filename="')
    assert sent["content-disposition"].isascii() and sent["content-disposition"].isprintable()
    assert sent["content-disposition"].count('"') == 2
    assert sent["x-content-type-options"] == "nosniff"
    assert sent["content-security-policy"].startswith("sandbox;")
    assert sent["content-type"] == "application/octet-stream"
