"""Directories of the host in the guest: what a real guest sees at `/Volumes/My Shared Files/<name>`.

The guest of the stand-in finds them under `$STANDIN_SHARES`. Where Linux allows mount namespaces they are bind mounts,
so that a read-only share is read-only, for root as well; elsewhere they are links, and `ro` is not enforced
(`$STANDIN_READONLY` is then empty).
"""

import os

from tests.standins.tart import errors, storage
from tests.standins.tart.spawning import LINUX

_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18


class Share:
    """One `--dir [name:]path[:ro][,tag=T]`; anything else behind the path is part of it."""

    __slots__ = ("name", "path", "readonly", "tag")

    def __init__(self, text: str) -> None:
        self.readonly = False
        self.tag = ""
        head, mark, tail = text.rpartition(":")
        options = tail.split(",")
        if mark and all(each == "ro" or each.startswith("tag=") for each in options):
            text = head
            self.readonly = "ro" in options
            self.tag = next((each[4:] for each in options if each.startswith("tag=")), "")
        name, mark, path = text.partition(":")
        self.name = name if mark else ""
        self.path = os.path.abspath(os.path.expanduser(path if mark else name))


def parse(texts: list[str]) -> list[Share]:
    """All shares of a command line."""
    shares = [Share(text) for text in texts]
    if len(shares) > 1 and not all(share.name for share in shares):
        raise errors.Usage("--dir: when using multiple directories, each must have a name")
    return shares


def check(shares: list[Share]) -> None:
    """Fail as the virtualization framework does when a directory does not exist."""
    for share in shares:
        if not os.path.isdir(share.path):
            raise errors.other(
                f"A directory sharing device configuration is invalid. The folder “{share.path}”"
                " doesn’t exist."
            )


def mount(shares: list[Share], folder: str) -> bool:
    """Make the shares appear in a folder; returns whether read-only ones are enforced."""
    storage.remove(folder)
    os.makedirs(folder)
    private = LINUX and bool(shares) and _private()
    for share in shares:
        target = os.path.join(folder, share.name) if share.name else folder
        if private:
            os.makedirs(target, exist_ok=True)
            _bind(share.path, target, readonly=share.readonly)
        else:
            storage.remove(target)
            os.symlink(share.path, target)
    return private


def _call(name: str, *arguments: object) -> None:
    import ctypes  # noqa: PLC0415 - slow to import; only `run` with shares needs it

    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)


def _private() -> bool:
    """Enter a mount namespace of our own; as a plain user inside a user namespace."""
    user, group = os.getuid(), os.getgid()
    try:
        _call("unshare", _NEWNS if user == 0 else _NEWNS | _NEWUSER)
        if user != 0:
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{user} {user} 1"),
                ("gid_map", f"{group} {group} 1"),
            ):
                with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                    file.write(text)
        _call("mount", None, b"/", None, _REC | _PRIVATE, None)
    except OSError:
        return False
    return True


def _bind(source: str, target: str, *, readonly: bool) -> None:
    _call("mount", source.encode(), target.encode(), None, _BIND, None)
    if readonly:
        _call("mount", None, target.encode(), None, _BIND | _REMOUNT | _RDONLY, None)
