"""`tart push`: config, disk, NVRAM, manifest.

It takes the VM's lock and then reads the configuration again, which drops the lock: `tart delete` succeeds in the
middle of a push. The disk is still uploaded from the open file then; the NVRAM, which is opened last, is missing.
"""

import json
import os
from collections.abc import Iterator

from tests.standins.tart import errors, formatting, locks, lz4, storage
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
    LAYER,
    NVRAM,
    UPLOADED,
    again,
)
from tests.standins.tart.registry import digest_of
from tests.standins.tart.storage import Remote, Vm

COMMAND = Command(
    "push",
    "local-name remote-names...",
    {
        **dict.fromkeys(("concurrency", "chunk-size"), "int"),
        **dict.fromkeys(("insecure", "populate-cache"), "flag"),
        "label": "list",
    },
)


def push_command(context: Context, given: Given) -> int:
    """`tart push`: takes the VM's lock, and loses it by reading the configuration again."""
    name = given.name("local-name")
    targets = [_target(each) for each in given.names["remote-names"]]
    context.knobs.before("push", name)
    remote = storage.remote(name)
    if remote is None:
        vm = context.home.open_local(name, context.now())
    else:
        vm = context.home.open_image(remote, context.now())
    lock = locks.try_lock(vm.file("config.json"))
    if lock is None:
        raise errors.locked(name)
    try:
        for target in targets:
            say(f"pushing {name} to {target}...")
            _push(context, given, vm, target)
    finally:
        os.close(lock)
    return 0


def _target(name: str) -> Remote:
    found = storage.remote(name)
    if found is None or not found.tag:
        raise errors.Usage(f'"{name}" is not a remote name with a tag')
    return found


def _push(context: Context, given: Given, vm: Vm, target: Remote) -> None:
    registry = registries.connect(
        context, target.host, target.namespace, insecure=given.flag("insecure")
    )
    chunk = given.number("chunk-size", 0) << 20

    def layer(kind: str, data: bytes, notes: dict[str, str] | None = None) -> dict[str, object]:
        digest = digest_of(data)
        if not again(context, lambda: registry.has(digest)):
            again(context, lambda: registry.put_blob(digest, data, chunk))
        found: dict[str, object] = {"mediaType": kind, "size": len(data), "digest": digest}
        return {**found, "annotations": notes} if notes else found

    config = vm.config()  # closes a descriptor of the file: the lock is gone from here on
    layers = [layer(CONFIG, storage.encoded(config))]
    say("pushing disk... this will take a while...")
    with open(vm.file("disk.img"), "rb") as disk:
        size, done = os.fstat(disk.fileno()).st_size, 0
        for piece in _pieces(disk.fileno(), int(context.knobs.number("layer-bytes", LAYER))):
            notes = {CHUNK_SIZE: str(len(piece)), CHUNK_DIGEST: digest_of(piece)}
            layers.append(layer(DISK, b"".join(lz4.packed(_blocks(piece))), notes))
            context.knobs.before("push-layer", vm.name)
            done += len(piece)
            say(f"{done * 100 // size}%")
    context.knobs.before("push-nvram", vm.name)
    say("pushing NVRAM...")
    try:
        with open(vm.file("nvram.bin"), "rb") as nvram:
            layers.append(layer(NVRAM, nvram.read()))
    except FileNotFoundError:
        raise errors.no_file("nvram.bin") from None
    labels = dict(each.partition("=")[::2] for each in given.options.get("label", []))
    about = {"architecture": config["arch"], "os": config["os"], "config": {"Labels": labels}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": registries.MANIFEST,
        "config": layer("application/vnd.oci.image.config.v1+json", json.dumps(about).encode()),
        "layers": layers,
        "annotations": {DISK_SIZE: str(size), UPLOADED: formatting.timestamp(context.now())},
    }
    data = json.dumps(manifest).encode()
    say(f"pushing manifest for {target.reference}...")
    again(context, lambda: registry.put_manifest(target.reference, data))
    if given.flag("populate-cache"):
        _populate(context, vm, target, data)


def _pieces(descriptor: int, size: int) -> Iterator[bytes]:
    offset = 0
    while data := os.pread(descriptor, size, offset):
        yield data
        offset += len(data)


def _blocks(piece: bytes) -> Iterator[bytes]:
    for at in range(0, len(piece), lz4.BLOCK):
        yield piece[at : at + lz4.BLOCK]


def _populate(context: Context, vm: Vm, target: Remote, manifest: bytes) -> None:
    by_digest = target.at(digest_of(manifest))
    made = context.home.temporary(f"populate-{os.urandom(8).hex()}")
    with locks.flocked(made.path):
        for part in storage.PARTS:
            storage.copy_sparse(vm.file(part), made.file(part))
        with open(made.file("manifest.json"), "wb") as file:
            file.write(manifest)
        storage.move(made.path, context.home.image(by_digest).path)
    context.home.link(target, by_digest)
