"""The agent on this machine is found by its files, and the main machine is asked about it without changing anything."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.hosts.doctor.cases import facts
from tests.hosts.doctor.outputs_macos import JOB
from tests.hosts.doctor.test_doctor_inspections import HOLD
from tests.hosts.joining.joinsupport import Main, ShiftedClock, listening
from tests.hosts.joining.test_joining_tls import enroll, files_of
from tests.hosts.services.computer import PLATFORMS, Computer

from runyard.cli.doctoragent import agent_of, agent_root
from runyard.cli.doctorrun import with_agents
from runyard.cli.doctorservice import AgentService, agent_services
from runyard.cli.main import cli, run
from runyard.clock import Clock, RealClock
from runyard.embedded.lock import DirectoryLock
from runyard.hosts.doctor import inspections
from runyard.hosts.doctor.checks import checks_for
from runyard.hosts.doctor.plans.findings import Facts, Findings, Given, Output
from runyard.hosts.doctor.plans.hosting import Agent, Login, Reach
from runyard.hosts.doctor.plans.ids import CheckId
from runyard.hosts.doctor.plans.reasons import Found
from runyard.hosts.joining.accounts import CREDENTIAL_SECONDS, revoke
from runyard.hosts.joining.inventory import cordon
from runyard.hosts.joining.membership import MembershipFiles
from runyard.hosts.services.installing import install, uninstall
from runyard.http.tls import make_authority
from runyard.kube.kinds import NODES
from runyard.node.plans.values import Record
from runyard.node.records import Records
from runyard.vm.contract import VmSpec
from runyard.vm.tart.directory import TartDirectory

NAME = "mini-2"


Computers = tuple[Computer, ...]


@pytest.fixture
def computers(tmp_path: Path) -> Computers:
    folders = {kind: tmp_path / kind for kind in PLATFORMS}
    for folder in folders.values():
        folder.mkdir()
    return tuple(Computer(folder, kind) for kind, folder in folders.items())


def host(data: Path, **more: object) -> Facts:
    return facts("linux", agent_data=str(data), agents=(str(data),), **more)


async def examined(data: Path, clock: Clock, *, ask: bool = True) -> Agent:
    environ = {"PATH": str(data)}  # with no service manager
    known = host(data)
    found = await agent_of(known, environ, clock, home=data, services=(), ask=ask)
    assert found is not None
    return found


@contextlib.asynccontextmanager
async def joined(folder: Path, main: Main) -> AsyncIterator[tuple[Path, MembershipFiles]]:
    """A main machine that listens, and the directory of a host that has joined it."""
    await main.prepare()
    async with listening(main, folder / "main") as (url, _):
        data = folder / "agent"
        yield data, files_of(data, await enroll(url, await main.token(), NAME))


def credential_of(agent: Agent, now: float) -> Findings:
    check = next(each for each in checks_for("linux") if each.id is CheckId.CREDENTIAL)
    return check.judge(Given(facts=facts("linux", agent=agent, now=now)))


def test_a_host_that_may_use_its_main_machine_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        main = Main()
        async with joined(tmp_path, main) as (data, files):
            before = {each.name: each.read_bytes() for each in files.folder.iterdir()}
            found = await examined(data, main.clock)
            assert found.joined is not None
            assert (found.joined.reach, found.joined.login) == (Reach.REACHED, Login.ACCEPTED)
            assert (found.running, found.joined.drained) == (False, False)
            assert found.joined.expires is not None
            assert abs(found.joined.expires - main.clock.now() - CREDENTIAL_SECONDS) < 60
            assert found.joined.start.endswith(f"agent --joined --data {data} --listen 127.0.0.1:0")
            assert files.credential() not in repr(found)
            [finding] = credential_of(found, main.clock.now())
            assert finding.reason.code is Found.CREDENTIAL_GOOD
            after = {each.name: each.read_bytes() for each in files.folder.iterdir()}
            assert before == after  # nothing was renewed

    asyncio.run(test())


def test_a_host_that_was_removed_or_drained_looks_well(tmp_path: Path) -> None:
    async def test() -> None:
        main = Main()
        async with joined(tmp_path, main) as (data, files):
            await main.kube.create(NODES, {"metadata": {"name": NAME}})
            await cordon(main.kube, NAME, cordoned=True)
            found = await examined(data, main.clock)
            assert found.joined is not None
            assert (found.joined.login, found.joined.drained) == (Login.ACCEPTED, True)
            await revoke(main.kube, NAME)
            found = await examined(data, main.clock)
            assert found.joined is not None
            assert (found.joined.reach, found.joined.login) == (Reach.REACHED, Login.REFUSED)
            files.token.unlink()
            found = await examined(data, main.clock)
            assert found.joined is not None
            assert (found.joined.stored, found.joined.login) == (False, Login.UNASKED)

    asyncio.run(test())


def test_a_main_machine_that_is_away_or_replaced_gets_the_credential(tmp_path: Path) -> None:
    async def test() -> None:
        main = Main()
        async with joined(tmp_path, main) as (data, _):
            asked = len(main.server.requests)
        found = await examined(data, main.clock)
        assert found.joined is not None
        assert (found.joined.reach, found.joined.login) == (Reach.AWAY, Login.UNASKED)
        port = int(found.joined.url.rpartition(":")[2])
        impostor = Main(make_authority(now=main.clock.now()))
        received: list[str] = []

        async def handler(request):
            received.append(request.path)
            return await impostor.front.handle(request)

        async with listening(impostor, tmp_path / "other", handler=handler, port=port):
            found = await examined(data, main.clock)
        assert found.joined is not None
        assert (found.joined.reach, found.joined.login) == (Reach.OTHER, Login.UNASKED)
        assert (received, len(main.server.requests)) == ([], asked)

    asyncio.run(test())


def test_a_clock_that_differs_from_the_main_machines_is_not_noticed(tmp_path: Path) -> None:
    async def test() -> None:
        main, own = Main(), ShiftedClock()
        async with joined(tmp_path, main) as (data, _):
            for ahead in (0.0, -3600.0, 120.0):
                own.ahead = ahead
                found = await examined(data, own)
                assert found.joined is not None and found.joined.skew is not None
                assert abs(found.joined.skew - ahead) < 5

    asyncio.run(test())


def test_a_certificate_of_another_time_is_taken_for_another_machine(tmp_path: Path) -> None:
    async def test() -> None:
        main = Main()
        async with joined(tmp_path, main) as (data, files):
            port = int(files.read().url.rpartition(":")[2])
        shutil.rmtree(tmp_path / "main" / "tls" / "hosts")
        main.clock.ahead = 86400.0 * 10
        async with listening(main, tmp_path / "main", port=port):
            found = await examined(data, RealClock())
        assert found.joined is not None
        assert found.joined.reach is Reach.UNDATED

    asyncio.run(test())


def test_a_check_of_something_else_asks_the_main_machine(tmp_path: Path) -> None:
    async def test() -> None:
        main = Main()
        async with joined(tmp_path, main) as (data, _):
            found = await examined(data, main.clock, ask=False)
            assert found.joined is not None
            assert (found.joined.reach, found.joined.login) == (Reach.AWAY, Login.UNASKED)

    asyncio.run(test())


def test_damaged_files_of_a_host_are_taken_for_none(tmp_path: Path) -> None:
    async def test() -> None:
        main = Main()
        async with joined(tmp_path, main) as (data, files):
            (files.folder / "membership.json").write_text("{")
            assert (await examined(data, main.clock)).damaged

    asyncio.run(test())


def test_an_agent_that_has_left_pods_is_forgotten(tmp_path: Path) -> None:
    found = asyncio.run(examined(tmp_path, RealClock()))
    assert (found.left, found.used) == (False, False)
    records = Records(tmp_path / "records")
    records.load()
    records.write(Record(uid="u-1", namespace="n", name="p", vm=JOB, image="i", recorded_at=1.0))
    found = asyncio.run(examined(tmp_path, RealClock()))
    assert (found.left, found.used) == (True, True)


# ── the service ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(PLATFORMS))
def test_the_service_of_the_agent_is_misread(kind: str, tmp_path: Path) -> None:
    computer = Computer(tmp_path, kind)

    async def test() -> None:
        main = Main()
        async with joined(tmp_path, main) as (data, _):
            known = facts(computer.platform, agent_data=str(data), uid=501)
            manager = computer.manager()

            async def seen() -> Agent:
                found = await agent_of(
                    known,
                    computer.environ,
                    computer.clock,
                    home=computer.home,
                    services=agent_services(computer.home, computer.environ),
                    ask=False,
                )
                assert found is not None
                assert found.service is not None
                return found

            found = await seen()
            assert found.service is not None
            assert (found.service.installed, found.service.pid) == (False, 0)
            arguments = ("agent", "--joined", "--data", str(data), "--listen", "127.0.0.1:0")
            service = computer.service(*arguments, name="agent-0a1b")
            done = await install(service, manager, clock=computer.clock)
            found = await seen()
            assert found.service is not None
            assert (found.service.installed, found.service.pid) == (True, done.pid)
            assert (found.service.name, found.service.log) == (done.name, service.log)
            assert rooted(computer.home, computer.environ) == data
            await uninstall(service.name, manager)
            assert rooted(computer.home, computer.environ) != data

    asyncio.run(test())


def rooted(home: Path, environ: dict[str, str], given: Path | None = None) -> Path:
    return agent_root(given, environ, home, agent_services(home, environ))


def test_an_agent_with_another_directory_is_looked_for_in_the_usual_one(tmp_path: Path) -> None:
    usual = tmp_path / ".local" / "share" / "runyard-agent"
    elsewhere = {"RUNYARD_AGENT_DATA": "/srv/agent"}
    assert rooted(tmp_path, {}) == usual
    assert rooted(tmp_path, elsewhere) == Path("/srv/agent")
    assert rooted(tmp_path, elsewhere, Path("/x")) == Path("/x")
    used = [AgentService("agent-1", Path("/srv/1"), "/log"), AgentService("agent", usual, "/log")]
    assert agent_root(None, {}, tmp_path, used[:1]) == Path("/srv/1")
    assert agent_root(None, {}, tmp_path, used) == usual


def test_a_directory_of_a_service_is_read_with_the_quotes_of_its_file(computers: Computers) -> None:
    for computer in computers:
        data = computer.home / 'an "odd" $name 100% \\ here'
        service = computer.service("agent", "--data", str(data), name="agent")
        path = computer.manager().path("agent")
        path.parent.mkdir(parents=True)
        path.write_bytes(computer.manager().render(service))
        [found] = agent_services(computer.home, computer.environ)
        assert (found.name, found.data, found.log) == ("agent", data, service.log)
        path.write_bytes(b"\xff not such a file")
        assert agent_services(computer.home, computer.environ) == ()


def test_the_vms_of_a_service_with_another_tart_home_are_not_seen(computers: Computers) -> None:
    mac = next(each for each in computers if each.platform == "darwin")
    data, tart = mac.home / "agent", mac.home / "tart"
    service = mac.service(
        "agent", "--data", str(data), name="agent", environment={"TART_HOME": str(tart)}
    )
    path = mac.manager().path("agent")
    path.parent.mkdir(parents=True)
    path.write_bytes(mac.manager().render(service))
    services = agent_services(mac.home, mac.environ)
    found = with_agents(facts("darwin"), mac.environ, data, services)
    assert (found.tart_home, found.tart_disk) == (str(tart), str(mac.home))
    assert found.agents == (str(data), str(mac.home / ".local" / "share" / "runyard-agent"))
    own = {**mac.environ, "TART_HOME": "/Users/ci/.tart"}
    assert with_agents(facts("darwin"), own, data, services).tart_home == "/Users/ci/.tart"


# ── its VMs ─────────────────────────────────────────────────────────────────────────────────────────


def record(home: Path) -> None:
    """The record of a VM, made by the driver itself."""
    vms = home / "tart" / "vms"
    vms.mkdir(parents=True)
    spec = VmSpec(name=JOB, image="registry.example/r@sha256:00", cpu_milli=0, memory_mb=0)
    TartDirectory(vms / JOB).stage(spec)


@pytest.mark.parametrize("owner", ["agent", "fleet", "none"])
def test_a_job_of_this_machine_is_taken_for_a_stranger(owner: str, tmp_path: Path) -> None:
    config = tmp_path / "tart" / "vms" / JOB / "config.json"
    config.parent.mkdir(parents=True)
    config.write_text("{}")
    homes = {"agent": tmp_path / "agent" / "vm", "fleet": tmp_path / "up" / "hosts" / "h-1" / "vm"}
    if owner in homes:
        record(homes[owner])
    known = facts(
        "darwin",
        tart_home=str(tmp_path / "tart"),
        agents=(str(tmp_path / "agent"),),
        data=str(tmp_path / "up"),
    )
    argv = [sys.executable, "-S", "-c", HOLD, str(config)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        check = next(each for each in checks_for("darwin") if each.id is CheckId.VM_SLOTS)
        names = ("tart-home", "own-vms")
        outputs = [
            Output(source=each, value=inspections.INSPECTIONS[each](known)) for each in names
        ]
        holder.stdin.close()
    [finding] = check.judge(Given(facts=known, outputs=tuple(outputs)))
    expected = Found.SLOTS_OWN if owner in homes else Found.SLOTS_UNRECORDED
    assert finding.reason.code is expected
    assert not any(each.command for each in finding.fixes)


def test_records_that_cannot_be_read_are_taken_for_none(tmp_path: Path) -> None:
    record(tmp_path / "vm")
    unreadable = tmp_path / "vm" / "tart" / "vms" / JOB / "spec.json"
    unreadable.unlink()
    unreadable.symlink_to(unreadable)
    with pytest.raises(OSError):
        inspections.own_vms(host(tmp_path))


def test_a_vm_that_is_being_made_or_removed_fails_the_inspection(tmp_path: Path) -> None:
    record(tmp_path / "vm")
    for name in (".new-x", ".gone-x", "empty"):
        (tmp_path / "vm" / "tart" / "vms" / name).mkdir()
    assert inspections.own_vms(host(tmp_path)).names == (JOB,)


# ── the command ─────────────────────────────────────────────────────────────────────────────────────


def test_a_mac_with_an_agent_is_sent_to_start_a_second_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [each for each in os.environ if each.startswith(("RUNYARD_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    data = tmp_path / ".local" / "share" / "runyard-agent"
    data.mkdir(parents=True)
    lock = DirectoryLock(data)
    lock.acquire()
    with pytest.raises(SystemExit) as ended:
        run(cli, name="runyard", argv=["doctor", "--only", "agent", "--json"])
    lock.release()
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert [each["reason"] for each in found["findings"]] == ["agent-of-cluster"]
    assert found["next"]["reason"] == "list-nodes"


def test_a_host_without_the_packages_to_read_its_files_ends_the_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "join").mkdir()
    (tmp_path / "join" / "membership.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "runyard.hosts.joining.membership", None)
    argv = ["doctor", "--only", "agent", "--json", "--agent-data", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        run(cli, name="runyard", argv=argv)
    assert not ended.value.code
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert finding["reason"] == "agent-unasked"
