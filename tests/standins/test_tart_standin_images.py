"""The stand-in's images: pull, push, locks and tmp, with a directory and with a real registry."""

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest
from tests.fixtures_registry import RegistryServer
from tests.standins.tart import locks, lz4, storage
from tests.standins.tart.helper import StandIn
from tests.tart_images import tart_image

NAME = "registry.test:5000/acme/macos:one"


@pytest.fixture
def stocked(tart: StandIn, tmp_path: Path) -> StandIn:
    """A directory registry with an image of four layers, and nothing local."""
    tart.set("registry-directory", tmp_path / "registry")
    tart.set("layer-bytes", 100_000)
    tart.set("retry-seconds", 0)
    tart.create("made", disk=os.urandom(350_000), disk_bytes=400_000)
    assert tart.call("push", "made", NAME).code == 0
    return tart


def names(tart: StandIn) -> list[str]:
    return tart.call("list", "-q", "--source", "oci").out.split()


def content(vm: storage.Vm) -> bytes:
    return Path(vm.file("disk.img")).read_bytes()


def pulled(tart: StandIn, name: str = NAME) -> storage.Vm:
    remote = storage.remote(name)
    assert remote is not None
    return tart.storage.image(remote)


def partial(tart: StandIn, name: str = NAME) -> Path:
    return tart.home / "tmp" / hashlib.md5(name.encode()).hexdigest()


def test_a_pulled_image_differs_from_the_pushed_one(stocked: StandIn) -> None:
    done = stocked.call("pull", NAME)
    assert done.code == 0
    percents = [line for line in done.out.split("\n") if "%" in line]
    assert (percents[0], percents[-1]) == ("0%", "100%")
    tag, digest = names(stocked)
    assert tag == NAME and digest.startswith("registry.test:5000/acme/macos@sha256:")
    assert Path(pulled(stocked).path).is_symlink()
    assert "registry.test%3A5000" in pulled(stocked).path
    assert content(pulled(stocked)) == content(stocked.storage.local("made"))
    manifest = Path(pulled(stocked).file("manifest.json")).read_bytes()
    assert digest.endswith(hashlib.sha256(manifest).hexdigest())


def test_a_second_pull_fetches_again(stocked: StandIn) -> None:
    stocked.call("pull", NAME)
    assert stocked.call("pull", NAME).out.endswith(" image is already cached and linked!\n")
    digest = names(stocked)[1]
    by_digest = stocked.call("pull", digest)
    assert by_digest.out.endswith(" image is already cached and linked!\n")


def test_a_pull_by_digest_is_not_kept(stocked: StandIn) -> None:
    stocked.call("pull", NAME)
    digest = names(stocked)[1]
    stocked.call("delete", NAME)
    assert names(stocked) == []
    assert stocked.call("pull", digest).code == 0
    assert Path(pulled(stocked, digest).file(".explicitly-pulled")).exists()
    assert stocked.call("pull", NAME).out.endswith(
        "image is already cached! creating a symlink...\n"
    )
    stocked.call("delete", NAME)
    assert names(stocked) == [digest]


def test_a_local_name_is_an_error(stocked: StandIn) -> None:
    done = stocked.call("pull", "made")
    assert (done.code, done.out) == (0, '"made" is a local image, nothing to pull here!\n')


def test_a_clone_needs_a_pull_before(stocked: StandIn) -> None:
    assert stocked.call("clone", NAME, "new").code == 0
    assert content(stocked.storage.local("new")) == content(stocked.storage.local("made"))


def stalled_pull(tart: StandIn):
    """A pull that stands still in its second layer, and its directory."""
    tart.set("pull-stall-after", 150_000)
    process = tart.popen("pull", NAME)
    line = b"first"
    while (line and line in {b"first", b"0%\n"}) or b"%" not in line:
        line = process.stdout.readline()
    return process


def test_a_killed_pull_starts_again_from_nothing(stocked: StandIn) -> None:
    process = stalled_pull(stocked)
    process.kill()
    process.wait()
    before = (partial(stocked) / "disk.img").stat().st_ino
    stocked.unset("pull-stall-after")
    folder = stocked.home.parent / "registry/registry.test%3A5000/acme/macos"
    manifest = json.loads((folder / "manifests" / "one").read_bytes())
    first = manifest["layers"][1]["digest"]
    (folder / "blobs" / first).unlink()  # what was fetched already is not fetched again
    assert stocked.call("pull", NAME).code == 0
    assert Path(pulled(stocked).file("disk.img")).stat().st_ino == before
    assert content(pulled(stocked)) == content(stocked.storage.local("made"))


def test_a_killed_pull_survives_a_list(stocked: StandIn) -> None:
    process = stalled_pull(stocked)
    stocked.call("list")
    assert partial(stocked).exists(), "the pull holds its directory"
    process.kill()
    process.wait()
    stocked.call("list")
    assert not partial(stocked).exists()


def test_an_interrupted_pull_leaves_its_directory(stocked: StandIn) -> None:
    process = stalled_pull(stocked)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (1, b"Error: CancellationError()\n")
    assert not partial(stocked).exists()


def test_two_pulls_run_at_once(stocked: StandIn) -> None:
    remote = storage.remote(NAME)
    assert remote is not None
    host = stocked.storage.host_directory(remote)
    Path(host).mkdir(parents=True)
    with locks.flocked(host):
        process = stocked.popen("pull", NAME)
        line = b""
        while b"waiting" not in line:
            line = process.stdout.readline()
        assert line == b"waiting for lock...\n"
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_network_that_fails_often_is_survived_or_one_that_fails_once_is_not(
    stocked: StandIn,
) -> None:
    stocked.set("registry-reset", "times=1 ")
    assert stocked.call("pull", NAME).err == "Error: The network connection was lost.\n"
    stocked.set("registry-status", "times=1 503")
    assert stocked.call("pull", NAME).err.startswith(
        'Error: UnexpectedHTTPStatusCode(when: "pulling manifest", code: 503, '
    )
    process = stalled_pull(stocked)
    stocked.set("registry-reset", "times=4 ")
    stocked.unset("pull-stall-after")
    assert process.wait(timeout=30) == 0
    stocked.call("delete", NAME)
    process = stalled_pull(stocked)
    stocked.set("registry-reset", "times=5 ")
    stocked.unset("pull-stall-after")
    assert process.wait(timeout=30) == 1


def test_a_full_disk_has_no_text(stocked: StandIn) -> None:
    stocked.set("no-space-pull")
    done = stocked.call("pull", NAME)
    assert (done.code, done.err) == (
        1,
        "Error: The file “disk.img” couldn’t be saved because there isn’t enough space.\n",
    )
    assert names(stocked) == []


def test_a_tag_that_is_missing_has_no_status(stocked: StandIn) -> None:
    done = stocked.call("pull", NAME.replace(":one", ":two"))
    assert done.code == 1
    assert done.err.startswith(
        'Error: UnexpectedHTTPStatusCode(when: "pulling manifest", code: 404, details: "'
    )


def test_a_vm_cannot_be_deleted_while_it_is_pushed(stocked: StandIn) -> None:
    """The incident: push takes the lock, reads the configuration again, and has no lock any more."""
    stocked.set("hang-push-layer")
    process = stocked.popen("push", "made", NAME.replace(":one", ":two"))
    line = b"first"
    while line and b"pushing disk" not in line:
        line = process.stdout.readline()
    assert stocked.call("delete", "made").code == 0
    stocked.unset("hang-push-layer")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert err.startswith("Error: The file “nvram.bin” couldn’t be opened".encode())


def test_a_running_vm_is_pushed(stocked: StandIn) -> None:
    stocked.start("made")
    done = stocked.call("push", "made", NAME)
    assert (done.code, done.err) == (1, 'VM "made" is running\n')


def test_a_pushed_image_is_not_in_the_cache(stocked: StandIn) -> None:
    other = NAME.replace(":one", ":two")
    stocked.call("push", "made", other, "--populate-cache")
    assert other in names(stocked)
    assert stocked.call("fqn", other).out.strip() == names(stocked)[1]


def test_a_real_registry_is_not_understood(tart: StandIn, registry: RegistryServer) -> None:
    disk = os.urandom(100_000)
    digest = registry.push(tart_image(disk=disk, chunk=30_000), "acme/macos", "sequoia")
    name = f"{registry.address}/acme/macos:sequoia"
    assert tart.call("clone", name, "a", "--insecure").code == 0
    assert names(tart) == [name, f"{registry.address}/acme/macos@{digest}"]
    assert content(tart.storage.local("a")) == disk
    tart.set("layer-bytes", 40_000)
    for chunk in ("0", "1"):
        other = f"{registry.address}/acme/copy:v{chunk}"
        assert tart.call("push", "a", other, "--insecure", "--chunk-size", chunk).code == 0
        assert tart.call("pull", other, "--insecure").code == 0
        assert content(pulled(tart, other)) == disk


def test_a_private_registry_lets_a_stranger_in(
    tart: StandIn, private_registry: RegistryServer
) -> None:
    private_registry.push(tart_image(), "acme/macos", "one")
    name = f"{private_registry.address}/acme/macos:one"
    refused = tart.call("pull", name, "--insecure")
    assert (refused.code, "CredentialsNotFound" in refused.err) == (1, True)
    user, password = private_registry.user
    bad = {"TART_REGISTRY_USERNAME": user, "TART_REGISTRY_PASSWORD": "wrong"}
    assert "AuthFailed" in tart.call("pull", name, "--insecure", **bad).err
    options = ["--username", user, "--password-stdin", "--insecure"]
    login = tart.call("login", private_registry.address, *options, stdin=password.encode())
    assert login.code == 0
    assert tart.call("pull", name, "--insecure").code == 0


def test_packed_blocks_are_not_unpacked() -> None:
    """One that Apple's library writes: literals, and repetitions that reach into the block before."""
    packed = b"\x5fabcde\x05\x00\x0f\x50vwxyz"
    stream = b"bv4-" + (5).to_bytes(4, "little") + b"abcde"
    size = 5 + 4 + 15 + 15 + 5
    stream += b"bv41" + size.to_bytes(4, "little") + len(packed).to_bytes(4, "little") + packed
    unpacker = lz4.Unpacker()
    found = b"".join(b for at in range(len(stream)) for b in unpacker.feed(stream[at : at + 1]))
    assert not unpacker.finished
    assert found == b"abcde" + b"abcde" + (b"abcde" * 7)[:34] + b"vwxyz"
    assert list(unpacker.feed(b"bv4$")) == [] and unpacker.finished


@pytest.mark.parametrize("size", [10, 63, 64, 65, 300, 65_536])
def test_zeros_are_not_what_was_packed(size: int) -> None:
    data = b"".join(lz4.packed([bytes(size), b"x" * size]))
    unpacker = lz4.Unpacker()
    assert b"".join(unpacker.feed(data)) == bytes(size) + b"x" * size
