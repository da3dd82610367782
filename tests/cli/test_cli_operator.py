"""What `operator`, `agent` and `practice serve` cannot use is one line, before anything begins."""

from pathlib import Path

import pytest

from runyard.cli.main import cli, run
from runyard.embedded.lock import DirectoryLock

SERVER = ("--server-url", "http://127.0.0.1:1")
WHERE = ("--kubeconfig", "KUBE", "--images", "HERE", "--data", "HERE")
BEGINS = (*WHERE, "--listen", "127.0.0.1:0", "--isolation", "none")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("KUBECONFIG", "RUNYARD_SERVER_URL", "TUIST_RUNNER_DISPATCH_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def kubeconfig(folder: Path) -> str:
    path = folder / "kube.yaml"
    path.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}],"
        " contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {token: t}}]}"
    )
    return str(path)


OPERATOR = {
    "no server": ((), "--server-url is missing"),
    "no cluster": (SERVER, "kubeconfig"),
    "a kubeconfig that is not there": ((*SERVER, "--kubeconfig", "/nope"), "/nope"),
    "a namespace": ((*SERVER, "--namespace", "A B"), "--namespace: 'A B'"),
    "a lease's namespace": (
        (*SERVER, "--kubeconfig", "KUBE", "--controller-namespace", "_"),
        "--controller-namespace: '_'",
    ),
    "an address": ((*SERVER, "--kubeconfig", "KUBE", "--listen", "9"), "--listen: '9'"),
    "a server": (("--server-url", "nowhere", "--kubeconfig", "KUBE"), "--server-url"),
    "where runners ask": ((*SERVER, "--dispatch-url", "nowhere"), "--dispatch-url is not a valid"),
    "a password in a URL": (
        (*SERVER, "--dispatch-url", "http://a:b@host"),
        "--dispatch-url contains a user name",
    ),
}
AGENT = {
    "a node's name": (("--node-name", "Mac Mini"), "--node-name: 'Mac Mini'"),
    "a kubeconfig that is not there": (("--kubeconfig", "/nope"), "/nope"),
    "a practice GitHub": (
        (*BEGINS, "--practice-url", "mini-1:8088"),
        "--practice-url is not a valid URL",
    ),
    "images": (("--kubeconfig", "KUBE", "--images", "/nope"), "--images: /nope"),
    "another driver": (("--driver", "vmware"), "--driver"),
    "a data directory": (("--kubeconfig", "KUBE", "--data", "/proc/x"), "--data: /proc/x"),
    "labels": (
        (*BEGINS, "--node-labels", "fast"),
        "--node-labels: 'fast'",
    ),
    "an IP address": (
        (*BEGINS, "--node-ip", "mini"),
        "--node-ip: 'mini'",
    ),
    "a server": ((*BEGINS, "--server-url", "nowhere"), "--server-url is not a valid URL"),
}
PRACTICE = {
    "off loopback": (("serve", "--data", "HERE", "--listen", "0.0.0.0:0"), "loopback only"),
    "no directory": (("serve",), "--data"),
    "a server": (("serve", "--data", "HERE", "--server-url", "x"), "--server-url"),
}
CASES = [
    pytest.param(command, *case, id=f"{command}: {name}")
    for command, table in (("operator", OPERATOR), ("agent", AGENT), ("practice", PRACTICE))
    for name, case in table.items()
]


@pytest.mark.parametrize(("command", "argv", "told"), CASES)
def test_a_bad_setting_is_one_line_with_its_flag(
    command: str,
    argv: tuple[str, ...],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    filled = [
        word.replace("KUBE", kubeconfig(tmp_path)).replace("HERE", str(here)) for word in argv
    ]
    assert run(cli, name="runyard", argv=[command, *filled]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("runyard: ") and told in error


@pytest.mark.parametrize("option", [("--vm-slots", "2"), ("--runner-directory", "/opt/runner")])
def test_an_agent_that_runs_processes_ignores_an_option_of_vms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, str]
) -> None:
    fixed = {"KUBE": kubeconfig(tmp_path), "HERE": str(tmp_path)}
    argv = [fixed.get(word, word) for word in BEGINS]
    assert run(cli, name="runyard", argv=["agent", *argv, "--driver", "process", *option]) == 2
    last = capsys.readouterr().err.splitlines()[-1]  # after the driver's own lines
    assert f"{option[0]} is of VMs, and hosts run processes" in last


def test_two_agents_never_share_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = tmp_path / "images"
    images.mkdir()
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    argv = ["--kubeconfig", kubeconfig(tmp_path), "--data", str(tmp_path), "--images", str(images)]
    try:
        assert run(cli, name="runyard", argv=["agent", *argv]) == 2
    finally:
        lock.release()
    assert "is used by another agent" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["operator", "agent"])
def test_the_help_says_what_the_cluster_needs_first(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, name="runyard", argv=[command, "--help"]) == 0
    told = capsys.readouterr().out
    assert f"--component {command}" in told and "kubectl apply -f -" in told
