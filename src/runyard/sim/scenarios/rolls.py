"""The incident of the image roll: every host pulled the new image at once, and no runner served."""

from runyard.sim.driver import GB, Host
from runyard.sim.fleet import Fleet
from runyard.sim.scenarios.acts import Expected, at_rest, over, polling, queue, warm
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.shape import PoolShape, Shape, TenantShape
from runyard.sim.workload import Workload

POOL = PoolShape(name="big", label="fleet-big", roll_percent=25)
RICH = TenantShape(name="acme", repositories=("app",), vcpus=400, memory_gb=800, share=1.0)
SLOW = Host(boot_seconds=18.0, image_bytes=30.0 * GB, bandwidth=0.1 * GB)
EVERY = 5.0


def shapes(seed: int) -> tuple[Shape, ...]:
    """Eight hosts with two VM slots; a pull takes five minutes."""
    return (
        Shape(
            seed=seed, hosts=8, pools=(POOL,), tenants=(RICH,), machine=SLOW, quiet_limit=4 * 3600.0
        ),
    )


async def roll_does_not_collapse_the_pool(fleet: Fleet) -> None:
    """While sixteen runners are replaced, a quarter at a time, the others serve."""
    await warm(fleet)
    seats = len(polling(fleet))
    cap = seats * POOL.roll_percent // 100
    await Workload(fleet).roll_to(POOL.name, 7)
    jobs: list[int] = []
    lowest = seats
    checks = 0
    while _stale(fleet):
        checks += 1
        if checks > 4 * 3600 / EVERY:
            raise Expected(Expectation.THE_ROLL_ENDS.because(), note=f": {_stale(fleet)} are stale")
        if checks % 60 == 0:
            jobs += queue(fleet, 1, duration=30.0)
        serving = sum(
            guest.state in ("polling", "armed", "running") for guest in fleet.guests.values()
        )
        lowest = min(lowest, serving)
        # A runner that has done its job is replaced by one that has to pull: that is not caused by the roll.
        if serving < seats - cap - 2:
            note = f": only {serving} of {seats} serve, it may take {cap}"
            raise Expected(Expectation.THE_ROLL_TAKES_NO_MORE_THAN_ITS_CAP.because(), note=note)
        await fleet.clock.sleep(EVERY)
    fleet.report(f"rolled; at worst {lowest} of {seats} served")
    await at_rest(fleet)
    over(fleet, jobs)


def _stale(fleet: Fleet) -> int:
    pool = fleet.kube.objects("runnerpools")[0]
    image = pool["spec"]["image"]
    return sum(pod["spec"]["containers"][0]["image"] != image for pod in fleet.kube.objects("pods"))
