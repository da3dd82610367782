"""No secret of a running machine is readable in logs, files, process lists or answers."""

import base64
import contextlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.embedded.up.upsupport import HAS_PROC, KUBECTL, PODS, Up, ask, processes_of, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]
# Where secrets live: private files, databases, and a VM's own folders before its job.
TOKENS = ("dashboard.token", "metrics.token")
HOMES = ("kubeconfig", "secrets.json", "tokens", "tls", "kube.db", "github.db", "postgres", *TOKENS)
OBJECTS = (
    "/api/v1/nodes",
    "/api/v1/pods",
    "/api/v1/events",
    "/api/v1/serviceaccounts",
    "/api/v1/secrets",
    "/api/v1/configmaps",
    "/api/v1/namespaces",
    "/apis/tuist.dev/v1alpha1/runnerpools",
    "/apis/coordination.k8s.io/v1/leases",
)
PROBE = """
set +e; echo begin; env; id; ls -laR .. 2>/dev/null | head -200
for f in /proc/self/environ /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do tr '\\0' '\\n' < $f; done 2>/dev/null
cat ../env/* ../../env/* /vm/env/* ../run/* ../../run/* /vm/run/* 2>/dev/null
while [ ! -e go ] && [ "${n:=0}" -lt 6 ]; do sleep 1; n=$((n+1)); done
echo end
"""


class Search:
    """What must not be found, and where it was found."""

    def __init__(self) -> None:
        self._needles: dict[str, bytes] = {}
        self.found: list[str] = []
        self.searched = 0

    def add(self, name: str, secret: str) -> None:
        value = secret.strip()
        assert len(value) >= 16, f"{name} is no secret: {value!r}"
        if "PRIVATE KEY" in value:
            value = value.splitlines()[5]
        self._needles[name] = value.encode()
        self._needles[f"{name} (base64)"] = base64.b64encode(value.encode()).rstrip(b"=")[:-2]

    @property
    def names(self) -> list[str]:
        return list(self._needles)

    def search_in(self, place: str, content: bytes) -> None:
        self.searched += 1
        self.found += [
            f"{name} in {place}" for name, value in self._needles.items() if value in content
        ]


def guests(up: Up) -> Iterator[str]:
    """The tokens of guests that wait for work: staged for them, or in their poller's own file."""
    for place in (up.data / "hosts").glob("*/vm/vms/*"):
        for path in (place / "env" / "sa_token", place / "run" / "headers"):
            with contextlib.suppress(FileNotFoundError):
                if words := path.read_text().split():
                    yield words[-1]
                    break


def jits(up: Up) -> list[str]:
    """Every JIT configuration that the practice GitHub knows of."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for path in up.data.glob("github.db*"):  # its server holds a lock on it: a copy is read
            shutil.copy(path, folder)
        db = sqlite3.connect(Path(folder) / "github.db")
        for (value,) in db.execute("SELECT value FROM records WHERE kind = 'runner'"):
            record = json.loads(value)
            found += [text for text in _texts(record) if len(text) > 150]
        db.close()
    return found


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def collect(up: Up, search: Search) -> None:
    for name, value in up.secrets.items():
        if name != "app_public_key":
            search.add(name, value)
    for path in (up.data / "tokens").iterdir():
        search.add(f"token of {path.name}", path.read_text())
    for name in TOKENS:
        search.add(name, (up.data / name).read_text())
    search.add("postgres password", (up.data / "postgres" / "password").read_text())
    for number, token in enumerate(guests(up)):
        search.add(f"a guest's token {number}", token)


def search_everywhere(up: Up, search: Search, jobs: list[int]) -> None:
    for path in up.data.rglob("*"):
        inside = path.relative_to(up.data)
        if inside.parts[0].startswith(HOMES) and inside != Path("postgres/server.log"):
            continue
        if path.is_file() and not _of_a_guest(inside):
            with contextlib.suppress(OSError):
                search.search_in(f"the file {inside}", path.read_bytes())
    search.search_in("server.log of Postgres", (up.data / "postgres" / "server.log").read_bytes())
    for each in (*processes_of(up.data), *processes_of(Path(f"/proc/{up.process.pid}"))):
        search.search_in(f"arguments of {each.words[:80]}", each.arguments)
        search.search_in(f"environment of {each.words[:80]}", each.environment)
    for path in OBJECTS:
        answer = up.kube("GET", path)
        assert answer.status in (200, 404, 501), (path, answer)
        search.search_in(path, answer.body)
    for path in ("/", "/api/v1/overview", "/metrics", "/readyz", "/healthz", "/openapi.json"):
        search.search_in(f"the server's {path}", up.owner("GET", path).body)
    for url, path in (
        ("server", "/webhooks/github"),
        ("server", "/nothing"),
        ("github", "/nothing"),
    ):
        search.search_in(f"a refusal of {path}", ask(up.url(url), "POST", path, body=b"{").body)
    search.search_in(
        "a refusal of kube", ask(up.url("kube"), "GET", "/api/v1/pods", tls=up.tls()).body
    )
    for path in ("/practice/jobs", "/practice/runners", "/practice/deliveries"):
        search.search_in(path, up.github("GET", path).body)
    for job in jobs:
        search.search_in(f"the log of job {job}", up.log(job).encode())
    search.search_in("what it printed", "".join(up.lines).encode() + up.errors.encode())


def _of_a_guest(path: Path) -> bool:
    """A VM's own token, before its job, and what its poller keeps of it."""
    return len(path.parts) > 5 and path.parts[5] in ("env", "run")


def test_no_secret_is_readable_anywhere(up: Up) -> None:
    until(lambda: len(list(guests(up))) == 2, what="two guests with their tokens")
    search = Search()
    collect(up, search)
    assert sum("guest" in name for name in search.names) == 4
    job = up.queue(PROBE, "probe")
    up.in_state(job, "in_progress")
    for number, jit in enumerate(jits(up)):
        search.add(f"JIT {number}", jit)
    assert any(name.startswith("JIT") for name in search.names), (
        "no JIT configuration was found to search for"
    )
    search_everywhere(up, search, [job])  # while the job runs
    assert up.in_state(job, "completed")["conclusion"] == "success"
    assert "end" in up.log(job)
    collect(up, search)
    search_everywhere(up, search, [job])
    assert search.searched > 100
    assert search.found == []


def test_the_search_finds_planted_secrets() -> None:
    search = Search()
    search.add("a token", "0123456789abcdef0123")
    search.search_in("plain", b"x 0123456789abcdef0123 y")
    search.search_in("wrapped", base64.b64encode(b"0123456789abcdef0123"))
    search.search_in("nothing", b"0123456789abcdef")
    assert search.found == ["a token in plain", "a token (base64) in wrapped"]


@pytest.mark.skipif(not KUBECTL.exists(), reason="needs kubectl")
def test_describing_a_runner_shows_no_secret(up: Up) -> None:
    search = Search()
    collect(up, search)
    for pod in until(lambda: up.items(PODS), what="a runner"):
        shown = up.kubectl("get", "pod", pod["metadata"]["name"], "-o", "yaml")
        search.search_in("a Pod's YAML", shown.encode())
    assert search.searched and search.found == []


def test_private_files_are_private(up: Up) -> None:
    for name in (
        "kubeconfig",
        "secrets.json",
        "kube.db",
        "github.db",
        "ports.json",
        "lock",
        *TOKENS,
    ):
        assert (up.data / name).stat().st_mode & 0o077 == 0, name
    for folder in ("tokens", "logs"):
        for path in (up.data / folder).iterdir():
            assert path.stat().st_mode & 0o077 == 0, path
    assert (up.data / "tls" / "ca.key").stat().st_mode & 0o077 == 0
    assert up.data.stat().st_mode & 0o066 == 0
