"""tart's directory: local VMs, pulled images, temporary directories.

    vms/<name>/                                         a local VM
    cache/OCIs/<host>/<namespace>/sha256:<hex>/         an image; the host's port is percent-encoded
    cache/OCIs/<host>/<namespace>/<tag>                 a link to the image
    tmp/                                                what is being made; flocked while in use

A directory is a VM once `config.json`, `disk.img` and `nvram.bin` exist; before, it is not listed. Beside tart's own
files a VM that has run here holds `guest-disk/`, what the guest sees as its disk.
"""

import binascii
import json
import os
import re
from collections.abc import Iterator

from tests.standins.tart import errors, locks

PARTS = ("config.json", "disk.img", "nvram.bin")
GUEST_DISK = "guest-disk"
EXPLICIT = ".explicitly-pulled"
_REMOTE = re.compile(
    r"(?P<host>[\w.-]+(?::\d+)?)/(?P<namespace>[\w.-]+(?:/[\w.-]+)*)"
    r"(?::(?P<tag>[\w][\w.-]*)|@(?P<digest>sha256:[0-9a-f]{64}))?"
)


class Remote:
    """The name of an image in a registry."""

    __slots__ = ("digest", "host", "namespace", "tag")

    def __init__(self, host: str, namespace: str, *, tag: str = "", digest: str = "") -> None:
        self.host = host
        self.namespace = namespace
        self.tag = tag
        self.digest = digest

    @property
    def reference(self) -> str:
        """The tag or the digest."""
        return self.digest or self.tag

    def at(self, digest: str) -> "Remote":
        """The same image by its digest."""
        return Remote(self.host, self.namespace, digest=digest)

    def __str__(self) -> str:
        mark = f"@{self.digest}" if self.digest else f":{self.tag}"
        return f"{self.host}/{self.namespace}{mark}"


def remote(name: str) -> Remote | None:
    """The parsed name of an image, or None for the name of a local VM."""
    found = _REMOTE.fullmatch(name)
    if found is None:
        return None
    digest = found["digest"] or ""
    tag = "" if digest else found["tag"] or "latest"
    return Remote(found["host"], found["namespace"], tag=tag, digest=digest)


class Vm:
    """One directory with a VM, local or pulled."""

    __slots__ = ("name", "path")

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.name = name

    def file(self, name: str) -> str:
        """The path of a file in it."""
        return os.path.join(self.path, name)

    @property
    def initialized(self) -> bool:
        """Whether it is a VM at all."""
        return all(os.path.exists(self.file(part)) for part in PARTS)

    @property
    def pid(self) -> int:
        """The process that runs it; 0: none."""
        return locks.holder(self.file("config.json"))

    @property
    def state(self) -> str:
        """As `tart list` shows it."""
        if self.pid:
            return "running"
        return "suspended" if os.path.exists(self.file("state.vzvmsave")) else "stopped"

    def config(self) -> dict[str, object]:
        """Its settings. Reading them drops a lock that this process has on them."""
        with open(self.file("config.json"), "rb") as file:
            return dict(json.load(file))

    def save(self, config: dict[str, object]) -> None:
        """Rewrite its settings in place, so that a lock on the file stays."""
        with open(self.file("config.json"), "r+b") as file:
            file.write(encoded(config))
            file.truncate()

    @property
    def mac(self) -> str:
        """Its network address."""
        return str(self.config()["macAddress"]).lower()

    def logical(self) -> int:
        """Bytes of its disk, holes included."""
        return os.stat(self.file("disk.img")).st_size

    def allocated(self) -> int:
        """Bytes that its files take."""
        return sum(os.stat(self.file(part)).st_blocks * 512 for part in PARTS)

    def accessed(self) -> float:
        """When it was last used."""
        return os.stat(self.path).st_atime

    def touch(self, now: float) -> None:
        """Record a use."""
        os.utime(self.path, (now, os.stat(self.path).st_mtime))


def encoded(config: dict[str, object]) -> bytes:
    """The text of a config.json."""
    return json.dumps(config, indent=2, separators=(",", " : ")).encode() + b"\n"


def random_mac() -> str:
    """A locally administered address."""
    first, *rest = os.urandom(6)
    return ":".join(f"{octet:02x}" for octet in ((first & 0xFC) | 0x02, *rest))


def random_serial() -> str:
    """A new machine identifier."""
    return binascii.b2a_base64(os.urandom(48), newline=False).decode()


def new_config(*, system: str = "darwin") -> dict[str, object]:
    """The settings of a new VM."""
    return {
        "version": 1,
        "os": system,
        "arch": "arm64",
        "ecid": random_serial(),
        "hardwareModel": random_serial(),
        "cpuCountMin": 4,
        "cpuCount": 4,
        "memorySizeMin": 4 << 30,
        "memorySize": 8 << 30,
        "macAddress": random_mac(),
        "display": {"width": 1024, "height": 768},
        "diskFormat": "raw",
    }


class Home:
    """All of TART_HOME."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.vms = os.path.join(self.root, "vms")
        self.cache = os.path.join(self.root, "cache", "OCIs")
        self.tmp = os.path.join(self.root, "tmp")
        for path in (self.vms, self.cache, os.path.join(self.root, "cache", "IPSWs"), self.tmp):
            os.makedirs(path, exist_ok=True)

    # --------------------------------------------------------------------------- local VMs

    def local(self, name: str) -> Vm:
        """The directory for a local VM, existing or not."""
        return Vm(os.path.join(self.vms, name), name)

    def open_local(self, name: str, now: float) -> Vm:
        """An existing local VM; its access time is updated."""
        found = self.local(name)
        if "/" in name or not os.path.isdir(found.path):
            raise errors.missing(name)
        if not found.initialized:
            raise errors.incomplete()
        found.touch(now)
        return found

    def locals(self) -> list[Vm]:
        """All local VMs by name."""
        found = [self.local(name) for name in sorted(os.listdir(self.vms))]
        return [vm for vm in found if vm.initialized]

    # ------------------------------------------------------------------------------ images

    def host_directory(self, name: Remote) -> str:
        """The directory of a registry, which is locked during a pull."""
        return os.path.join(self.cache, name.host.replace(":", "%3A"))

    def image(self, name: Remote) -> Vm:
        """The directory (or link) for an image, existing or not."""
        path = os.path.join(self.host_directory(name), *name.namespace.split("/"), name.reference)
        return Vm(path, str(name))

    def open_image(self, name: Remote, now: float) -> Vm:
        """An image that has been pulled; its access time is updated."""
        found = self.image(name)
        if not found.initialized:
            raise errors.missing(str(name))
        found.touch(now)
        return found

    def images(self) -> list[Vm]:
        """All images, each by its tags and by its digest, by name."""
        return sorted((vm for vm in self._cached() if vm.initialized), key=lambda found: found.name)

    def _cached(self) -> Iterator[Vm]:
        for folder, folders, files in os.walk(self.cache):
            for name in [*folders, *files]:
                path = os.path.join(folder, name)
                link = os.path.islink(path)
                if not link and not name.startswith("sha256:"):
                    continue
                host, _, namespace = os.path.relpath(folder, self.cache).partition("/")
                mark = ":" if link else "@"
                yield Vm(path, f"{host.replace('%3A', ':')}/{namespace}{mark}{name}")
            folders[:] = [name for name in folders if not name.startswith("sha256:")]

    def link(self, tag: Remote, digest: Remote) -> None:
        """Let a tag mean an image; what it meant before may be collected."""
        path = self.image(tag).path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(self.image(digest).path, path)
        self.collect()

    def collect(self) -> None:
        """Remove broken tags, and images without a tag that were not pulled by digest."""
        cached = list(self._cached())
        kept = set()
        for vm in cached:
            if not os.path.islink(vm.path):
                continue
            if os.path.exists(vm.path):
                kept.add(os.path.realpath(vm.path))
            else:
                os.unlink(vm.path)
        for vm in cached:
            if os.path.islink(vm.path) or not os.path.isdir(vm.path):
                continue
            if os.path.realpath(vm.path) not in kept and not os.path.exists(vm.file(EXPLICIT)):
                remove(vm.path)

    # --------------------------------------------------------------------------- temporary

    def wipe(self) -> None:
        """Remove what no process is making any more: pulls that were killed, too."""
        for name in os.listdir(self.tmp):
            path = os.path.join(self.tmp, name)
            held = locks.try_flock(path)
            if held is None:
                continue
            remove(path)
            os.close(held)

    def temporary(self, name: str) -> Vm:
        """A directory in tmp; a name that is used again finds what is there."""
        path = os.path.join(self.tmp, name)
        os.makedirs(path, exist_ok=True)
        return Vm(path, name)

    def lock(self) -> str:
        """The path whose flock serialises clone, import and the start of `run`."""
        return self.root


def move(source: str, target: str) -> None:
    """Put a directory in another's place; what was there is gone."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.lexists(target):
        old = f"{target}.replaced-{os.getpid()}"
        os.rename(target, old)
        os.rename(source, target)
        remove(old)
    else:
        os.rename(source, target)


def remove(path: str) -> None:
    """Remove a file, a link, a socket or a directory; absent is success."""
    if os.path.isdir(path) and not os.path.islink(path):
        import shutil  # noqa: PLC0415 - slow to import: it brings the compressors

        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)


def copy_sparse(source: str, target: str) -> None:
    """Copy a file without its holes; as `clonefile`, it takes no space for them."""
    with open(source, "rb") as reader, open(target, "wb") as writer:
        size = os.fstat(reader.fileno()).st_size
        offset = 0
        while offset < size:
            try:
                start = os.lseek(reader.fileno(), offset, os.SEEK_DATA)
            except OSError:
                break  # nothing but a hole is left
            offset = os.lseek(reader.fileno(), start, os.SEEK_HOLE)
            reader.seek(start)
            writer.seek(start)
            left = offset - start
            while left:
                block = reader.read(min(left, 1 << 20))
                writer.write(block)
                left -= len(block)
        writer.truncate(size)
