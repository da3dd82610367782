"""One piece of work in a process of its own, so that its memory is its own.

    python -m benches.xcresult.work TASK BUNDLE...      prints what it cost, as JSON

Time is CPU time of this process and its children: the clock on the wall would measure the neighbours.
"""

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
"""Bytes of exported attachments that may lie on the disk before they are thrown away."""
AGAIN = 5
HELD = 256 * 1024 * 1024
"""Bytes of typed objects that are held for decoding."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a piece of work took."""

    cpu: float
    peak: float
    """Megabytes, of the whole process from its start."""
    cases: int = 0
    objects: int = 0
    stored: int = 0
    """Bytes on disk."""
    decoded: int = 0
    """Bytes after decompression."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What a piece of work did."""

    cpu: float = 0.0
    """Where only a part of it counts; 0: all of it."""
    cases: int = 0
    objects: int = 0
    stored: int = 0
    decoded: int = 0


def cpu() -> float:
    """Seconds of CPU so far, with those of children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def peak() -> float:
    """The most memory that this process ever had, in megabytes.

    On Linux not by rusage: there a process begins with what the one had that started it.
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
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  nothing but the bytes is to be measured
        return file.read()


def _decoded(stored: bytes) -> bytes:
    return new_decoder().decompress(stored) if stored.startswith(MAGIC) else stored


def read(bundles: list[Path]) -> Done:
    """Read bundles as a library user does, with their logs."""
    before = cpu()
    cases = sum(len(read_bundle(bundle).cases) for bundle in bundles)
    return Done(cpu=cpu() - before, cases=cases, stored=_size(bundles))


def read_again(bundles: list[Path]) -> Done:
    """The same some times over, for bundles so small that a moment's disturbance counts; the best of them."""
    return min((read(bundles) for _ in range(AGAIN)), key=lambda done: done.cpu)


def read_2(bundles: list[Path]) -> Done:
    """The same with two processes."""
    return Done(cases=sum(len(read_bundle(bundle, processes=2).cases) for bundle in bundles))


def _size(bundles: list[Path]) -> int:
    return sum(Path(path).stat().st_size for each in bundles for path in _payloads(each))


def raw(bundles: list[Path]) -> Done:
    """Nothing but the bytes of the same payloads, decompressed: what no reader can beat."""
    stored = decoded = count = 0
    for bundle in bundles:
        for path in _payloads(bundle):
            data = _stored(path)
            stored += len(data)
            decoded += len(_decoded(data))
            count += 1
    return Done(stored=stored, decoded=decoded, objects=count)


def typed(bundles: list[Path]) -> Done:
    """Decode typed objects that lie in memory."""
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


def exported(bundles: list[Path]) -> Done:
    """Export all attachments; what is on disk is thrown away now and then, since it may be ten gigabytes."""
    (bundle,) = bundles
    result = read_bundle(bundle)
    with tempfile.TemporaryDirectory(prefix="runyard-bench-") as name:
        sink = _Sink(Path(name))
        before = cpu()
        manifest = export(Directory(bundle), result, Path(name), progress=sink)
        return Done(cpu=cpu() - before, decoded=manifest.size, objects=manifest.files)


class _Sink:
    """Looks on while files are exported, and removes the whole ones when there are too many bytes of them."""

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
    """Hash everything."""
    return Done(objects=sum(verify(bundle).hash_ok for bundle in bundles))


TASKS: dict[str, Callable[[list[Path]], Done]] = {
    each.__name__: each for each in (read, read_again, read_2, raw, typed, exported, verified)
}


def main() -> None:
    """Do it."""
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
