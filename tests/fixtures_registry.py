"""A real image registry on loopback, for tests. A folder's `conftest.py` imports the fixture.

def test_something(registry: RegistryServer) -> None:
    digest = registry.push(tart_image(), "acme/macos", "sequoia")
    reference = f"{registry.address}/acme/macos:sequoia"   # plain HTTP: tart's --insecure
"""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import Absent
from tests.tart_images import Image, basic, push

USER = ("ci", "correct horse")
# `USER` as the registry's file of users needs it: bcrypt, with the lowest cost.
_USERS = "ci:$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e\n"
_LISTENING = re.compile(r"listening on (127\.0\.0\.1:\d+)")


@dataclass(frozen=True)
class RegistryServer:
    """A running registry."""

    address: str  # host:port
    folder: Path  # what it stores
    user: tuple[str, str] = ("", "")

    def push(self, image: Image, namespace: str, *tags: str, authorization: str = "") -> str:
        """Push an image under these tags, as `user` or with this header; returns its digest."""
        header = authorization or (basic(self.user) if self.user[0] else "")
        return push(image, self.address, namespace, *tags, authorization=header)


@pytest.fixture
def registry_program(absent: Absent) -> str:
    """The registry's program; without one the test is counted as not run."""
    return shutil.which("docker-registry") or absent(
        "docker-registry", "apt-get install -y docker-registry"
    )


@pytest.fixture
def registry(registry_program: str, tmp_path: Path) -> Iterator[RegistryServer]:
    """A registry that anybody may use."""
    with serving(registry_program, tmp_path / "registry") as server:
        yield server


@pytest.fixture
def private_registry(registry_program: str, tmp_path: Path) -> Iterator[RegistryServer]:
    """A registry that only `USER` may use, by basic authentication."""
    users = tmp_path / "users"
    users.write_text(_USERS)
    auth = f"auth: {{htpasswd: {{realm: tests, path: {users}}}}}"
    with serving(registry_program, tmp_path / "private", auth=auth, user=USER) as server:
        yield server


@contextmanager
def serving(
    program: str, folder: Path, *, auth: str = "", user: tuple[str, str] = ("", "")
) -> Iterator[RegistryServer]:
    """Run a registry on a free port; `auth` is a line of its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "registry.yml"
    settings.write_text(
        "version: 0.1\nlog: {level: info, accesslog: {disabled: true}}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder / 'data'}}}, delete: {{enabled: true}}}}\n"
        f'http: {{addr: "127.0.0.1:0", secret: tests}}\n{auth}\n'
    )
    command = [program, "serve", str(settings)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = _address(process)
            rest = threading.Thread(target=_drain, args=(process,), daemon=True)
            rest.start()
            yield RegistryServer(address, folder, user)
        finally:
            process.terminate()
            process.wait()


def _address(process: "subprocess.Popen[str]") -> str:
    said = []
    for line in process.stderr or ():
        said.append(line)
        if found := _LISTENING.search(line):
            return found[1]
    pytest.fail("docker-registry did not start: " + "".join(said))


def _drain(process: "subprocess.Popen[str]") -> None:
    """Read what else it logs: a full pipe would stop it."""
    for _ in process.stderr or ():
        pass
