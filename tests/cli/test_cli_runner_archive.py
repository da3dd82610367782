"""Every command that runs a host takes the runner's archive as a path or a URL, and refuses one it cannot verify."""

import asyncio
import hashlib
from pathlib import Path

import click
import msgspec
import pytest
from aiohttp import web
from tests.standins.tart.helper import archive as tar_of
from tests.vm.oci.fake_registry import FakeServer

from runyard.cli import agentserve
from runyard.cli.agent import agent
from runyard.cli.main import cli, run
from runyard.cli.options import BadSetting
from runyard.cli.tart_kubelet import tart_kubelet
from runyard.cli.uprun import UpFlags, chosen_driver
from runyard.clock import RealClock
from runyard.embedded.up import archives, images
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.machine import Options, RealGitHub
from runyard.vm.archives import Archive
from runyard.vm.registry import Wanted

URL = "https://releases.test/runner.tar.gz"
SHA = "0" * 64
BAD = {
    "a URL without a digest": (["{}", URL], "needs the archive's SHA-256"),
    "half a digest": (["{}", URL, "--runner-sha256", "abc"], "is not a SHA-256"),
    "a digest of nothing": (["--runner-sha256", SHA], "Give that too"),
    "a password": (["{}", f"https://me:hush@h/r.tgz?{SHA}", "--runner-sha256", SHA], "a password"),
}
HOSTS = {"tart-kubelet": ["tart-kubelet"], "agent": ["runyard", "agent", "--node-name", "n"]}


@pytest.mark.parametrize(("argv", "words"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("command", HOSTS)
def test_a_host_refuses_an_archive_that_it_cannot_verify(
    command: str, argv: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *begin = HOSTS[command]
    given = [*begin, "--data", str(tmp_path / "data"), "--driver", "tart", "--node-ip", "127.0.0.1"]
    given += [each.format("--runner-archive") for each in argv]
    tree = tart_kubelet if name == "tart-kubelet" else cli
    assert run(tree, name=name, argv=given) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert words in said and "hush" not in said and "--runner-sha256" in said


def up_flags(runner: str, sha256: str = "") -> UpFlags:
    return UpFlags(
        data=None,
        hosts=1,
        listen="127.0.0.1:0",
        joining=False,
        demo=False,
        runner=runner,
        runner_sha256=sha256,
        github=None,
        pull=True,
        runner_group=1,
        driver="tart",
        tart="/bin/true",
    )


@pytest.mark.parametrize(("argv", "words"), BAD.values(), ids=BAD)
def test_up_refuses_an_archive_that_it_cannot_verify(argv: list[str], words: str) -> None:
    given = dict(zip(argv[::2], argv[1::2], strict=True))
    with pytest.raises(BadSetting, match=words):
        chosen_driver(up_flags(given.get("{}", ""), given.get("--runner-sha256", "")))


def test_processes_need_a_directory_and_not_a_url() -> None:
    flags = msgspec.structs.replace(up_flags(URL, SHA), driver="process")
    with pytest.raises(BadSetting, match="the driver process needs a directory"):
        chosen_driver(flags)


@pytest.mark.parametrize("command", [agent, tart_kubelet], ids=["agent", "tart-kubelet"])
def test_a_relative_path_means_the_same_file_wherever_the_host_runs(
    command: click.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runner.tgz").touch()
    with command.make_context("x", ["--runner-archive", "runner.tgz"]) as context:
        assert context.params["runner_archive"] == str(tmp_path / "runner.tgz")
    with command.make_context("x", ["--runner-archive", URL]) as context:
        assert context.params["runner_archive"] == URL


def test_hosts_and_up_keep_a_download_in_their_data_directory(tmp_path: Path) -> None:
    data = tar_of({"run.sh": "exit 0"})
    sha256 = hashlib.sha256(data).hexdigest()

    async def respond(request: web.Request) -> web.Response:
        return web.Response(body=data)

    async def main() -> None:
        async with FakeServer() as server:
            server.override = respond
            archive = Archive(source=f"{server.url}/runner.tar", sha256=sha256)
            plan = agentserve.HostPlan(
                node="n",
                data=tmp_path / "host",
                kubeconfig="",
                wanted=Wanted(home=tmp_path / "vm"),
                settings=lambda _: pytest.fail("no driver is opened"),
                archive=archive,
            )
            found = Path(await agentserve._provided(plan, RealClock()))
            assert found == tmp_path / "host" / "runner-archives" / f"{sha256}.tar"
            github = RealGitHub(url="https://github.test")
            options = Options(data=tmp_path / "up", driver="tart", github=github, archive=archive)
            for asked in (2, 2):  # the second start asks nobody
                path = await archives.prepare(options, clock=RealClock(), report=print)
                assert path is not None and path.read_bytes() == data
                assert path.parent == tmp_path / "up" / "runner-archives"
                assert len(server.seen) == asked

    asyncio.run(main())


def test_the_practice_archive_of_each_start_is_the_same_file(tmp_path: Path) -> None:
    layouts = Layout(tmp_path / "one"), Layout(tmp_path / "another")
    for layout in layouts:
        layout.images.mkdir(parents=True)
        images.build_archive(layout)
    one, another = (images.practice_archive(each).read_bytes() for each in layouts)
    assert one == another  # a host keeps what it was given by its digest
