"""Tests that references mean to us what they mean to tart."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.vm.oci.reference import InvalidReference, Reference, is_digest, is_local, parse

HEX = "0123456789abcdef" * 4
DIGEST = f"sha256:{HEX}"

# Tart's grammar, as it is written down there, with its ambiguous repetition left in.
WORD = "[A-Za-z0-9]+"
TART = re.compile(
    rf"{WORD}(-{WORD})*(\.{WORD}(-{WORD})*)*(:[0-9]+)?"
    rf"/({WORD}[._-]?)+(/({WORD}[._-]?)+)*"
    rf"(:{WORD}([._-]{WORD})*|@sha256:{WORD})?"
)

READ = {
    "registry.example/acme/macos": ("registry.example", "acme/macos", "latest", ""),
    "registry.example/acme/macos:sequoia": ("registry.example", "acme/macos", "sequoia", ""),
    "registry.example/acme/macos:15.6-xcode_26": (
        "registry.example",
        "acme/macos",
        "15.6-xcode_26",
        "",
    ),
    f"registry.example/acme/macos@{DIGEST}": ("registry.example", "acme/macos", "", DIGEST),
    "localhost/macos": ("localhost", "macos", "latest", ""),
    "127.0.0.1:5000/macos": ("127.0.0.1:5000", "macos", "latest", ""),
    "127.0.0.1:5000/a/b/c:d": ("127.0.0.1:5000", "a/b/c", "d", ""),
    "my-registry.example.com:443/Acme/mac_os.15": (
        *("my-registry.example.com:443", "Acme/mac_os.15", "latest", ""),
    ),
    "registry.example/acme-/macos.:1": ("registry.example", "acme-/macos.", "1", ""),
}

REFUSED = {
    "": "a local VM",
    "macos": "a local VM",
    "macos:sequoia": "a local VM",
    "localhost:5000": "a local VM",
    "/macos": "not a name",
    "registry.example/": "not a name",
    "registry.example//macos": "not a name",
    "registry.example/acme/": "not a name",
    "registry.example/-acme/macos": "not a name",
    "registry.example/ac--me/macos": "not a name",
    "registry.example/ac__me/macos": "not a name",
    "registry..example/macos": "not a name",
    "regis_try.example/macos": "not a name",
    "[::1]/macos": "not a name",
    "https://registry.example/acme/macos": "a URL",
    "registry.example/acme/macos ": "not a name",
    "registry.example/acme/macos\n": "not a name",
    "registry.example/acme/mäcos": "not a name",
    "registry.example/acme/macos?x=1": "not a name",
    "user@registry.example/acme/macos": "not a name",
    "../../etc/passwd": "not a name",
    "registry.example/acme/..": "not a name",
    "registry.example/acme/macos:": "an invalid tag",
    "registry.example/acme/macos:-1": "an invalid tag",
    "registry.example/acme/macos:1-": "an invalid tag",
    "registry.example/acme/macos:a:b": "an invalid tag",
    "registry.example/acme/macos@": "an invalid digest",
    f"registry.example/acme/macos@{HEX}": "an invalid digest",
    f"registry.example/acme/macos@sha512:{HEX}": "an invalid digest",
    f"registry.example/acme/macos@sha256:{HEX[:-1]}": "an invalid digest",
    f"registry.example/acme/macos@sha256:{HEX.upper()}": "an invalid digest",
    f"registry.example/acme/macos:sequoia@{DIGEST}": "both a tag and a digest",
    "registry.example:0/acme/macos": "no port",
    "registry.example:65536/acme/macos": "no port",
    f"registry.example:{'9' * 500}/acme/macos": "no port",
    f"registry.example/{'a' * 2000}": "longer than",
}


@pytest.mark.parametrize("text", READ)
def test_a_reference_is_read_as_tart_reads_it(text: str) -> None:
    host, namespace, tag, digest = READ[text]
    assert parse(text) == Reference(host=host, namespace=namespace, tag=tag, digest=digest)
    assert TART.fullmatch(text)


@pytest.mark.parametrize("text", REFUSED)
def test_what_tart_would_misread_is_refused_with_the_cause(text: str) -> None:
    with pytest.raises(InvalidReference, match=REFUSED[text]) as caught:
        parse(text)
    assert len(str(caught.value)) < 1300


def test_a_local_name_is_not_sent_to_a_registry() -> None:
    assert is_local("sequoia")
    assert is_local("sequoia:latest")
    assert not is_local("registry.example/acme/macos")


def test_the_directory_is_the_one_that_tart_uses() -> None:
    assert parse("127.0.0.1:5000/a/b:c").directory == "127.0.0.1%3A5000/a/b/c"
    assert parse(f"registry.example/a/b@{DIGEST}").directory == f"registry.example/a/b/{DIGEST}"


def test_pinning_keeps_the_repository_and_drops_the_tag() -> None:
    tagged = parse("registry.example/acme/macos:sequoia")
    pinned = tagged.pinned(DIGEST)
    assert str(pinned) == f"registry.example/acme/macos@{DIGEST}"
    assert pinned.repository == tagged.repository
    assert parse("registry.example/acme/linux").repository != tagged.repository
    with pytest.raises(InvalidReference):
        tagged.pinned("latest")


NAMES = st.from_regex(r"[A-Za-z0-9]+([._-][A-Za-z0-9]+){0,2}", fullmatch=True)
HOSTS = st.from_regex(r"[a-z0-9]+([.-][a-z0-9]+){0,3}", fullmatch=True)
PORTS = st.just("") | st.integers(1, 65535).map(":{}".format)
ENDS = (
    st.just("")
    | NAMES.map(":{}".format)
    | st.binary(min_size=32, max_size=32).map(lambda raw: f"@sha256:{raw.hex()}")
)


@given(HOSTS, PORTS, st.lists(NAMES, min_size=1, max_size=4), ENDS)
def test_what_was_printed_is_read_back(host: str, port: str, names: list[str], end: str) -> None:
    found = parse(f"{host}{port}/{'/'.join(names)}{end}")
    assert parse(str(found)) == found
    assert (found.host, found.namespace) == (host + port, "/".join(names))
    assert bool(found.tag) != bool(found.digest)
    assert ":" not in found.directory.partition("/")[0]


@given(st.text(alphabet="ab0:/.@-_\n", max_size=12))
def test_whatever_is_accepted_tart_accepts(text: str) -> None:
    try:
        found = parse(text)
    except InvalidReference:
        return
    assert TART.fullmatch(text)
    assert str(found) in {text, f"{text}:latest"}


@given(st.text(alphabet="a0:/.@-_", max_size=10))
def test_whatever_tart_accepts_is_accepted(text: str) -> None:
    if not TART.fullmatch(text) or "@" in text or re.search(r":0*/", text):
        return
    assert str(parse(text)) in {text, f"{text}:latest"}


def test_a_long_name_is_refused_without_delay() -> None:
    with pytest.raises(InvalidReference):
        parse("registry.example/" + "a" * 1000 + "!")


@pytest.mark.parametrize("text", ["", "sha256:", HEX, f" {DIGEST}", f"{DIGEST}\n", DIGEST.upper()])
def test_only_a_whole_digest_is_one(text: str) -> None:
    assert is_digest(DIGEST)
    assert not is_digest(text)
