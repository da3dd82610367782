"""Incidents about Pods: stamped ones without a claim, and a host that only seems to be lost."""

from runyard.kube.kinds import PODS
from runyard.sim.driver import GB, Host
from runyard.sim.fleet import SPACE, Fleet
from runyard.sim.scenarios.acts import (
    at_rest,
    counted,
    expect,
    over,
    polling,
    queue,
    running,
    stamped,
    until,
    warm,
)
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.shape import PoolShape, Shape, TenantShape
from runyard.telemetry.catalogue import RUNYARD_FENCES_TOTAL, TUIST_RUNNERS_RECOVERY_COUNT
from runyard.wire import names

POOL = PoolShape(name="big", label="fleet-big")
RICH = TenantShape(name="acme", repositories=("app",), vcpus=400, memory_gb=800, share=1.0)
QUICK = Host(boot_seconds=18.0, image_bytes=2.0 * GB, bandwidth=0.25 * GB)
GRACE = 300.0
RECOVER_EVERY = 60.0
TEARDOWN = 120.0


def stamped_shapes(seed: int) -> tuple[Shape, ...]:
    """Two hosts with fourteen VM slots each: 28 runners, and no slot to spare."""
    shape = Shape(
        seed=seed,
        hosts=2,
        seats=14,
        pools=(POOL,),
        tenants=(RICH,),
        machine=QUICK,
        stamped_grace=GRACE,
    )
    return (shape,)


def small(seed: int) -> tuple[Shape, ...]:
    """Two hosts, two VM slots each."""
    return (Shape(seed=seed, hosts=2, pools=(POOL,), tenants=(RICH,), machine=QUICK),)


async def deploy_leaks_stamped_pods(fleet: Fleet) -> None:
    """Every warm Pod is stamped, its mint has no answer yet, and the servers are killed.

    The stamps stay, so the operator treats all 28 Pods as busy and may neither delete nor replace one.
    """
    await warm(fleet)
    await fleet.clock.sleep(GRACE)  # the Pods are older than any grace for young ones
    slow_github(fleet, 5.0)
    jobs = queue(fleet, 28)
    await until(
        fleet, Expectation.ALL_STAMPED, lambda: len(stamped(fleet)) == 28, within=30.0, step=0.05
    )
    expect(
        Expectation.NO_SLOT_IS_ARMED_YET,
        not any(s.state == "armed" for s in fleet.ledger.slots.values()),
    )
    fleet.report("the deploy kills every server")
    for replica in fleet.replicas:
        replica.process.crash()
    began = fleet.clock.monotonic()
    slow_github(fleet, 0.05)
    expect(Expectation.ALL_STAMPED_AND_IDLE, len(stamped(fleet)) == 28)
    bound = GRACE + RECOVER_EVERY + TEARDOWN
    await until(fleet, Expectation.THE_JOBS_RUN, lambda: over(fleet, jobs), within=bound + 200.0)
    await at_rest(fleet, within=900.0)
    expect(Expectation.EVERY_POD_WAS_REPLACED_OR_USED, len(polling(fleet)) == 28)
    healed = counted(fleet, TUIST_RUNNERS_RECOVERY_COUNT, kind="stale_claim")
    expect(Expectation.THE_RECOVERY_WAS_COUNTED, healed >= 28, found=healed)
    fleet.report(f"healed after {fleet.clock.monotonic() - began:.0f} s")
    await _stamps_without_rows(fleet)


async def _stamps_without_rows(fleet: Fleet) -> None:
    """The same leak as a server without slots left it: stamps, and no row for them."""
    body = {"metadata": {"labels": {names.POOL_OWNER: "acme"}}}
    for pod in polling(fleet):
        await fleet.admin.patch(PODS, pod, body, namespace=SPACE)
    fleet.report("28 Pods are stamped, and no row knows why")
    leaked = [pod["metadata"]["uid"] for pod in stamped(fleet)]
    expect(Expectation.PODS_STAMPED, len(leaked) == 28)
    took = await until(
        fleet,
        Expectation.EVERY_LEAKED_POD_IS_GONE,
        lambda: not any(pod["metadata"]["uid"] in leaked for pod in fleet.kube.objects("pods")),
        within=GRACE + RECOVER_EVERY + TEARDOWN,
    )
    fleet.report(f"reaped within {took:.0f} s")
    counts = counted(fleet, TUIST_RUNNERS_RECOVERY_COUNT, kind="orphaned_stamped_pod")
    expect(Expectation.EACH_WAS_COUNTED, counts == 28, found=counts)
    jobs = queue(fleet, 28)
    await until(fleet, Expectation.JOBS_RUN_AGAIN, lambda: over(fleet, jobs), within=600.0)
    await at_rest(fleet, within=900.0)


def slow_github(fleet: Fleet, seconds: float) -> None:
    """Sets how long a request to GitHub takes, each way."""
    links = [link for link in fleet.links if link.name.endswith(">github")]
    for link in links:
        fleet.fault_layers.begin([link], {"latency": (seconds, seconds)})


async def lost_node_runner_lives_on(fleet: Fleet) -> None:
    """The host is disconnected from the cluster for longer than an eviction takes; its runner stays busy.

    The Pod is being deleted meanwhile, and then gone. The runner must not count as gone: its budget is held and its
    job is not given to another runner, until GitHub says that it is over.
    """
    await warm(fleet)
    jobs = queue(fleet, 1, duration=1500.0)
    await until(fleet, Expectation.IT_RUNS, lambda: len(running(fleet)) == 1, within=60.0)
    (guest,) = running(fleet)
    host = fleet.hosts[guest.host]
    fleet.report(f"{host.name} is lost to the cluster")
    host.cut_network()
    await fleet.clock.sleep(1000.0)
    slot = fleet.ledger.slots.get(guest.uid)
    expect(Expectation.ITS_SLOT_HOLDS_ON, slot is not None and slot.claims, found=slot)
    expect(Expectation.THE_JOB_RUNS_ON, fleet.github.jobs()[jobs[0]].status == "in_progress")
    await until(fleet, Expectation.THE_JOB_ENDS_WELL, lambda: over(fleet, jobs), within=900.0)
    host.restore_network()
    await at_rest(fleet)
    expect(Expectation.EXECUTED_ONCE, fleet.github.jobs()[jobs[0]].executions == 1)
    expect(
        Expectation.NO_FENCE_WAS_NEEDED, counted(fleet, RUNYARD_FENCES_TOTAL, answer="deleted") == 0
    )
