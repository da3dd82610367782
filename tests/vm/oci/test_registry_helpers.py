"""Tests of the helpers that other tests push images with: what they store is what a tart reads."""

import hashlib
import http.client
import json

import pytest
from tests import tart_images
from tests.fixtures_registry import USER, RegistryServer
from tests.tart_images import push, tart_image


def read(server: RegistryServer, path: str) -> bytes:
    host = http.client.HTTPConnection(server.address, timeout=10)
    try:
        host.request("GET", path, headers={"Accept": tart_images.MANIFEST})
        return host.getresponse().read()
    finally:
        host.close()


def test_a_registry_returns_the_pushed_disk_chunk_by_chunk(registry: RegistryServer) -> None:
    disk = bytes(range(256)) * 300
    image = tart_image(disk=disk, chunk=30_000)
    digest = registry.push(image, "acme/macos", "sequoia")
    manifest = read(registry, "/v2/acme/macos/manifests/sequoia")
    assert digest == f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    layers = json.loads(manifest)["layers"]
    kinds = [each["mediaType"] for each in layers]
    assert kinds == [tart_images.CONFIG, *([tart_images.DISK] * 3), tart_images.NVRAM]
    chunks = [
        tart_images.unpacked(read(registry, f"/v2/acme/macos/blobs/{each['digest']}"))
        for each in layers[1:-1]
    ]
    assert b"".join(chunks) == disk
    sizes = [int(each["annotations"][tart_images.CHUNK_SIZE]) for each in layers[1:-1]]
    assert sizes == [len(each) for each in chunks]


def test_a_second_push_moves_the_tag(registry: RegistryServer) -> None:
    first = registry.push(tart_image(), "acme/macos", "latest")
    second = registry.push(tart_image(nvram=b"other"), "acme/macos", "latest")
    assert first != second
    manifest = read(registry, "/v2/acme/macos/manifests/latest")
    assert tart_images.digest_of(manifest) == second


def test_the_private_registry_refuses_strangers(private_registry: RegistryServer) -> None:
    with pytest.raises(OSError, match="401"):
        push(tart_image(), private_registry.address, "acme/macos", "latest")
    assert private_registry.user == USER
    assert private_registry.push(tart_image(), "acme/macos", "latest")


def test_a_cut_chunk_is_noticed() -> None:
    with pytest.raises(ValueError, match="not a disk chunk"):
        tart_images.unpacked(tart_images.packed(b"content")[:-1])
