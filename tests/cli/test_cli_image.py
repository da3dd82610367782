"""`runyard image` shows what a reference means, and no password."""

import base64
import json
import shlex
from pathlib import Path

import pytest
from tests.fixtures_registry import RegistryServer
from tests.tart_images import Image, tart_image
from tests.transcripts import check, transcripts

from runyard.cli.image import _size
from runyard.cli.main import cli, run
from runyard.vm.oci.reference import Reference

IMAGE = tart_image()
DOCUMENTED = "127.0.0.1:5000"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home without credentials of the person who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("USERNAME", "PASSWORD", "HOSTNAME"):
        monkeypatch.delenv(f"TART_REGISTRY_{name}", raising=False)
    return tmp_path


def resolve(*argv: str) -> int:
    return run(cli, name="runyard", argv=["image", "resolve", *argv])


def login(server: RegistryServer, home: Path) -> str:
    """Do what `docker login` does; returns the password as it is written there."""
    auth = base64.b64encode(":".join(server.user).encode()).decode()
    (home / ".docker").mkdir()
    content = json.dumps({"auths": {server.address: {"auth": auth}}})
    (home / ".docker" / "config.json").write_text(content)
    return auth


def large() -> Image:
    """An image of realistic size; a registry believes what its manifest says."""
    image = tart_image(disk=b"".join(bytes([number]) * 1000 for number in range(46)), chunk=1000)
    manifest = json.loads(image.manifest)
    for each in manifest["layers"][1:-1]:
        each["size"] = 512_000_000
    manifest["annotations"]["org.cirruslabs.tart.uncompressed-disk-size"] = str(100 * 10**9)
    return Image(json.dumps(manifest, sort_keys=True).encode(), image.blobs)


def test_json_has_the_pinned_reference_for_scripts(
    registry: RegistryServer, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = registry.push(IMAGE, "acme/macos", "sequoia")
    text = f"{registry.address}/acme/macos:sequoia"
    assert resolve("--insecure", "--json", text) == 0
    assert json.loads(capsys.readouterr().out) == {
        "image": text,
        "reference": f"{registry.address}/acme/macos@{digest}",
        "digest": digest,
        "download_bytes": IMAGE.bytes,
        "disk_bytes": 20_000,
        "layers": 5,
        "credentials": "",
        "credentials_detail": "",
    }


def test_a_registry_on_loopback_without_tls_needs_no_flag(
    registry: RegistryServer, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.push(IMAGE, "acme/macos", "sequoia")
    assert resolve(f"{registry.address}/acme/macos:sequoia") == 0
    assert f"sha256:{IMAGE.digest.removeprefix('sha256:')}" in capsys.readouterr().out


def test_a_registry_without_tls_is_not_asked_without_the_flag(
    registry: RegistryServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reference, "on_loopback", False)  # tests open no other connections
    registry.push(IMAGE, "acme/macos", "sequoia")
    assert resolve(f"{registry.address}/acme/macos:sequoia") == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("runyard: image ")
    assert "declare it insecure" in shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["sequoia", "registry.example/acme/macos@sha256:1", "https://a/b", "\x1b[2J/x"]
)
def test_an_invalid_reference_is_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert resolve(text) == 2
    shown = capsys.readouterr()
    assert "--help" in shown.err
    assert "\x1b" not in shown.err


def test_the_source_of_the_password_is_shown_and_not_the_password(
    private_registry: RegistryServer,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    private_registry.push(IMAGE, "acme/macos", "sequoia")
    text = f"{private_registry.address}/acme/macos:sequoia"
    auth = login(private_registry, home)
    assert resolve("--insecure", text) == 0
    monkeypatch.setenv("TART_REGISTRY_USERNAME", private_registry.user[0])
    monkeypatch.setenv("TART_REGISTRY_PASSWORD", private_registry.user[1])
    assert resolve("--insecure", "--json", text) == 0
    monkeypatch.setenv("TART_REGISTRY_PASSWORD", "wrong-" + private_registry.user[1])
    assert resolve("--insecure", text) == 1
    shown = capsys.readouterr()
    assert f"docker-config ({home}/.docker/config.json)" in shown.out
    assert '"credentials": "environment"' in shown.out
    assert "refuses the credentials from environment (TART_REGISTRY_USERNAME)" in shown.err
    for secret in (private_registry.user[1], auth):
        assert secret not in shown.out + shown.err


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (23_500_000_000, "23.5 GB"),
        (1 << 70, "1180591.6 PB"),
    ],
)
def test_a_size_is_short(count: int, shown: str) -> None:
    assert _size(count) == shown


def test_the_page_shows_what_is_printed(
    registry: RegistryServer,
    private_registry: RegistryServer,
    home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    public, private = transcripts("docs/images.md")

    def play(command: str, server: RegistryServer) -> str:
        words = shlex.split(command.replace(DOCUMENTED, server.address))
        if words[:2] == ["docker", "login"]:
            login(server, home)
            return ""
        assert words[0] == "runyard"
        run(cli, name="runyard", argv=words[1:])
        shown = capsys.readouterr()
        text = (shown.out + shown.err).replace(str(home), "/Users/ci")
        return text.replace(server.address, DOCUMENTED)

    for server, transcript in ((registry, public), (private_registry, private)):
        server.push(large(), "acme/macos", "sequoia")
        check(transcript, [play(step.command, server) for step in transcript.steps])
