"""Tests that a registry which is not ours agrees: Debian's docker-registry, open, with a password, with tokens."""

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate
from tests.fixtures_registry import USER, RegistryServer, serving
from tests.tart_images import MANIFEST, tart_image
from tests.vm.oci.fake_registry import FakeServer

from runyard.clock import RealClock
from runyard.http.tls import Pair, make_authority
from runyard.vm.contract import ImageMissing, Unauthorized
from runyard.vm.oci.registry import Image, Registry, Settings
from runyard.vm.oci.sources import usual

IMAGE = tart_image()
SERVICE, ISSUER = "tests", "tests-tokens"


def inspect(server: RegistryServer, home: Path, image: str, **environ: str) -> Image:
    registry = Registry(
        usual(environ, home, RealClock(), platform="linux"),
        RealClock(),
        Settings(insecure=frozenset({server.address})),
    )
    return asyncio.run(registry.inspect(f"{server.address}/{image}"))


def login(server: RegistryServer, home: Path, user: tuple[str, str]) -> None:
    """What `docker login` writes."""
    auth = base64.b64encode(":".join(user).encode()).decode()
    (home / ".docker").mkdir()
    (home / ".docker" / "config.json").write_text(
        json.dumps({"auths": {server.address: {"auth": auth}}})
    )


def test_a_pushed_tag_is_resolved(registry: RegistryServer, tmp_path: Path) -> None:
    digest = registry.push(IMAGE, "acme/macos", "sequoia")
    found = inspect(registry, tmp_path, "acme/macos:sequoia")
    assert str(found.reference) == f"{registry.address}/acme/macos@{digest}"
    assert found.sizes.bytes == IMAGE.bytes
    assert found.source is None
    with pytest.raises(ImageMissing, match="404 MANIFEST_UNKNOWN"):
        inspect(registry, tmp_path, "acme/macos:typo")
    with pytest.raises(ImageMissing, match="404"):
        inspect(registry, tmp_path, f"acme/macos@sha256:{'0' * 64}")


def test_a_private_image_is_resolved_by_its_users_only(
    private_registry: RegistryServer, tmp_path: Path
) -> None:
    private_registry.push(IMAGE, "acme/macos", "sequoia")
    image = "acme/macos:sequoia"
    with pytest.raises(Unauthorized, match="none were found"):
        inspect(private_registry, tmp_path, image)
    login(private_registry, tmp_path, USER)
    assert inspect(private_registry, tmp_path, image).source == "docker-config"
    wrong = {"TART_REGISTRY_USERNAME": USER[0], "TART_REGISTRY_PASSWORD": "wrong"}
    with pytest.raises(Unauthorized, match=r"environment \(TART_REGISTRY_USERNAME\)"):
        inspect(private_registry, tmp_path, image, **wrong)


class TokenServer(FakeServer):
    """Gives tokens that the registry believes, to `USER` only."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self._key = load_pem_private_key(pair.key, None)
        certificate = load_pem_x509_certificate(pair.certificate)
        self._chain = [base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()]

    def answer(self, request: web.Request) -> web.StreamResponse:
        basic = "Basic " + base64.b64encode(":".join(USER).encode()).decode()
        if request.headers.get("Authorization") != basic:
            return web.Response(status=401)
        return web.json_response({"token": self.token(request.query["scope"])})

    def token(self, scope: str) -> str:
        kind, name, actions = scope.split(":")
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": SERVICE,
            "sub": USER[0],
            "jti": "1",
            "iat": now - 10,
            "nbf": now - 10,
            "exp": now + 60,
            "access": [{"type": kind, "name": name, "actions": actions.split(",")}],
        }
        return jwt.encode(claims, self._key, algorithm="ES256", headers={"x5c": self._chain})


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = make_authority("tests", now=time.time())
    (tmp_path / "tokens.pem").write_bytes(made.certificate)
    return made


def test_a_token_that_the_registry_s_own_server_gave_is_accepted(
    registry_program: str, pair: Pair, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with TokenServer(pair) as tokens:
            auth = (
                f"auth: {{token: {{realm: {tokens.url}/token, service: {SERVICE}, issuer: {ISSUER},"
                f" rootcertbundle: {tmp_path / 'tokens.pem'}}}}}"
            )
            await asyncio.to_thread(against, tokens, auth)

    def against(tokens: TokenServer, auth: str) -> None:
        with serving(registry_program, tmp_path / "registry", auth=auth) as server:
            bearer = tokens.token("repository:acme/macos:pull,push")
            server.push(IMAGE, "acme/macos", "sequoia", authorization=f"Bearer {bearer}")
            with pytest.raises(Unauthorized, match="none were found"):
                inspect(server, tmp_path, "acme/macos:sequoia")
            login(server, tmp_path, USER)
            found = inspect(server, tmp_path, "acme/macos:sequoia")
            assert found.reference.digest == IMAGE.digest
            assert found.source == "docker-config"
            assert tokens.seen[-1].query["scope"] == "repository:acme/macos:pull"

    asyncio.run(scenario())


def test_a_manifest_that_was_pushed_is_returned_as_it_is(
    registry: RegistryServer, tmp_path: Path
) -> None:
    """The digest is of the bytes: a registry that formatted them anew would return another image."""
    spaced = json.dumps(json.loads(IMAGE.manifest), indent=3).encode()
    image = type(IMAGE)(spaced, IMAGE.blobs)
    registry.push(image, "acme/macos", "spaced")
    assert inspect(registry, tmp_path, "acme/macos:spaced").reference.digest == image.digest
    assert MANIFEST.encode() in spaced
