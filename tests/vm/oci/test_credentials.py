"""Tests that credentials are found where tart finds them, and appear nowhere else."""

import asyncio
import base64
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from runyard.clock import RealClock
from runyard.vm.oci.credentials import (
    Chain,
    Credentials,
    DockerConfig,
    Environment,
    Found,
    Source,
    Unavailable,
)
from runyard.vm.oci.keychain import Keychain
from runyard.vm.oci.sources import usual

SECRET = "s3cret:with colon"
HOST = "registry.example:5000"
TART = {"TART_REGISTRY_USERNAME": "ci", "TART_REGISTRY_PASSWORD": SECRET}

Script = Callable[[str, str], Path]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def found(chain: Chain, host: str = HOST) -> Found:
    return asyncio.run(chain.find(host))


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Writes a program into a directory; returns the directory."""

    def write(name: str, body: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        return folder

    return write


def config(
    tmp_path: Path, content: object, *, path: Path | None = None, deadline: float = 10
) -> Chain:
    file = tmp_path / "config.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    search = f"{path}{os.pathsep}/usr/bin{os.pathsep}/bin" if path else "/usr/bin:/bin"
    return Chain(DockerConfig(file, environ={"PATH": search}, deadline=deadline))


# ── tart's variables ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("environ", "used"),
    [
        ({}, False),
        (TART, True),
        (TART | {"TART_REGISTRY_HOSTNAME": HOST}, True),
        (TART | {"TART_REGISTRY_HOSTNAME": "registry.example"}, False),
        (TART | {"TART_REGISTRY_HOSTNAME": ""}, False),
        ({"TART_REGISTRY_USERNAME": "ci"}, False),
        ({"TART_REGISTRY_PASSWORD": SECRET}, False),
        (TART | {"TART_REGISTRY_PASSWORD": ""}, False),
        (TART | {"TART_REGISTRY_USERNAME": "a:b"}, False),
        (TART | {"TART_REGISTRY_PASSWORD": "a\nHost: b"}, False),
    ],
)
def test_variables_for_another_registry_are_not_sent_to_this_one(
    environ: Mapping[str, str], used: bool
) -> None:
    result = found(Chain(Environment(environ)))
    assert (result.credentials is not None) is used
    if result.credentials is not None:
        assert result.credentials.basic == f"Basic {encoded(f'ci:{SECRET}')}"
        assert result.credentials.source is Source.ENVIRONMENT
    assert SECRET not in repr(result)


def test_half_of_the_variables_is_a_mistake_that_is_named() -> None:
    notes = found(Chain(Environment({"TART_REGISTRY_USERNAME": "ci"}))).notes
    assert notes == ("TART_REGISTRY_USERNAME is set without TART_REGISTRY_PASSWORD: set both",)


# ── docker's configuration ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"auths": {HOST: {"auth": encoded(f"ci:{SECRET}")}}}, "ci"),
        ({"auths": {HOST: {"username": "ci", "password": SECRET}}}, "ci"),
        ({"auths": {HOST: {"auth": encoded(f"ci:{SECRET}"), "username": "other"}}}, "ci"),
        ({"auths": {HOST: {}}}, None),
        ({"auths": {HOST: {"username": "ci"}}}, None),
        ({"auths": {"registry.example": {"auth": encoded(f"ci:{SECRET}")}}}, None),
        ({"auths": {f"https://{HOST}": {"auth": encoded(f"ci:{SECRET}")}}}, None),
        ({"HttpHeaders": {"X": "y"}, "detachKeys": "ctrl-e"}, None),
        ({}, None),
    ],
)
def test_an_entry_of_another_registry_is_not_used(
    tmp_path: Path, content: object, expected: str | None
) -> None:
    result = found(config(tmp_path, content))
    assert (result.credentials.username if result.credentials else None) == expected
    assert result.notes == ()
    if result.credentials is not None:
        assert result.credentials.password == SECRET
        assert result.credentials.detail == str(tmp_path / "config.json")


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        f'{{"auths": {{"{HOST}": "{SECRET}"}}}}',
        f'{{"auths": {{"{HOST}": {{"auth": "{SECRET}"}}}}}}',
        f'{{"auths": {{"{HOST}": {{"auth": "{encoded("without a colon " + SECRET[:6])}"}}}}}}',
        '{"x": ' + "[" * 100_000,
        " " * ((1 << 20) + 2),
    ],
    ids=["cut", "list", "text", "no base64", "no colon", "deep", "large"],
)
def test_a_broken_configuration_is_noted_without_quoting_it(tmp_path: Path, content: str) -> None:
    result = found(config(tmp_path, content))
    assert result.credentials is None
    [note] = result.notes
    assert str(tmp_path / "config.json") in note
    assert SECRET[:6] not in note


def test_an_unreadable_configuration_is_noted(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    [note] = found(Chain(DockerConfig(tmp_path / "config.json", environ={}))).notes
    assert str(tmp_path / "config.json") in note


def test_no_configuration_is_no_error(tmp_path: Path) -> None:
    assert found(Chain(DockerConfig(tmp_path / "none" / "config.json", environ={}))) == Found()


HELPER = """read host
echo "$@" > "$0.argv"
echo "{\\"ServerURL\\":\\"$host\\",\\"Username\\":\\"ci\\",\\"Secret\\":\\"for $host\\"}"
"""


@pytest.mark.parametrize(
    "content",
    [
        {"credHelpers": {HOST: "acme"}},
        {"credHelpers": {".*\\.example:5000": "acme"}},
        {"credHelpers": {"(": "other", ".*": "acme"}},
        {"credHelpers": {".*": "other", HOST: "acme"}},
        {"credsStore": "acme"},
        {"credsStore": "other", "credHelpers": {HOST: "acme"}},
        {"auths": {HOST: {}}, "credsStore": "acme"},
    ],
)
def test_the_helper_for_the_registry_is_asked(
    tmp_path: Path, script: Script, content: object
) -> None:
    folder = script("docker-credential-acme", HELPER)
    result = found(config(tmp_path, content, path=folder))
    assert result.credentials == Credentials(
        username="ci",
        password=f"for {HOST}",
        source=Source.DOCKER_HELPER,
        detail="docker-credential-acme",
    )
    assert (folder / "docker-credential-acme.argv").read_text() == "get\n"


@pytest.mark.parametrize(
    ("body", "note"),
    [
        (f'echo "{SECRET}"; exit 1', "has nothing for registry.example:5000 (exit code 1)"),
        (f'echo "{SECRET}"', "printed something else than credentials"),
        ('echo "{}"', "printed something else than credentials"),
        (f"""echo '{{"Username":"<token>","Secret":"{SECRET}"}}'""", "an identity token"),
        (f"""echo '{{"Username":"","Secret":"{SECRET}"}}'""", "an empty user name"),
        ("exec sleep 60", "did not answer within 0.3 s"),
        ("sleep 60 & sleep 60", "did not answer within 0.3 s"),
    ],
)
def test_a_helper_that_fails_is_noted_without_its_output(
    tmp_path: Path, script: Script, body: str, note: str
) -> None:
    folder = script("docker-credential-acme", body)
    content = {"credHelpers": {HOST: "acme"}}
    result = found(config(tmp_path, content, path=folder, deadline=0.3 if "sleep" in body else 10))
    assert result.credentials is None
    assert note in result.notes[0]
    assert "docker-credential-acme" in result.notes[0]
    assert SECRET not in result.notes[0]


def test_a_missing_helper_is_named_with_the_fix(tmp_path: Path) -> None:
    [note] = found(config(tmp_path, {"credsStore": "desktop"})).notes
    assert "docker-credential-desktop" in note
    assert "PATH" in note


@pytest.mark.parametrize("name", ["../evil", "a b", "a/b", "", "x" * 200])
def test_a_helper_is_never_a_path(tmp_path: Path, script: Script, name: str) -> None:
    folder = script("evil", "touch ran")
    result = found(config(tmp_path, {"credHelpers": {HOST: name}}, path=folder))
    assert "invalid credential helper" in result.notes[0]


# ── the Keychain ────────────────────────────────────────────────────────────────────────────────────

ITEM = """cat <<'OUT'
keychain: "/Users/ci/Library/Keychains/login.keychain-db"
version: 512
class: "inet"
attributes:
    0x00000007 <blob>="Tart Credentials"
    "acct"<blob>={account}
    "atyp"<blob>=<NULL>
    "ptcl"<uint32>="htps"
    "srvr"<blob>="registry.example"
OUT
cat >&2 <<'OUT'
password: {password}
OUT
echo "$@" > "$0.argv"
"""


class Later(RealClock):
    """A clock that can be put forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@pytest.mark.parametrize(
    ("account", "password", "expected"),
    [
        ('"ci"', '"s3cret"', ("ci", "s3cret")),
        ('"ci"', '"a "quoted" one"', ("ci", 'a "quoted" one')),
        ('"ci"', '"0x41"', ("ci", "0x41")),
        ('0x63C3AF  "c\\303\\257"', '0x70C3A4  "p\\303\\244"', ("cï", "pä")),
        ("0x6369", "0x7334", ("ci", "s4")),
    ],
)
def test_the_keychain_s_entry_is_read_as_it_is_printed(
    script: Script, account: str, password: str, expected: tuple[str, str]
) -> None:
    folder = script("security", ITEM.format(account=account, password=password))
    result = found(Chain(Keychain(RealClock(), program=str(folder / "security"))))
    assert result.credentials is not None
    assert (result.credentials.username, result.credentials.password) == expected
    assert result.credentials.source is Source.KEYCHAIN
    argv = (folder / "security.argv").read_text()
    assert argv == f"find-internet-password -g -s {HOST} -r htps -l Tart Credentials\n"


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ("exit 44", ""),
        ("exit 36", "was refused (exit code 36)"),
        ("exit 128", "was refused (exit code 128)"),
        (ITEM.format(account="<NULL>", password='"x"'), "was refused (exit code 0)"),
        (ITEM.format(account='"ci"', password=""), "was refused (exit code 0)"),
        (ITEM.format(account="0xFF", password='"x"'), "is not text"),
        (ITEM.format(account='"ci"', password='""'), "an empty user name or password"),
        ("exec sleep 60", "a dialog may wait on the screen"),
    ],
)
def test_a_keychain_that_refuses_is_noted_with_the_ways_around_it(
    script: Script, body: str, note: str
) -> None:
    program = str(script("security", body) / "security")
    deadline = 0.3 if "sleep" in body else 10
    result = found(Chain(Keychain(RealClock(), program=program, deadline=deadline)))
    assert result.credentials is None
    assert note in "".join(result.notes)
    assert len(result.notes) == bool(note)


def test_a_refused_keychain_is_not_asked_again_for_a_while(script: Script) -> None:
    folder = script("security", 'echo x >> "$0.asked"; exit 36')
    asked = folder / "security.asked"

    async def scenario() -> None:
        clock = Later()
        keychain = Keychain(clock, program=str(folder / "security"), rest=600)
        for _ in range(3):
            with pytest.raises(Unavailable):
                await keychain.find(HOST)
        assert asked.read_text() == "x\n"
        with pytest.raises(Unavailable):
            await keychain.find("other.example")
        assert asked.read_text() == "x\nx\n"
        clock.ahead = 601
        with pytest.raises(Unavailable):
            await keychain.find(HOST)
        assert asked.read_text() == "x\nx\nx\n"

    asyncio.run(scenario())


def test_a_missing_security_program_is_noted(tmp_path: Path) -> None:
    [note] = found(Chain(Keychain(RealClock(), program=str(tmp_path / "none")))).notes
    assert str(tmp_path / "none") in note


# ── the order ───────────────────────────────────────────────────────────────────────────────────────


def test_the_first_source_with_something_decides(tmp_path: Path) -> None:
    docker = tmp_path / ".docker"
    docker.mkdir()
    (docker / "config.json").write_text(
        json.dumps({"auths": {HOST: {"auth": encoded("docker:p")}}})
    )

    def source(environ: Mapping[str, str]) -> Source | None:
        result = found(usual(environ, tmp_path, RealClock(), platform="linux"))
        return result.credentials.source if result.credentials else None

    assert source(TART) is Source.ENVIRONMENT
    assert source({}) is Source.DOCKER_CONFIG
    assert source({"TART_REGISTRY_USERNAME": "half"}) is Source.DOCKER_CONFIG
    (docker / "config.json").unlink()
    assert source({}) is None


def test_the_keychain_is_asked_on_macos_only(tmp_path: Path) -> None:
    on_mac = usual({}, tmp_path, RealClock(), platform="darwin")
    elsewhere = usual({}, tmp_path, RealClock(), platform="linux")
    assert [type(each).__name__ for each in on_mac._providers][-1] == "Keychain"
    assert "Keychain" not in [type(each).__name__ for each in elsewhere._providers]


def test_a_password_is_in_no_text_of_its_object() -> None:
    used = found(Chain(Environment(TART))).credentials
    assert used is not None
    for text in (repr(used), str(used), f"{used}", repr([used])):
        assert SECRET not in text
        assert encoded(f"ci:{SECRET}") not in text
    assert used.for_tart(HOST) == TART | {"TART_REGISTRY_HOSTNAME": HOST}
