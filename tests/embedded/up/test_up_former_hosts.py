"""A start with fewer hosts than an earlier one leaves none of the others behind, neither as a Node nor as a runner."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.embedded.kube.coresupport import Harness, play
from tests.embedded.up.upsupport import HAS_PROC, PODS, Up, directory, until

from runyard.clock import RealClock
from runyard.embedded.up import former_hosts
from runyard.embedded.up.layout import Layout
from runyard.http.loopback import Loopback
from runyard.kube.client import Kube
from runyard.kube.kinds import NODES, SERVICE_ACCOUNTS
from runyard.vm.contract import Hung
from runyard.wire import names, rights


class Host:
    """The driver of a host that ran before; it has no VM, or one that does not end."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.hangs = hangs

    async def list(self) -> tuple[object, ...]:
        if self.hangs:
            raise Hung("the VM does not end")
        return ()


async def nodes(kube: Kube) -> list[str]:
    return sorted(each["metadata"]["name"] for each in (await kube.list(NODES)).items)


def test_hosts_of_an_earlier_start_are_removed_once_their_vms_have_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reported: list[str] = []

    def opened(home: Path, **_: object) -> Iterable[Host]:
        return (Host(hangs=home.parent.name == "host-3"),)

    monkeypatch.setattr(former_hosts, "opened_before", opened)

    async def scenario(harness: Harness) -> None:
        kube = Kube(Loopback(harness.core.handle))
        for name in ("host-1", "host-2", "host-3", "host-4", "mini-2", "host-of-mine"):
            await kube.create(NODES, {"metadata": {"name": name}})
            account = {"metadata": {"name": rights.host_account(name)}}
            await kube.create(SERVICE_ACCOUNTS, account, namespace=names.CONTROLLER_NAMESPACE)
        for _ in range(2):
            await former_hosts.remove(
                kube, Layout(tmp_path), hosts=1, clock=RealClock(), report=reported.append
            )
            assert await nodes(kube) == ["host-1", "host-3", "host-of-mine", "mini-2"]
        left = await kube.list(SERVICE_ACCOUNTS, namespace=names.CONTROLLER_NAMESPACE)
        assert rights.host_account("host-2") not in {e["metadata"]["name"] for e in left.items}

    play(scenario)
    first, second, third = reported
    assert first.startswith("host-2, host-4 are removed")
    assert second == third
    assert "host-3" in second and "the VM does not end" in second


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc")
def test_runners_of_a_host_that_is_no_more_do_not_count_as_ready() -> None:
    with directory() as data:
        with Up(data, "--hosts", "2") as up:
            up.ready()
            until(lambda: len(running(up)) == 4, what="four runners")
            assert up.interrupt() == 0
        with Up(data) as up:
            up.ready()
            assert "host-2 is removed" in "".join(up.lines)
            found = up.items("/api/v1/nodes")
            assert [each["metadata"]["name"] for each in found] == ["host-1"]
            until(lambda: running(up) == ["host-1", "host-1"], within=90.0, what="no other Pod")
            assert up.run("echo still here") == "success"
            assert up.interrupt() == 0
        with Up(data, "--hosts", "2") as up:  # the name is used again
            up.ready()
            until(lambda: len(running(up)) == 4, what="four runners again")
            assert up.interrupt() == 0


def running(up: Up) -> list[str]:
    """The host of every Pod that counts as running."""
    pods = up.items(PODS)
    return sorted(p["spec"]["nodeName"] for p in pods if p["status"].get("phase") == "Running")
