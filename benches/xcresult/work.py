"""Runs one task in its own process, so that its memory is measured alone.

    python -m benches.xcresult.work TASK BUNDLE...      prints the cost as JSON

Time is CPU time of this process and its children: wall-clock time would include other load on the machine.
"""

import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.exporting import export
from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.bundle.verifying import verify
from runyard.xcresult.reader.decode import decode, is_typed
from runyard.xcresult.reader.frames import MAGIC, new_decoder

SWEPT = 256 * 1024 * 1024
"""Bytes of exported attachments after which the exported files are deleted."""
AGAIN = 5
BATCH = 64
"""Number of payloads in memory at a time while the limit is measured."""
HELD = 256 * 1024 * 1024
"""Bytes of typed objects in memory for decoding."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a task."""

    cpu: float
    peak: float
    """Peak memory of the whole process, in megabytes."""
    cases: int = 0
    objects: int = 0
    stored: int = 0
    """Bytes on disk."""
    decoded: int = 0
    """Bytes after decompression."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a task."""

    cpu: float = 0.0
    """CPU seconds, if only a part of the task counts; 0: the whole task."""
    cases: int = 0
    objects: int = 0
    stored: int = 0
    decoded: int = 0


def cpu() -> float:
    """CPU seconds of this process and its finished children."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def peak() -> float:
    """Peak memory of this process, in megabytes.

    Not by rusage on Linux: there a process inherits the value of its parent.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1024 * 1024 if sys.platform == "darwin" else 1024)


def _payloads(bundle: Path) -> list[str]:
    with os.scandir(bundle / "Data") as entries:
        return [each.path for each in entries if each.name.startswith("data.")]


def _stored(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  only reading bytes is measured
        return file.read()


def _decoded(stored: bytes) -> bytes:
    return new_decoder().decompress(stored) if stored.startswith(MAGIC) else stored


def read(bundles: list[Path]) -> Done:
    """Read bundles as a library user does, with their logs."""
    before = cpu()
    cases = sum(len(read_bundle(bundle).cases) for bundle in bundles)
    return Done(cpu=cpu() - before, cases=cases, stored=_size(bundles))


def read_again(bundles: list[Path]) -> Done:
    """Read several times and return the best, because small bundles are sensitive to other load."""
    return min((read(bundles) for _ in range(AGAIN)), key=lambda done: done.cpu)


def read_2(bundles: list[Path]) -> Done:
    """Read with two processes."""
    return Done(cases=sum(len(read_bundle(bundle, processes=2).cases) for bundle in bundles))


def _size(bundles: list[Path]) -> int:
    return sum(Path(path).stat().st_size for each in bundles for path in _payloads(each))


def raw(bundles: list[Path]) -> Done:
    """Only decompress the same payloads: the limit for any reader."""
    stored = decoded = count = 0
    for bundle in bundles:
        for path in _payloads(bundle):
            data = _stored(path)
            stored += len(data)
            decoded += len(_decoded(data))
            count += 1
    return Done(stored=stored, decoded=decoded, objects=count)


def typed(bundles: list[Path]) -> Done:
    """Decode typed objects from memory."""
    held: list[bytes] = []
    size = 0
    for path in (path for bundle in bundles for path in _payloads(bundle)):
        data = _decoded(_stored(path))
        if is_typed(data) and size < HELD:
            held.append(data)
            size += len(data)
    before = cpu()
    for data in held:
        decode(data)
    return Done(cpu=cpu() - before, decoded=size, objects=len(held))


def limit(bundles: list[Path]) -> Done:
    """Decompress the same payloads and parse the same objects from JSON with the standard library.

    The JSON texts are built before the measurement. Payloads are taken in batches to bound the memory.
    """
    spent, stored, count = 0.0, 0, 0
    for bundle in bundles:
        paths = _payloads(bundle)
        for start in range(0, len(paths), BATCH):
            before = cpu()
            batch = [_decoded(_stored(path)) for path in paths[start : start + BATCH]]
            spent += cpu() - before
            texts = [json.dumps(decode(data)) for data in batch if is_typed(data)]
            before = cpu()
            for text in texts:
                json.loads(text)
            spent += cpu() - before
            count += len(batch)
    stored = _size(bundles)
    return Done(cpu=spent, stored=stored, objects=count)


def limit_again(bundles: list[Path]) -> Done:
    """Measure the limit several times and return the lowest cost, for small bundles."""
    return min((limit(bundles) for _ in range(AGAIN)), key=lambda done: done.cpu)


def exported(bundles: list[Path]) -> Done:
    """Export all attachments; exported files are deleted on the way, because they may be ten gigabytes."""
    (bundle,) = bundles
    result = read_bundle(bundle)
    with tempfile.TemporaryDirectory(prefix="runyard-bench-") as name:
        sink = _Sink(Path(name))
        before = cpu()
        manifest = export(Directory(bundle), result, Path(name), progress=sink)
        return Done(cpu=cpu() - before, decoded=manifest.size, objects=manifest.files)


class _Sink:
    """Counts exported bytes and deletes the complete files when there are too many."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bytes = 0

    def __call__(self, size: int) -> None:
        self._bytes += size
        if self._bytes > SWEPT:
            self._bytes = 0
            for path in self._folder.iterdir():
                if not path.name.startswith("."):
                    path.unlink()


def verified(bundles: list[Path]) -> Done:
    """Verify the hash of every object."""
    return Done(objects=sum(verify(bundle).hash_ok for bundle in bundles))


TASKS: dict[str, Callable[[list[Path]], Done]] = {
    each.__name__: each
    for each in (read, read_again, read_2, raw, limit, limit_again, typed, exported, verified)
}


def main() -> None:
    """Run the task and print its cost."""
    task, *bundles = sys.argv[1:]
    before = cpu()
    done = TASKS[task]([Path(bundle) for bundle in bundles])
    cost = Cost(
        cpu=done.cpu or cpu() - before,
        peak=peak(),
        cases=done.cases,
        objects=done.objects,
        stored=done.stored,
        decoded=done.decoded,
    )
    print(msgspec.json.encode(cost).decode())


if __name__ == "__main__":
    main()
