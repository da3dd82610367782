"""Builds the Go program in `client` into the user's cache, once for each state of its source, and runs it."""

import asyncio
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import controlplane
import msgspec

SOURCE = Path(__file__).parent / "client"
NEEDED = (1, 26)
HOW = "install go 1.26 or later; the first build needs the network"
_BUILD_SECONDS = 900.0  # the whole of client-go, once


def go() -> Path | None:
    """The go command, if it is new enough."""
    found = shutil.which("go")
    if found is None:
        return None
    told = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    version = controlplane.parse_version(told.stdout.removeprefix("go"))
    return Path(found) if version[:2] >= NEEDED else None


def program() -> Path | None:
    """The built program; None where it cannot be built. Two tests that build it at once do no harm."""
    source = sorted(SOURCE.iterdir())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in source)).hexdigest()[:16]
    cache = controlplane.cache_home(os.environ).parent / "kube-client"
    built = cache / digest
    if built.exists():
        return built
    if (command := go()) is None:
        return None
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        made = Path(folder) / "kube-client"
        flags = ("-trimpath", "-ldflags=-s -w", "-mod=readonly")
        ended = subprocess.run(
            [command, "build", *flags, "-o", made, "."],
            cwd=SOURCE,
            env=os.environ | {"CGO_ENABLED": "0"},
            timeout=_BUILD_SECONDS,
            check=False,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr
        made.replace(built)
    return built


def converted(command: Path, direction: str, lines: list[bytes]) -> list[dict[str, Any]]:
    """What the program makes of each line."""
    told = subprocess.run(
        [command, direction], input=b"\n".join(lines), capture_output=True, check=True
    ).stdout
    found = [msgspec.json.decode(line) for line in told.splitlines()]
    assert len(found) == len(lines)
    assert not (errors := [item["error"] for item in found if "error" in item]), errors
    return found


class Running:
    """One running program, and the events that it printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []

    async def until(self, event: str, within: float = 60.0) -> dict[str, Any]:
        """The next event of that name."""
        assert self.process.stdout is not None
        async with asyncio.timeout(within):
            while line := await self.process.stdout.readline():
                self.events.append(msgspec.json.decode(line))
                if self.events[-1]["event"] == event:
                    return self.events[-1]
        raise AssertionError(f"it ended before {event!r}: {self.events[-3:]}")

    async def end(self) -> None:
        """Ends the program in order, and reads the rest."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        rest = await self.process.stdout.read()
        self.events += [msgspec.json.decode(line) for line in rest.splitlines()]
        await self.process.wait()

    def named(self, event: str) -> list[dict[str, Any]]:
        """The events of that name so far."""
        return [item for item in self.events if item["event"] == event]


async def start(command: Path, *arguments: str, kubeconfig: Path, lease: int = 15) -> Running:
    """Starts the program; end it with `end`, or kill its process."""
    environment = {"KUBECONFIG": str(kubeconfig), "LEASE_SECONDS": str(lease)}
    with (kubeconfig.parent / "kube-client.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            command,
            *arguments,
            env={"PATH": os.environ["PATH"], "HOME": str(kubeconfig.parent)} | environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=1 << 22,
        )
    return Running(process)
