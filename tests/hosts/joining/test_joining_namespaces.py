"""Three hosts in network namespaces join; one is cut off with a job and comes back, one is drained and removed."""

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.conftest import Absent
from tests.embedded.up.upsupport import HAS_PROC, KUBECTL, Up, directory, environment, until
from tests.hosts.joining.namespaces import MAIN, Machine, Network, network, up_in

from runyard.wire import names

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_PROC, reason="network namespaces are Linux"),
]
_pace = threading.Event()  # never set


class Fleet(NamedTuple):
    net: Network
    up: Up
    main: Machine
    hosts: tuple[Machine, ...]
    links: tuple[tuple[str, str], ...]  # URL and token of each host

    def listed(self) -> dict[str, dict[str, Any]]:
        found = self.main.read("host", "list", "--data", str(self.up.data))
        return {each["name"]: each for each in found["items"]}

    def kubectl(self, *arguments: str) -> Any:
        done = subprocess.run(
            [
                *(*self.main.space.enter, str(KUBECTL)),
                *("--kubeconfig", str(self.up.data / "kubeconfig"), *arguments),
            ],
            capture_output=True,
            env=environment(),
            check=True,
        )
        return json.loads(done.stdout) if "json" in arguments else None

    def busy_host(self) -> str:
        """The node of the runner that has the job."""
        pods = self.kubectl("get", "pods", "-n", names.RUNNERS_NAMESPACE, "-o", "json")["items"]
        at = [
            pod["spec"]["nodeName"]
            for pod in pods
            if names.POOL_OWNER in pod["metadata"].get("labels", {})
        ]
        return str(at[0]) if at else ""


def token_of(main: Machine, data: Path) -> tuple[str, str]:
    made = main.read("host", "token", "--data", str(data))
    return made["url"], made["token"]


@contextlib.contextmanager
def fleet(folder: Path, absent: Absent) -> Iterator[Fleet]:
    """A main machine with a cordoned host of its own, and three hosts that joined."""
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(network(3, absent))
        up = stack.enter_context(up_in(net.main, folder / "main", "--listen", f"{MAIN}:7443"))
        main = Machine(net.main, folder / "commands")
        hosts = tuple(
            Machine(space, folder / f"mini-{number + 1}") for number, space in enumerate(net.hosts)
        )
        for each in (main, *hosts):
            stack.callback(each.close)
        up.ready()
        github = str(json.loads((up.data / "ports.json").read_text())["github"])
        link = str(folder / "github.sock")
        main.pipe(link, github)
        links = []
        for number, host in enumerate(hosts):
            url, token = token_of(main, up.data)
            links.append((url, token))
            wanted = ("--name", f"mini-{number + 1}", "--data", str(host.data), "--no-service")
            code, out, errors = host.run("host", "join", url, "-", *wanted, stdin=token)
            assert (code, f"joined {url} as mini-{number + 1}" in out) == (0, True), errors
            host.pipe(github, link)  # this host's own way to GitHub
            host.agent("--practice-url", f"http://127.0.0.1:{github}")
        made = Fleet(net, up, main, hosts, tuple(links))
        code, _, errors = main.run("host", "drain", "host-1", "--data", str(up.data))
        assert code == 0, errors
        made.kubectl(
            "scale", "runnerpool", "practice", "-n", names.RUNNERS_NAMESPACE, "--replicas=3"
        )
        until(
            lambda: all(made.listed()[f"mini-{n}"]["ready"] == "True" for n in (1, 2, 3)),
            what="three ready hosts",
        )
        yield made


def job(made: Fleet, script: str) -> str:
    queued = made.main.read("practice", "--data", str(made.up.data), "--no-wait", script)
    return str(queued)


def concluded(made: Fleet, number: str) -> str:
    port = json.loads((made.up.data / "ports.json").read_text())["github"]
    token = made.up.secrets["people_token"]
    done = subprocess.run(
        [
            *(*made.main.space.enter, "curl", "-sS"),
            *("-H", f"Authorization: Bearer {token}"),
            f"http://127.0.0.1:{port}/practice/jobs/{number}",
        ],
        capture_output=True,
        check=True,
    )
    return str(json.loads(done.stdout).get("conclusion") or "")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "seconds",
    [60, pytest.param(600, marks=pytest.mark.long)],
    ids=["a minute", "ten minutes"],
)
def test_a_job_survives_that_its_host_is_cut_off(seconds: int, absent: Absent) -> None:
    with directory() as folder, fleet(folder, absent) as made:
        number = job(made, f"sleep {seconds + 20}; echo survived")
        name = until(made.busy_host, what="a host with the job")
        index = int(name.removeprefix("mini-")) - 1
        made.net.cut(index)
        until(lambda: made.listed()[name]["ready"] == "Unknown", what="the silence to be noticed")
        _pace.wait(seconds - 40)
        assert made.busy_host() == name, "the Pod was evicted meanwhile"
        made.net.cut(index, back=True)
        until(lambda: made.listed()[name]["ready"] == "True", what="the host to be back")
        assert until(lambda: concluded(made, number), within=120) == "success"


@pytest.mark.timeout(400)
def test_hosts_are_drained_and_removed_and_tokens_are_used_once(absent: Absent) -> None:
    with directory() as folder, fleet(folder, absent) as made:
        data = ("--data", str(made.up.data))
        other = folder / "other"

        # A token that was used.
        url, used = made.links[0]
        join = ("--name", "mini-4", "--data", str(other), "--no-service")
        code, _, errors = made.hosts[1].run("host", "join", url, used, *join)
        assert (code, errors.strip()[-17:]) == (1, "(join-token-used)")

        # A token of another machine's authority: nothing is sent, so it is still good.
        url, token = token_of(made.main, made.up.data)
        wrong = token[:-64] + "0" * 64
        code, _, errors = made.hosts[1].run("host", "join", url, wrong, *join)
        assert (code, errors.strip()[-17:]) == (1, "(authority-wrong)")
        states = made.main.read("host", "token", "--list", *data)["items"]
        assert [each["state"] for each in states].count("valid") == 1

        # A drain waits for the running job.
        number = job(made, "sleep 8; echo done")
        name = until(made.busy_host, what="a host with the job")
        code, out, errors = made.main.run("host", "drain", name, "--timeout", "2m", *data)
        assert (code, out.splitlines()[-1]) == (0, f"{name} is drained"), errors
        assert concluded(made, number) == "success"
        assert (made.listed()[name]["cordoned"], made.listed()[name]["used"]) == (True, 0)

        # A removed host is out, and its agent cannot come back.
        code, _, errors = made.main.run("host", "remove", name, *data)
        assert code == 0, errors
        host = made.hosts[int(name.removeprefix("mini-")) - 1]
        until(lambda: "401 Unauthorized" in host.log, what="the refusal at the host")
        assert name not in made.listed()
        code, out, _ = made.main.run("host", "remove", name, *data)
        assert (code, "nothing to do" in out) == (0, True)
