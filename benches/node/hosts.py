"""The hosts of the bench: each a `tart-kubelet` process with a stand-in of tart and an account of its own.

The stand-in runs behind a small wrapper that notes when each command began and ended, because the agent's own
overhead is what remains of a start without the time that tart took.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
from tests.standins.tart.helper import StandIn

from runyard.embedded.kube.kubeconfig import render
from runyard.wire import names

IMAGE = "registry.test/mac/runner:1"
ROOT = Path(__file__).parents[2]
# A guest that never ends by itself: its VM waits for a job, as a warm runner does.
WAITS = "#!/bin/sh\nexec sleep 100000\n"
RUNNER = "#!/bin/sh\nexit 0\n"  # never runs: there are no jobs
_WRAPPER = """#!/bin/bash
began=$EPOCHREALTIME words="${{*//$'\\n'/ }}"
if [ "$1" = run ]; then
  echo "$began $began $words" >>{times}
  exec {tart} "$@"
fi
{tart} "$@"
status=$?
echo "$began $EPOCHREALTIME $words" >>{times}
exit $status
"""


class Command(msgspec.Struct, frozen=True):
    """One invocation of tart, in seconds since 1970."""

    began: float
    ended: float
    argv: tuple[str, ...]


class Host:
    """One host: its tart, its agent, its files."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir()
        self.folder, self.name = folder, name
        self.tart = StandIn(folder)
        self.image = self.tart.image(IMAGE, {"boot": WAITS, "actions-runner/run.sh": RUNNER})
        self.times = folder / "times"
        self.program = folder / "tart"
        self.program.write_text(
            _WRAPPER.format(
                times=shlex.quote(str(self.times)), tart=shlex.quote(str(self.tart.program))
            )
        )
        self.program.chmod(0o755)
        self.log = folder / "agent.log"
        self.agent: subprocess.Popen[str] | None = None

    def start(self, url: str, *, token: str, ca: bytes) -> None:
        """Start the agent and wait until it serves."""
        config = self.folder / "kubeconfig"
        config.touch(mode=0o600)
        config.write_text(render(url, token=token, ca=ca))
        argv = [
            *(sys.executable, "-m", "runyard.cli.tart_kubelet"),
            *(f"-node-name={self.name}", f"--kubeconfig={config}"),
            *(f"--data={self.folder / 'agent'}", f"--tart-binary={self.program}"),
            *("--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:0"),
        ]
        with self.log.open("ab") as log:
            self.agent = subprocess.Popen(
                argv,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **self.tart.environment},
            )
        assert self.agent.stdout is not None
        if not self.agent.stdout.readline():
            raise RuntimeError(f"the agent of {self.name} did not start: {self.log.read_text()}")

    @property
    def commands(self) -> list[Command]:
        """What tart was asked for so far."""
        found = []
        for line in self.times.read_text().splitlines() if self.times.exists() else ():
            began, ended, *argv = line.split()
            found.append(Command(float(began), float(ended), tuple(argv)))
        return found

    def helpers(self, program: str) -> list[int]:
        """The processes of this host that run a module of the shim's packages, by its name."""
        return [
            pid
            for pid, argv in _processes()
            if f"from {program} import main" in argv and str(self.folder) in argv
        ]

    def close(self) -> None:
        """End the agent, its VMs and everything that works in this host's folder."""
        if self.agent is not None:
            self.agent.kill()
            self.agent.communicate()
        self.tart.close()


def pod(name: str, node: str, image: str, *, poll_url: str = "") -> dict[str, object]:
    """A Pod that is bound to a host; with a URL the host polls there on its behalf."""
    env = {
        names.ENV_DISPATCH_URL: poll_url,
        names.ENV_POOL: "bench",
        names.ENV_POD_NAME: name,
    }
    return {
        "metadata": {
            "name": name,
            "labels": {names.RUNNER: "true", names.RUNNER_POOL: "bench"},
            "annotations": {names.POLLER: names.POLLER_HOST},
        },
        "spec": {
            "nodeName": node,
            "nodeSelector": {names.NODE_RUNTIME: names.NODE_RUNTIME_TART},
            "tolerations": [{"key": names.NODE_TAINT, "operator": "Exists"}],
            "serviceAccountName": name,
            "automountServiceAccountToken": True,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "env": [{"name": key, "value": value} for key, value in env.items()],
                }
            ],
        },
    }


def _processes() -> list[tuple[int, str]]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                argv = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found.append((int(path.name), argv))
    return found


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB (10^6 bytes); pages that it shares with others are counted too."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def cpu_seconds(pid: int) -> float:
    """CPU time of a process without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
