"""Starts, measures and stops the processes of a dispatch bench: servers and their dependencies."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
from benches.dispatch.dependencies import APP_ID

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9"  # the discard port, where no server listens
_PIPE = subprocess.PIPE


class Server:
    """One replica of `runyard server`."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self._process = process
        self.url = url

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        return cpu_of(self.pid)

    def memory(self) -> float:
        """MB that are this process's own."""
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("this system does not tell what a process holds")

    def metric(self, name: str) -> float:
        """The sum of a metric's series."""
        with urllib.request.urlopen(f"{self.url}/metrics") as answer:
            text = answer.read().decode()
        lines = [line for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def end(self) -> None:
        """End the process with SIGTERM, as a supervisor does."""
        self._process.send_signal(signal.SIGTERM)


def cpu_of(pid: int) -> float:
    """CPU seconds that a process has used; 0 where that is not available."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Processes:
    """Starts servers next to their dependencies; created by `processes`."""

    def __init__(
        self, folder: Path, stack: ExitStack, *, database: str, github_url: str, dependencies: int
    ) -> None:
        self.folder = folder
        self.database = database
        self.dependencies = dependencies  # the pid of the dependencies
        self._stack = stack
        self._github_url = github_url
        (folder / "database").write_text(database)

    def server(
        self,
        name: str = "server-1",
        *,
        alone: bool = False,
        settings: dict[str, float] | None = None,
    ) -> Server:
        """Start a replica; `alone`: without GitHub and Kubernetes. `settings` replace defaults."""
        folder = self.folder
        kube = folder / "kubeconfig"
        if alone:
            kube = folder / "kubeconfig-nowhere"
            lines = (folder / "kubeconfig").read_text().splitlines()
            nowhere = [
                line.split("server:")[0] + f"server: {NOWHERE}" if "server:" in line else line
                for line in lines
            ]
            kube.write_text("\n".join(nowhere))
            kube.chmod(0o600)
        flags = {
            "--name": name,
            "--listen": "127.0.0.1:0",
            "--database-url-file": folder / "database",
            "--kubeconfig": kube,
            "--github-url": NOWHERE if alone else self._github_url,
            "--github-app-id": APP_ID,
            "--github-key-file": folder / "app.pem",
            "--webhook-secret-file": folder / "secret",
            "--github-intake": "webhook",
            "--seal-key-file": folder / "seal",
            "--log-level": "warning",
        }
        command = [sys.executable, "-m", "benches.dispatch.configured_server", "server", "--json"]
        command += [str(part) for pair in flags.items() for part in pair]
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
            "RUNYARD_DATA": str(folder / "data"),
            "BENCH_SETTINGS": msgspec.json.encode(settings or {}).decode(),
        }
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=_PIPE, text=True, start_new_session=True
        )
        self._stack.callback(_ended, process)
        assert process.stdout
        for line in process.stdout:
            if '"serving"' in line:
                return Server(process, msgspec.json.decode(line)["url"])
        raise RuntimeError("the server did not start; see above")

    def limit(self, mode: str) -> Server:
        """Start the bare server of `benches.dispatch.limit` on the same rig."""
        command = [sys.executable, "-m", "benches.dispatch.limit", str(self.folder)]
        env = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        process = subprocess.Popen(
            [*command, self._github_url, mode],
            cwd=ROOT,
            env=env,
            stdout=_PIPE,
            text=True,
            start_new_session=True,
        )
        self._stack.callback(_ended, process)
        assert process.stdout
        url = process.stdout.readline().strip()
        assert url, "the bare server did not start; see above"
        return Server(process, url)


def _ended(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(20.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()


@contextmanager
def processes(folder: Path, *, database: str, runners: int, tenants: int) -> Iterator[Processes]:
    """Run the dependencies for as long as the context lasts; servers are ended first."""
    folder.mkdir()
    command = [sys.executable, "-m", "benches.dispatch.dependencies", str(folder)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    with subprocess.Popen(
        [*command, str(runners), str(tenants)],
        cwd=ROOT,
        env=env,
        stdin=_PIPE,
        stdout=_PIPE,
        text=True,
        start_new_session=True,
    ) as dependencies:
        assert dependencies.stdin and dependencies.stdout
        try:
            urls = dependencies.stdout.readline().split()
            assert urls, "the surroundings did not start; see above"
            with ExitStack() as stack:
                yield Processes(
                    folder,
                    stack,
                    database=database,
                    github_url=urls[1],
                    dependencies=dependencies.pid,
                )
        finally:
            dependencies.stdin.close()
    assert dependencies.returncode == 0, "the dependencies failed; see above"
