"""`tart pull`.

A pull collects an image in a directory of `tmp` whose name follows from the reference. Another pull of the same
reference goes on there, layer by layer; any other command deletes it once the pull was killed. One pull at a time runs
for each registry.
"""

import hashlib
import json
import os
import signal
from collections.abc import Iterator

from tests.standins.tart import errors, formatting, knobs, locks, lz4, pruning, storage
from tests.standins.tart import registry as registries
from tests.standins.tart.arguments import Command, Given
from tests.standins.tart.context import Context
from tests.standins.tart.errors import say
from tests.standins.tart.layers import (
    CHUNK_DIGEST,
    CHUNK_SIZE,
    CONFIG,
    DISK,
    DISK_SIZE,
    NVRAM,
    again,
)
from tests.standins.tart.registry import Registry, digest_of
from tests.standins.tart.storage import Remote, Vm

COMMAND = Command(
    "pull", "remote-name", {"insecure": "flag", "concurrency": "int", "deduplicate": "flag"}
)


def pull_command(context: Context, given: Given) -> int:
    """`tart pull`."""
    name = given.name("remote-name")
    remote = storage.remote(name)
    context.knobs.before("pull", name)
    if remote is None:
        say(f'"{name}" is a local image, nothing to pull here!')
        return 0
    pull(context, remote, insecure=given.flag("insecure"))
    return 0


def pull(context: Context, name: Remote, *, insecure: bool) -> None:
    """Pull an image unless it is there; SIGINT ends it and removes what it has."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    say(f"pulling {name}...")
    registry = registries.connect(context, name.host, name.namespace, insecure=insecure)
    say("pulling manifest...")
    manifest = again(context, lambda: registry.manifest(name.reference), attempts=1)
    by_digest = name.at(digest_of(manifest))
    image, link = context.home.image(by_digest), context.home.image(name)
    if image.initialized and os.path.realpath(link.path) == os.path.realpath(image.path):
        say(f"{by_digest} image is already cached and linked!")
        return
    host = context.home.host_directory(name)
    os.makedirs(host, exist_ok=True)
    with locks.flocked(host, lambda: say("waiting for lock...")):
        if image.initialized:
            say(f"{by_digest} image is already cached! creating a symlink...")
        else:
            _fetch(context, registry, name, manifest)
        if name.tag:
            context.home.link(name, by_digest)
        else:
            with open(image.file(storage.EXPLICIT), "wb"):
                pass
    image.touch(context.now())


def _fetch(context: Context, registry: Registry, name: Remote, manifest: bytes) -> None:
    """Collect the image in its directory of tmp and move it into the cache."""
    key = hashlib.md5(str(name).encode(), usedforsecurity=False).hexdigest()
    made = context.home.temporary(key)
    with locks.flocked(made.path):
        parsed = json.loads(manifest)
        size = int(parsed.get("annotations", {}).get(DISK_SIZE, 0))
        pruning.make_space(context, size, keep=made.path)
        try:
            again(context, lambda: _Pull(context, registry, made, parsed).main())
        except KeyboardInterrupt:
            storage.remove(made.path)
            raise errors.other("CancellationError()") from None
        with open(made.file("manifest.json"), "wb") as file:
            file.write(manifest)
        storage.move(made.path, context.home.image(name.at(digest_of(manifest))).path)


class _Pull:
    """One attempt at the layers of an image."""

    def __init__(
        self, context: Context, registry: Registry, made: Vm, manifest: dict[str, object]
    ) -> None:
        self.context = context
        self.registry = registry
        self.made = made
        layers = manifest["layers"]
        assert isinstance(layers, list)
        self.layers: list[dict[str, object]] = layers
        annotations = manifest.get("annotations") or {}
        assert isinstance(annotations, dict)
        self.disk_size = int(annotations.get(DISK_SIZE, 0))
        self.total = sum(int(str(layer["size"])) for layer in self._of(DISK)) or 1
        self.done = 0
        self.shown = -1.0
        self.percent = -1

    def _of(self, kind: str) -> list[dict[str, object]]:
        return [layer for layer in self.layers if layer["mediaType"] == kind]

    def main(self) -> None:
        """Config, disk, NVRAM."""
        if len(self._of(CONFIG)) != 1 or len(self._of(NVRAM)) != 1 or not self._of(DISK):
            raise errors.other("OCIImageFormatError: the image has other layers than tart's")
        self._whole(self._of(CONFIG)[0], "config.json")
        gigabytes = self.total / formatting.GB
        say(f"pulling disk ({gigabytes:.1f} GB compressed)...")
        self._disk()
        say("pulling NVRAM...")
        self._whole(self._of(NVRAM)[0], "nvram.bin")

    def _whole(self, layer: dict[str, object], name: str) -> None:
        with open(self.made.file(name), "wb") as file:
            file.writelines(self._blob(layer))

    def _blob(self, layer: dict[str, object]) -> Iterator[bytes]:
        """The bytes of a layer, checked by its digest at the end."""
        seen, count = hashlib.sha256(), 0
        for data in self.registry.blob(str(layer["digest"])):
            seen.update(data)
            count += len(data)
            yield data
        if count < int(str(layer["size"])):
            raise errors.NetworkDown("The network connection was lost.")
        if f"sha256:{seen.hexdigest()}" != layer["digest"]:
            raise errors.other(f"Digest mismatch of layer {layer['digest']}")

    def _disk(self) -> None:
        path = self.made.file("disk.img")
        self._show()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        with open(descriptor, "r+b") as file:
            offset = 0
            for layer in self._of(DISK):
                notes = layer.get("annotations") or {}
                assert isinstance(notes, dict)
                size = int(notes.get(CHUNK_SIZE, 0))
                file.seek(offset)
                if size and digest_of(file.read(size)) == notes.get(CHUNK_DIGEST):
                    self.done += int(str(layer["size"]))
                else:
                    self._layer(layer, descriptor, offset)
                offset += size
                self._show(now=True)
            file.truncate(self.disk_size or offset)

    def _layer(self, layer: dict[str, object], descriptor: int, offset: int) -> None:
        unpacker = lz4.Unpacker()
        before = self.done
        for data in self._blob(layer):
            self._slow_down(len(data))
            for block in unpacker.feed(data):
                if any(block):
                    self._write(descriptor, block, offset)
                elif os.fstat(descriptor).st_size > offset:
                    os.pwrite(descriptor, block, offset)  # over what an earlier pull left
                offset += len(block)
            self.done += len(data)
            self._show()
        if not unpacker.finished:
            raise errors.other("Decompression failed: the layer ends early")
        self.done = before + int(str(layer["size"]))

    def _write(self, descriptor: int, block: bytes, offset: int) -> None:
        if self.context.knobs.take("no-space-pull") is not None:
            raise errors.no_space()
        while block:
            written = os.pwrite(descriptor, block, offset)
            block, offset = block[written:], offset + written

    def _slow_down(self, count: int) -> None:
        """`pull-rate`: bytes per second; `pull-stall-after`: stand still after so many bytes."""
        rate = self.context.knobs.number("pull-rate", 0)
        until = knobs.monotonic() + count / rate if rate else 0
        while rate and (left := until - knobs.monotonic()) > 0:
            knobs.pause(min(left, 0.2))
            self._show()
        while True:
            stall = self.context.knobs.text("pull-stall-after")
            if stall is None or self.done < int(stall) or not os.path.isdir(self.made.path):
                return
            knobs.pause(0.05)

    def _show(self, *, now: bool = False) -> None:
        """A line with the percentage, at most one a second and one for each layer."""
        percent = min(100, self.done * 100 // self.total)
        time = knobs.monotonic()
        if (now and percent != self.percent) or self.shown < 0 or time - self.shown >= 1:
            say(f"{percent}%")
            self.shown, self.percent = time, percent
