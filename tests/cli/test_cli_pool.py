"""`runyard pool` against the embedded Kubernetes API over HTTP: what is sent, kept, printed, and how it ends."""

import asyncio
import json
import random
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.cli.pool_harness import BOX, MAC, SPACE, Fleet, play, stranger
from tests.cli.server_harness import run_here

from runyard.cli import poolreport, poolrun, screen
from runyard.cli.poolreport import Read, report
from runyard.cli.poolscreen import pool_page, pool_table
from runyard.clock import RealClock
from runyard.embedded.kube.kubeconfig import render
from runyard.embedded.lock import DirectoryLock
from runyard.kube.errors import NotFound
from runyard.kube.events import Recorder
from runyard.kube.kinds import PODS, RUNNER_POOLS
from runyard.kube.objects import Meta, Pod, RunnerPool
from runyard.wire import names

Scenario = Callable[[Fleet], Awaitable[None]]
CREATE = ("pool", "create", "mac", "--image", "vm:1", "--replicas", "2")


@pytest.fixture(autouse=True)
def nothing_else_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster and no machine of the tester's own."""
    for name in ("KUBECONFIG", "RUNYARD_DATA", "TUIST_RUNNERS_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_a_new_pool_takes_what_is_not_given_from_the_hosts(tmp_path: Path) -> None:
    async def scenario(made: Fleet) -> None:
        await made.host("mini-1", MAC)
        code, out, err = await made.command(*CREATE)
        assert (code, err) == (0, "")
        assert "runs-on: [self-hosted, macOS, ARM64, mac]" in out
        sent = await made.spec("mac")
        assert (sent["fleetSelector"], sent["os"], sent["podCPUMilli"], sent["podMemoryMB"]) == (
            "minis",
            "darwin",
            5000,
            8192,
        )
        assert "runtimeClass" not in sent and sent["dispatchLabel"] == "mac"

    play(scenario, tmp_path)


def test_every_flag_reaches_the_pool(tmp_path: Path) -> None:
    async def scenario(made: Fleet) -> None:
        await made.host("box-1", BOX)
        code, _, err = await made.command(
            *("pool", "create", "ci", "--image", "ci:3", "--replicas", "1"),
            *("--labels", "self-hosted,Linux,ci", "--dispatch-label", "ci", "--fleet", "local"),
            *("--os", "linux", "--runtime", "process", "--cpu", "1.5", "--memory", "2Gi"),
            *("--max-concurrent-percent", "50", "--max-starting", "3"),
            *("--start-timeout", "600", "--idle-timeout", "30"),
        )
        assert (code, err) == (0, "")
        assert await made.spec("ci") == {
            "image": "ci:3",
            "replicas": 1,
            "runnerLabels": ["self-hosted", "Linux"],  # the dispatch label is added by the server
            "dispatchLabel": "ci",
            "fleetSelector": "local",
            "os": "linux",
            "runtimeClass": "runyard-process",
            "podCPUMilli": 1500,
            "podMemoryMB": 2048,
            "idleTimeoutSeconds": 30,
            "provisioning": {"maxConcurrentPerFleetSelector": 3, "startTimeoutSeconds": 600},
            "rollout": {"maxConcurrentPercent": 50},
        }

    play(scenario, tmp_path)


def test_the_same_command_again_changes_nothing_and_another_one_only_with_replace(
    tmp_path: Path,
) -> None:
    async def scenario(made: Fleet) -> None:
        await made.host("mini-1", MAC)
        assert (await made.command(*CREATE))[0] == 0
        before = await made.kube.get(RUNNER_POOLS, "mac", namespace=SPACE)
        code, out, _ = await made.command(*CREATE)
        assert code == 0 and out.startswith("pool mac unchanged")
        code, out, err = await made.command("pool", "create", "mac", "--image", "vm:2")
        assert (code, out) == (1, "")
        assert "image vm:1 → vm:2" in err and "--replace" in err and err.count("\n") == 1
        assert await made.kube.get(RUNNER_POOLS, "mac", namespace=SPACE) == before
        code, out, _ = await made.command("pool", "create", "mac", "--image", "vm:2", "--replace")
        assert code == 0 and out.startswith("pool mac changed: image vm:1 → vm:2")
        assert await made.spec("mac") == before["spec"] | {"image": "vm:2"}

    play(scenario, tmp_path)


def test_a_change_of_somebody_else_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(made: Fleet) -> None:
        await made.host("mini-1", MAC)
        assert (await made.command(*CREATE))[0] == 0
        real = poolreport.read_pools

        async def read_and_change(kube: Any, namespace: str) -> tuple[RunnerPool, ...]:
            found = await real(kube, namespace)
            await kube.patch(RUNNER_POOLS, "mac", {"spec": {"replicas": 9}}, namespace=namespace)
            return found

        monkeypatch.setattr(poolrun, "read_pools", read_and_change)
        code, _, err = await made.command("pool", "create", "mac", "--image", "vm:2", "--replace")
        assert code == 1 and "changed meanwhile" in err
        assert (await made.spec("mac"))["image"] == "vm:1"

    play(scenario, tmp_path)


def test_two_pools_never_share_a_dispatch_label(tmp_path: Path) -> None:
    async def scenario(made: Fleet) -> None:
        await made.host("mini-1", MAC)
        assert (await made.command(*CREATE))[0] == 0
        other = ("pool", "create", "mac2", "--image", "vm:1", "--dispatch-label")
        code, _, err = await made.command(*other, "MAC")
        assert code == 1 and "the pool mac already has the dispatch label" in err
        assert (await made.command(*other, "mac2"))[0] == 0

    play(scenario, tmp_path)


@pytest.mark.parametrize("format", ["yaml", "json"])
def test_a_dry_run_prints_what_is_sent_and_sends_nothing(tmp_path: Path, format: str) -> None:
    async def scenario(made: Fleet) -> None:
        await made.host("mini-1", MAC)
        code, out, err = await made.command(*CREATE, "--dry-run", "-o", format)
        assert code == 0 and "Nothing was sent" in err
        printed = yaml.safe_load(out) if format == "yaml" else json.loads(out)
        code, out, _ = await made.command("pool", "list", "-o", "json")
        assert (code, json.loads(out)) == (0, {"items": []})
        body = {"metadata": printed["metadata"], "spec": printed["spec"]}
        assert printed["kind"] == "RunnerPool" and printed["apiVersion"] == "tuist.dev/v1alpha1"
        await made.kube.create(RUNNER_POOLS, body, namespace=SPACE)  # it is a whole, valid pool
        assert (await made.command(*CREATE))[1].startswith("pool mac unchanged")

    play(scenario, tmp_path)


def test_a_dry_run_needs_no_cluster_if_nothing_has_to_be_taken_from_it() -> None:
    given = ("pool", "create", "ci", "--image", "ci:3", "--dry-run")
    code, out, err = run_here(*given, "--fleet", "local", "--os", "linux")
    assert code == 0 and yaml.safe_load(out)["spec"]["fleetSelector"] == "local"
    assert "not checked" in err
    code, out, err = run_here(*given)
    assert (code, out) == (2, "") and "Give --fleet" in err


BAD = {
    "a name of capitals": (("create", "Mac", "--image", "v"), "not a pool's name"),
    "a name that is too long": (("create", "m" * 64, "--image", "v"), "not a pool's name"),
    "no image": (("create", "new"), "needs an image"),
    "an image with a space": (("create", "m", "--image", "a b"), "--image"),
    "a label that is none": (("create", "m", "--image", "v", "--labels", "a,,b"), "--labels"),
    "replicas below zero": (("create", "m", "--image", "v", "--replicas", "-1"), "--replicas"),
    "more than a hundred percent": (
        ("create", "m", "--image", "v", "--max-concurrent-percent", "101"),
        "--max-concurrent-percent",
    ),
    "memory without a unit": (("create", "m", "--image", "v", "--memory", "4"), "14Gi"),
    "no cores": (("create", "m", "--image", "v", "--cpu", "0"), "0.5"),
    "two runtimes": (
        ("create", "m", "--image", "v", "--runtime", "tart", "--runtime-class", "kata-qemu"),
        "give one of them",
    ),
    "a group that no host is of": (("create", "m", "--image", "v", "--fleet", "x"), "Give --os"),
    "a group that no label can name": (
        ("create", "m", "--image", "v", "--os", "linux", "--fleet", "löcal", "--dry-run"),
        "label's value",
    ),
    "no group": (("create", "m", "--image", "v", "--os", "linux", "--fleet", ""), "--fleet"),
    "a group with a dash at its end": (("create", "m", "--image", "v", "--fleet", "x-"), "--fleet"),
    "a runtime that no class can name": (
        ("create", "m", "--image", "v", "--runtime", "Tárt", "--dry-run"),
        "--runtime",
    ),
    "no pool of that name": (("show", "nowhere"), "has no pool nowhere"),
}


def test_what_makes_no_sense_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    async def scenario(made: Fleet) -> None:
        await made.host("mini-1", MAC)
        for argv, says in BAD.values():
            code, out, err = await made.command("pool", *argv)
            assert (code, out) == (1 if argv[0] == "show" else 2, ""), argv
            assert says in err and err.count("\n") == 1, err
        assert json.loads((await made.command("pool", "list", "-o", "json"))[1])["items"] == []

    play(scenario, tmp_path)


def test_hosts_that_differ_have_to_be_chosen_from(tmp_path: Path) -> None:
    async def scenario(made: Fleet) -> None:
        await made.host("mini-1", MAC)
        await made.host("box-1", BOX)
        code, _, err = await made.command(*CREATE)
        assert code == 2 and "local, minis" in err and "--fleet" in err
        assert (await made.command(*CREATE, "--os", "linux"))[0] == 0
        sent = await made.spec("mac")
        assert (sent["fleetSelector"], sent["runtimeClass"]) == ("local", "runyard-process")

    play(scenario, tmp_path)


WARNINGS: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "another group": ({}, ("--fleet", "maxis", "--os", "darwin"), "tuist.dev/fleet=maxis"),
    "another runtime": ({}, ("--runtime", "qemu"), "tuist.dev/runtime=qemu"),
    "too large": ({}, ("--cpu", "12"), "none has 12 cores"),
    "cordoned": ({"spec": {"unschedulable": True}}, (), "mini-1 cordoned"),
    "not ready": ({"ready": "False"}, (), "not ready"),
    "more runners than slots": ({}, ("--replicas", "3"), "2 slots, and their pools ask for 3"),
    "larger than a slot's share": (
        {},
        ("--replicas", "2", "--cpu", "6"),
        "1 of its 2 runners has room: each has 6 cores and 8192 MiB. On every slot fit --cpu 5 --memory 8192Mi",
    ),
}


@pytest.mark.parametrize(("host", "flags", "says"), WARNINGS.values(), ids=WARNINGS)
def test_a_pool_that_no_host_can_run_is_created_with_a_warning(
    tmp_path: Path, host: dict[str, Any], flags: tuple[str, ...], says: str
) -> None:
    async def scenario(made: Fleet) -> None:
        await made.host("mini-1", MAC, **host)
        code, _, err = await made.command(*CREATE, *flags)
        assert code == 0 and says in err and err.startswith("runyard: warning: ")

    play(scenario, tmp_path)


def test_the_answer_of_the_api_is_shown_in_its_own_words(tmp_path: Path) -> None:
    async def scenario(made: Fleet) -> None:
        await made.host("mini-1", MAC)
        token = await stranger(made)
        url = yaml.safe_load(made.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        made.kubeconfig.write_text(render(url, token=token, namespace=SPACE))
        code, out, err = await made.command(*CREATE)
        assert (code, out) == (1, "") and err.count("\n") == 1
        assert 'cannot list resource "runnerpools"' in err and "Use a kubeconfig" in err
        assert token not in err

    play(scenario, tmp_path)


def test_a_cluster_without_the_definition_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(made: Fleet) -> None:
        async def none(*_: object) -> tuple[RunnerPool, ...]:
            raise NotFound(404, "NotFound", "GET /apis: the server could not find it")

        monkeypatch.setattr(poolrun, "read_pools", none)
        for argv in (CREATE, ("pool", "list")):
            code, _, err = await made.command(*argv)
            assert code == 1 and "runyard manifests | kubectl apply" in err

    play(scenario, tmp_path)


async def busy_pool(made: Fleet) -> None:
    await made.host("mini-1", MAC)
    assert (await made.command(*CREATE))[0] == 0
    await made.runner("mac", "mac-runner-1", host="mini-1")
    await made.runner("mac", "mac-runner-2", busy=True, host="mini-1", image="vm:0")


def test_list_and_show_count_what_the_runners_do(tmp_path: Path) -> None:
    async def scenario(made: Fleet) -> None:
        await busy_pool(made)
        code, out, _ = await made.command("pool", "list")
        head, row = out.splitlines()
        assert code == 0 and head.split()[:5] == ["NAME", "DESIRED", "READY", "BUSY", "STARTING"]
        assert row.split()[:5] == ["mac", "2", "1", "1", "0"]
        code, out, _ = await made.command("pool", "show", "mac", "-o", "json")
        found = json.loads(out)
        counts = {key: found[key] for key in ("desired", "ready", "busy", "starting", "rolling")}
        assert counts == {"desired": 2, "ready": 1, "busy": 1, "starting": 0, "rolling": 1}
        assert found["runs_on"] == ["self-hosted", "macOS", "ARM64", "mac"]
        assert found["hosts"] == [{"name": "mini-1", "runners": 2, "able": True}]
        assert yaml.safe_load((await made.command("pool", "show", "mac", "-o", "yaml"))[1]) == found

    play(scenario, tmp_path)


def test_show_prints_conditions_and_events_with_codes_and_sentences(tmp_path: Path) -> None:
    async def scenario(made: Fleet) -> None:
        await busy_pool(made)
        pool = await made.kube.get_as(RUNNER_POOLS, "mac", RunnerPool, namespace=SPACE)
        condition = {
            "type": names.POOL_FILLED,
            "status": "False",
            "reason": names.REASON_BACKOFF,
            "message": "1 of 2 runners is missing; the next try is in 4 s",
        }
        status = {"status": {"conditions": [condition]}}
        await made.kube.patch(RUNNER_POOLS, "mac", status, namespace=SPACE, subresource="status")
        recorder = Recorder(made.kube, component="test", clock=RealClock(), rng=random.Random(3))
        for uid, text in ((pool.metadata.uid, "created runner mac-runner-1"), ("earlier", "stale")):
            await recorder.latest(
                RUNNER_POOLS,
                Meta("mac", SPACE, uid),
                type="Normal",
                reason="ReplicasMissing",
                message=text,
                count=2,
            )
        out = (await made.command("pool", "show", "mac"))[1]
        assert "Filled: no, Backoff. 1 of 2 runners is missing" in out
        assert "runyard explain pool mac" in out
        assert "ReplicasMissing (2 times): created runner mac-runner-1" in out
        assert "stale" not in out  # of an earlier pool with this name

    play(scenario, tmp_path)


def test_delete_says_what_happens_to_the_jobs_and_can_be_repeated(tmp_path: Path) -> None:
    async def scenario(made: Fleet) -> None:
        await busy_pool(made)
        held = {"metadata": {"finalizers": [names.POOL_DRAIN_FINALIZER]}}
        await made.kube.patch(RUNNER_POOLS, "mac", held, namespace=SPACE)
        code, _, err = await made.command("pool", "delete", "mac")
        assert code == 2 and "Give --yes" in err  # nobody can be asked here
        effect = "1 idle runner removed at once, 1 busy, whose job finishes first"
        code, out, _ = await made.command("pool", "delete", "mac", "--yes")
        assert (code, out) == (0, f"pool mac is being deleted: {effect}\n")
        code, out, _ = await made.command("pool", "delete", "mac", "--yes")
        assert (code, out) == (0, f"pool mac is being deleted already: {effect}\n")
        assert len((await made.kube.list(PODS, namespace=SPACE)).items) == 2  # the operator's work
        code, _, err = await made.command(*CREATE)
        assert code == 1 and "is being deleted" in err
        code, out, _ = await made.command("pool", "delete", "nowhere", "--yes")
        assert (code, out) == (0, "pool nowhere is not there\n")

    play(scenario, tmp_path)


@pytest.mark.parametrize(("answer", "left"), [("n\n", True), ("y\n", False)])
def test_delete_asks_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, *, left: bool
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    shown: list[str] = []

    def answered(prompt: str) -> str:
        shown.append(prompt)
        return answer

    monkeypatch.setattr("click.termui.visible_prompt_func", answered)

    async def scenario(made: Fleet) -> None:
        await made.host("mini-1", MAC)
        await made.command(*CREATE)
        code, _, err = await made.command("pool", "delete", "mac")
        assert code == (130 if left else 0)
        assert "no job is running?" in err + "".join(shown)
        pools = (await made.kube.list(RUNNER_POOLS, namespace=SPACE)).items
        assert bool(pools) == left

    play(scenario, tmp_path)


# ── where it looks ──────────────────────────────────────────────────────────────────────────────────


def test_a_machine_is_found_by_its_directory_and_only_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(made: Fleet) -> None:
        data = tmp_path / "data"
        data.mkdir()
        (data / "kubeconfig").write_text(made.kubeconfig.read_text())
        code, _, err = await asyncio.to_thread(run_here, "pool", "list", "--data", str(data))
        assert code == 2 and "does not run" in err and f"runyard up --data {data}" in err
        lock = DirectoryLock(data)
        await asyncio.to_thread(lock.acquire)
        try:
            code, _, err = await asyncio.to_thread(run_here, "pool", "list", "--data", str(data))
            assert code == 0, err
            # The one on the command line wins over the environment's cluster.
            monkeypatch.setenv("KUBECONFIG", "/nowhere")
            assert (await asyncio.to_thread(run_here, "pool", "list", "--data", str(data)))[0] == 0
            monkeypatch.setenv("RUNYARD_DATA", str(data))
            assert (await asyncio.to_thread(run_here, "pool", "list"))[0] == 0
            code, _, err = await made.command("pool", "list", "--data", str(data))
            assert code == 2 and "two fleets" in err
            assert (await made.command("pool", "list"))[0] == 0
        finally:
            lock.release()

    play(scenario, tmp_path)


def test_a_fleet_that_nobody_named_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(made: Fleet) -> None:
        home = tmp_path / "home" / ".kube"
        home.mkdir(parents=True)
        (home / "config").write_text(made.kubeconfig.read_text())
        (home / "config").chmod(stat.S_IRUSR)
        code, _, err = await asyncio.to_thread(run_here, "pool", "list")
        assert code == 2 and "--kubeconfig" in err
        monkeypatch.setenv("KUBECONFIG", str(home / "config"))
        assert (await asyncio.to_thread(run_here, "pool", "list"))[0] == 0

    play(scenario, tmp_path)


def test_an_api_that_does_not_respond_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(render("http://127.0.0.1:1", token="a-secret-of-the-test", namespace=SPACE))
    code, out, err = run_here("pool", "list", "--kubeconfig", str(path))
    assert (code, out) == (2, "") and "does not respond" in err and "a-secret" not in err


# ── the screen ──────────────────────────────────────────────────────────────────────────────────────

ESCAPE = "\x1b[2Jmine"


def sample() -> tuple[RunnerPool, Read]:
    spec = {
        "image": "registry.example/fleet/macos-runner@sha256:8f3c1ad07e55b1c2d3e4f5a6b7c8d9e0",
        "fleetSelector": "minis",
        "dispatchLabel": "xcode 26",
        "runnerLabels": ["self-hosted", "macOS"],
    }
    condition = {"type": "Filled", "status": "False", "reason": "Backoff", "message": ESCAPE}
    pool = msgspec.convert(
        {
            "metadata": {"name": "mac-xcode-26", "namespace": SPACE},
            "spec": spec,
            "status": {"conditions": [condition]},
        },
        RunnerPool,
    )
    labels = {names.RUNNER_POOL: "mac-xcode-26", names.RUNNER: "true"}
    return pool, Read(
        pods=(Pod(metadata=Meta("p", labels=labels, uid="u")),), unread=("hosts: no",)
    )


@pytest.mark.parametrize("width", [80, 40])
def test_a_narrow_terminal_shows_everything_and_nothing_that_it_would_interpret(width: int) -> None:
    found = report(*sample())
    lines = [
        *pool_page(found, now=0.0, width=width),
        *pool_table((found,), wide=True, now=0.0, width=width),
    ]
    assert max(map(len, lines)) <= width
    whole = "".join("".join(lines).split())
    for words in (found.image, 'runs-on:[self-hosted,macOS,"xcode26"]', "Backoff", "notread:hosts"):
        assert words in whole, words
    assert "\x1b" not in whole


def test_a_table_whose_columns_fit_stays_a_table() -> None:
    rows = [("a", "1"), ("bb", "22")]
    assert screen.table(("name", "n"), rows, width=20) == ["NAME   N", "a      1", "bb     22"]
    assert screen.table(("name", "n"), rows, width=8) == [
        "name a",
        "  n: 1",
        "name bb",
        "  n: 22",
    ]
