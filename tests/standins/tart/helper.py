"""Installs the stand-in for tests, sets its knobs and reads its journal."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tests.standins.tart import storage
from tests.standins.tart.knobs import Knobs

MAIN = Path(__file__).with_name("main.py")


def install(directory: Path, *, home: Path | None = None) -> Path:
    """Write an executable named `tart` into a directory; `home` is its TART_HOME where none is set."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "tart"
    interpreter = os.path.realpath(sys.executable)
    default = ""
    if home is not None:
        default = f'[ -n "${{TART_HOME:-}}" ] || export TART_HOME={shlex.quote(str(home))}; '
    program.write_text(
        f'#!/bin/sh\n{default}exec {shlex.quote(interpreter)} -I -S {shlex.quote(str(MAIN))} "$@"\n'
    )
    program.chmod(0o755)
    return program


def archive(files: Mapping[str, str]) -> bytes:
    """The bytes of a disk: a tar archive of these files, each executable."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in files.items():
            data = text.encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mode = 0o755
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


class StandIn:
    """One TART_HOME with the stand-in installed beside it, on a PATH of its own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "tart-home"
        self.bin = folder / "tart-bin"
        # Without a TART_HOME of its own: a caller that loses the variable is to be noticed.
        self.program = install(self.bin)
        self.storage = storage.Home(str(self.home))
        self.processes: list[subprocess.Popen[bytes]] = []
        (self.home / "knobs").mkdir()

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to find it."""
        return {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "TART_HOME": str(self.home),
            "HOME": str(self.home.parent),
        }

    def popen(self, *argv: str, **options: object) -> "subprocess.Popen[bytes]":
        """Start `tart` with these arguments; its output is piped unless the options say otherwise."""
        settings = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "env": self.environment,
            **options,
        }
        process = subprocess.Popen([str(self.program), *argv], **settings)
        self.processes.append(process)
        return process

    def call(self, *argv: str, stdin: bytes = b"", **env: str) -> "Done":
        """Run a command to its end."""
        done = subprocess.run(
            [str(self.program), *argv],
            input=stdin,
            capture_output=True,
            env={**self.environment, **env},
            timeout=60,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, name: str, *options: str, **popen: object) -> "subprocess.Popen[bytes]":
        """`tart run` in the background; returns when the VM runs, raises RuntimeError if it does not."""
        options = ("--no-graphics", "--vnc-experimental", *options)
        process = self.popen("run", name, *options, **popen)
        assert process.stdout is not None
        line = b"first"
        while line and b"vnc://" not in line:
            line = process.stdout.readline()
        if not line:
            _, error = process.communicate()
            raise RuntimeError(f"tart run {name} ended with {process.returncode}: {error.decode()}")
        return process

    # ------------------------------------------------------------------------------ contents

    def create(
        self,
        name: str,
        files: Mapping[str, str] | None = None,
        *,
        disk: bytes | None = None,
        system: str = "darwin",
        disk_bytes: int = 0,
    ) -> storage.Vm:
        """Make a local VM whose guest has these files; `boot` among them is its program."""
        vm = self.storage.local(name)
        self.fill(Path(vm.path), files, disk=disk, system=system, disk_bytes=disk_bytes)
        return vm

    @staticmethod
    def fill(
        path: Path,
        files: Mapping[str, str] | None = None,
        *,
        disk: bytes | None = None,
        system: str = "darwin",
        disk_bytes: int = 0,
    ) -> None:
        """Write the three files of a VM into a directory; `disk_bytes` of disk, the rest of it a hole."""
        path.mkdir(parents=True)
        (path / "config.json").write_bytes(storage.encoded(storage.new_config(system=system)))
        (path / "nvram.bin").write_bytes(os.urandom(64))
        with (path / "disk.img").open("wb") as file:
            file.write(archive(files or {}) if disk is None else disk)
            if disk_bytes:
                file.truncate(disk_bytes)

    def image(
        self, name: str, files: Mapping[str, str] | None = None, *, digest: str | None = None
    ) -> str:
        """Make an image as if it had been pulled by its tag; returns its name by digest."""
        tag = storage.remote(name)
        assert tag is not None
        by_digest = tag.at(digest or f"sha256:{os.urandom(32).hex()}")
        self.fill(Path(self.storage.image(by_digest).path), files)
        if tag.tag:
            self.storage.link(tag, by_digest)
        return str(by_digest)

    # --------------------------------------------------------------------------------- knobs

    def set(self, knob: str, value: object = 1, *, vm: str = "") -> None:
        """Set a knob, for one VM or for all; it acts at once."""
        path = self.home / "knobs" / (f"{knob}@{vm.replace('/', '%2F')}" if vm else knob)
        fresh = path.with_name(f"{path.name}.new")
        fresh.write_text(str(value))
        fresh.rename(path)

    def unset(self, knob: str, *, vm: str = "") -> None:
        """Clear a knob; a command that hangs by it goes on."""
        name = f"{knob}@{vm.replace('/', '%2F')}" if vm else knob
        (self.home / "knobs" / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Clear all knobs, which ends what hangs; kill every VM that runs, and what was started here."""
        for path in (self.home / "knobs").iterdir():
            path.unlink()
        for vm in self.storage.locals():
            pid = vm.pid
            if pid:
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    # ------------------------------------------------------------------------------- journal

    def journal(self, command: str = "") -> list[list[str]]:
        """The arguments of every invocation, or those of one command."""
        path = self.home / "journal"
        if not path.exists():
            return []
        found = [json.loads(line)["argv"] for line in path.read_text().splitlines()]
        return [argv for argv in found if not command or argv[0] == command]

    def runs(self, vm: str) -> int:
        """How many times `tart run` was called for a VM."""
        return sum(1 for argv in self.journal("run") if vm in argv)

    def hanging(self, command: str) -> list[int]:
        """The children of hanging commands, each of which holds the pipes of its parent."""
        path = self.home / f"hanging-{command}"
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def pids(self, vm: str) -> dict[str, int]:
        """The processes of a running VM: `run`, `machine`, `boot` (0 without a program)."""
        text = Path(self.storage.local(vm).file("machine.pids")).read_text()
        return {key: int(value) for key, _, value in (x.partition("=") for x in text.split())}

    @property
    def knobs(self) -> Knobs:
        """The knobs as the stand-in reads them."""
        return Knobs(str(self.home))


class Done:
    """How a command ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def __repr__(self) -> str:
        return f"Done(code={self.code}, out={self.out!r}, err={self.err!r})"

    def json(self) -> object:
        """What it printed, as JSON."""
        return json.loads(self.out)
