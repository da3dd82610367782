"""Tests that a tart which hangs does not keep a Pod: its agent is a process, and gives up in time."""

import pytest
from tests.node.tart_host import IMAGE, SPACE, TartHost
from tests.node.test_tart_kubelet import STUBBORN, play

from runyard.kube.kinds import PODS


@pytest.mark.slow
def test_a_tart_that_hangs_does_not_keep_a_deleted_pods_vm_running() -> None:
    async def scenario(host: TartHost) -> None:
        image = host.tart.image(IMAGE, {"boot": STUBBORN})
        await host.start()
        await host.add_pod("a", image=image, grace=1)
        await host.until_phase("a", "Running")
        (vm,) = host.vms
        for command in ("stop", "exec"):
            host.tart.set(f"hang-{command}", "ignore-term")
        await host.kube.delete(PODS, "a", namespace=SPACE)
        async with host.clock.timeout(25):  # less than the agent's own deadline
            await host.until_phase("a", "gone")
        assert vm not in host.vms

    play(scenario)
