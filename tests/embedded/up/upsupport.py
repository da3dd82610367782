"""`runyard up` as a real process, and helpers to observe, use and damage it."""

import contextlib
import hashlib
import hmac
import http.client
import json
import os
import re
import select
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).parents[3]
KUBECTL = Path(sys.executable).parent / "kubectl"
SPACE = "tuist-runners"
POOLS = f"/apis/tuist.dev/v1alpha1/namespaces/{SPACE}/runnerpools"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
EVENTS = f"/api/v1/namespaces/{SPACE}/events"
REPOSITORY = "practice/playground"
PATIENCE = 60.0
HAS_PROC = Path("/proc/self/environ").exists()

_pace = threading.Event()  # never set: waiting for it lets other threads run


def until(seen: Callable[[], Any], *, within: float = PATIENCE, what: str = "") -> Any:
    """Calls `seen` until it returns something; a transport error counts as nothing."""
    rounds = max(1, int(within / 0.05))
    last: object = None
    for _ in range(rounds):
        try:
            last = seen()
            if last:
                return last
        except (OSError, http.client.HTTPException) as error:
            last = error
        _pace.wait(0.05)
    raise AssertionError(f"not within {within:g} s: {what or seen} (last: {last!r})")


def ended(pid: int, *, within: float) -> bool:
    """Wait for the end of a process, also of another process's child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], within)[0])
    finally:
        os.close(handle)


class Seen(NamedTuple):
    """One process of the system."""

    pid: int
    group: int
    state: str
    arguments: bytes
    environment: bytes
    folder: str

    @property
    def words(self) -> str:
        return self.arguments.replace(b"\0", b" ").decode(errors="replace")


def all_processes() -> Iterator[Seen]:
    """Every process that can be read; those on their way out are left out."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] in "ZX":
                continue
            folder = ""
            with contextlib.suppress(OSError):
                folder = str((entry / "cwd").readlink())
            environment = b""
            with contextlib.suppress(OSError):
                environment = (entry / "environ").read_bytes()
            arguments = (entry / "cmdline").read_bytes()
            yield Seen(int(entry.name), int(fields[2]), fields[0], arguments, environment, folder)
        except OSError:
            continue


def processes_of(root: Path) -> list[Seen]:
    """Processes with a directory in their arguments or environment, or as their working directory."""
    mark = os.fsencode(root)
    return [
        each
        for each in all_processes()
        if mark in each.arguments
        or mark in each.environment
        or (each.folder + "/").startswith(f"{root}/")
    ]


def group_is_empty(group: int) -> bool:
    return not any(each.group == group for each in all_processes())


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    url: str,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    timeout: float = 30.0,
) -> Answer:
    """One request over a real socket; the path is sent as it is."""
    host, _, port = url.partition("://")[2].partition(":")
    connection: http.client.HTTPConnection = (
        http.client.HTTPSConnection(host, int(port), context=tls, timeout=timeout)
        if url.startswith("https")
        else http.client.HTTPConnection(host, int(port), timeout=timeout)
    )
    try:
        named = {"content-length": str(len(body)), **(headers or {})}
        connection.putrequest(method, path, skip_host="host" in named, skip_accept_encoding=True)
        for name, value in named.items():
            connection.putheader(name, value)
        connection.endheaders()
        with contextlib.suppress(
            BrokenPipeError, ConnectionResetError
        ):  # it closed the connection early
            connection.send(body)
        got = connection.getresponse()
        headers_received = {name.lower(): value for name, value in got.getheaders()}
        return Answer(got.status, headers_received, got.read())
    finally:
        connection.close()


def environment(**more: str) -> dict[str, str]:
    """For a process of ours: the same code, and nothing of this test's own settings."""
    path = os.environ.get("PATH", os.defpath)
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{path}",
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT / "src"),
        **more,
    }


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "runyard.cli.main", "up", "--plain", *arguments]


class Up:
    """One `runyard up` on one directory; leaving the context ends it and its children."""

    def __init__(
        self, data: Path, *arguments: str, prefix: tuple[str, ...] = (), **env: str
    ) -> None:
        self.data = data
        self.lines: list[str] = []
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 closed with the machine
        self.process = subprocess.Popen(
            [*prefix, *command("--data", str(data), *arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment(**env),
            start_new_session=True,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._errors.close()
        for each in processes_of(self.data):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)

    @property
    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def ready(self) -> Self:
        """Reads its output until everything runs."""
        self.prints(" up. Dashboard: ")
        return self

    def prints(self, words: str) -> str:
        """Reads its output until a line contains these words."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if words in line:
                return line
        raise AssertionError(f"never printed {words!r}: {self.lines}\n{self.errors}")

    def finish(self) -> int:
        """Reads all its output, and waits for its end."""
        assert self.process.stdout is not None
        self.lines += self.process.stdout.readlines()
        return self.process.wait()

    @property
    def took(self) -> float:
        """How long its shutdown took, as it prints it: this test may have to wait for a processor."""
        (printed,) = [found for line in self.lines if (found := ENDED.search(line))]
        return float(printed[1])

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.finish()

    def kill(self) -> None:
        """Kills it with SIGKILL."""
        self.process.kill()
        self.process.wait()

    # What it keeps

    @property
    def secrets(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.data / "secrets.json").read_text())
        return found

    def url(self, name: str) -> str:
        port = json.loads((self.data / "ports.json").read_text())[name]
        return f"{'https' if name == 'kube' else 'http'}://127.0.0.1:{port}"

    def pid(self, component: str) -> int:
        """The process of a component; 0 while there is none."""
        if component == "postgres":
            return self._postgres()
        for each in all_processes():
            words = each.arguments.split(b"\0")
            ours = b"runyard.embedded.up.child" in words and words[-2] == component.encode()
            if ours and each.folder == str(self.data):
                return each.pid
        return 0

    def _postgres(self) -> int:
        for path in (self.data / "postgres").rglob("postmaster.pid"):
            with contextlib.suppress(OSError, ValueError):
                return int(path.read_text().split("\n", 1)[0])
        return 0

    # Its sockets

    def server(self, method: str, path: str, **kwargs: Any) -> Answer:
        return ask(self.url("server"), method, path, **kwargs)

    def owner(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """A request to the server with the token of the data directory."""
        token = (self.data / "dashboard.token").read_text().strip()
        bearer = {"authorization": f"Bearer {token}"}
        return self.server(method, path, body=body, headers={**bearer, **(headers or {})})

    def github(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        sent = b"" if body is None else json.dumps(body).encode()
        token = {"authorization": f"Bearer {self.secrets['people_token']}"}
        types = {"content-type": "application/json"}
        return ask(
            self.url("github"), method, path, body=sent, headers={**token, **types, **headers}
        )

    def tls(self) -> ssl.SSLContext:
        (authority,) = (self.data / "tls").glob("ca.crt")
        return ssl.create_default_context(cafile=str(authority))

    def kube(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        sent = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        token = {"authorization": f"Bearer {self.secrets['admin_token']}"}
        return ask(
            self.url("kube"),
            method,
            path,
            body=sent,
            headers={**token, "content-type": "application/json", **headers},
            tls=self.tls(),
        )

    def items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.kube("GET", path).json()["items"]
        return found

    def kubectl(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(KUBECTL), f"--kubeconfig={self.data / 'kubeconfig'}", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": str(self.data), "PATH": os.environ["PATH"]},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def webhook(self, body: bytes, **headers: str) -> Answer:
        """Sends a webhook signed as GitHub signs it, unless a header overrides that."""
        sign = hmac.new(self.secrets["webhook_secret"].encode(), body, hashlib.sha256).hexdigest()
        usual = {
            "content-type": "application/json",
            "x-github-event": "workflow_job",
            "x-github-delivery": "11111111-2222-3333-4444-555555555555",
            "x-hub-signature-256": f"sha256={sign}",
        }
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        both = {name: value for name, value in (usual | given).items() if value}
        return self.server("POST", "/webhooks/github", body=body, headers=both)

    # Jobs

    def install(self) -> None:
        for path, body in (
            ("/practice/accounts", {"account": REPOSITORY.partition("/")[0]}),
            ("/practice/repos", {"repo": REPOSITORY}),
        ):
            answer = self.github("POST", path, body)
            assert answer.status in (200, 201), answer

    def queue(self, script: str, name: str = "a job") -> int:
        body = {"repo": REPOSITORY, "labels": ["runyard"], "script": script, "name": name}
        answer = self.github("POST", "/practice/jobs", body)
        assert answer.status == 201, answer
        return int(answer.json()["id"])

    def job(self, number: int) -> dict[str, Any]:
        answer = self.github("GET", f"/practice/jobs/{number}")
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    def in_state(self, number: int, state: str, *, within: float = PATIENCE) -> dict[str, Any]:
        def seen() -> Any:
            job = self.job(number)
            return job if job["status"] == state else None

        found: dict[str, Any] = until(seen, within=within, what=f"job {number} {state}")
        return found

    def run(self, script: str, name: str = "a job", *, within: float = PATIENCE) -> str:
        """Queues a job, waits for its end, and returns its conclusion."""
        return str(
            self.in_state(self.queue(script, name), "completed", within=within)["conclusion"]
        )

    def log(self, number: int) -> str:
        return self.github("GET", f"/practice/jobs/{number}/log").body.decode()


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """A data directory with a short name, because the paths of sockets are limited."""
    folder = Path(tempfile.mkdtemp(prefix="runyard-up-")).resolve()
    try:
        yield folder / "data"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def machine(*arguments: str, **env: str) -> Iterator[Up]:
    """One that is up, with an account and a repository."""
    with directory() as data, Up(data, *arguments, **env) as up:
        up.ready()
        up.install()
        yield up


def nothing_left(data: Path, *, within: float = PATIENCE) -> None:
    """Waits until no process of that directory is left. `Up.took` checks how soon."""

    def gone() -> bool:
        return not processes_of(data)

    try:
        until(gone, within=within)
    except AssertionError:
        left = [(each.pid, each.words) for each in processes_of(data)]
        raise AssertionError(f"still running: {left}") from None


ENDED = re.compile(r" ended in (\d+\.\d) s$")
OUTCOME = re.compile(
    r"^demo: 20 jobs, 19 succeeded, 1 failed as scripted, 0 leaked, 4 faults healed \(max \d+ s\)$"
)
