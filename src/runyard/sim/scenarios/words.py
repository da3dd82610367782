"""Incidents about what is said and heard: late, twice, or not at all."""

import msgspec

from runyard.embedded.github.deliveries import Delivery
from runyard.sim.fleet import Fleet
from runyard.sim.scenarios.acts import at_rest, expect, over, queue, trouble, until, warm
from runyard.sim.scenarios.claims import one_host, three_hosts
from runyard.sim.scenarios.scenario import Scenario, Without

MINUTE = 60.0
AT_ONCE = 1.0


async def webhooks_while_all_else_is_slow(fleet: Fleet) -> None:
    """Kubernetes takes twenty seconds for an answer and GitHub gives none, while twenty jobs are queued.

    A server that asked others before it answered a webhook lost deliveries, because GitHub waits ten seconds.
    """
    await warm(fleet)
    kube = [
        link
        for link in fleet.links
        if link.name.startswith("server") and link.name.endswith(">kube")
    ]
    known = len(fleet.github.attempts())
    with trouble(fleet, "slow-backends"):
        layer = fleet.weather.begin(kube, {"latency": (10.0, 10.0)})
        fleet.github.faults.outage = True
        jobs = []
        for _ in range(20):
            jobs += queue(fleet, 1, duration=30.0)
            await fleet.clock.sleep(AT_ONCE)
        await fleet.clock.sleep(15.0)
        fresh = fleet.github.attempts()[known:]
        late = [each for each in fresh if each.status_code != 200 or each.duration > AT_ONCE]
        expect(f"every delivery is answered at once: {len(late)} are not", fresh and not late)
        fleet.weather.end(layer)
        fleet.github.faults.outage = False
    await until(fleet, "they run", lambda: over(fleet, jobs), within=15 * MINUTE)
    await at_rest(fleet)


async def stop_reports_lost(fleet: Fleet) -> None:
    """The operator reports every end, is thanked for it, and nothing is known of it afterwards.

    Then nobody closed what had ended, and each of them counted as an occupied seat for six hours.
    """
    await warm(fleet)
    fleet.deaf_to_stops = True
    jobs = queue(fleet, 2, duration=30.0)
    await until(fleet, "they run", lambda: over(fleet, jobs), within=2 * MINUTE)
    took = await until(fleet, "every claim is given back", lambda: not _claims(fleet), within=150.0)
    fleet.tell(f"given back {took:.0f} s after the last end")
    fleet.deaf_to_stops = False
    await at_rest(fleet)


async def old_word_about_a_finished_job(fleet: Fleet) -> None:
    """Hours after a job its start is told once more, as news.

    An old row that was copied forward as a new one kept 1,249 finished jobs alive, and paged for their age.
    """
    await warm(fleet)
    jobs = queue(fleet, 2, duration=30.0)
    await until(fleet, "they run", lambda: over(fleet, jobs), within=2 * MINUTE)
    await at_rest(fleet)
    for number, attempt in enumerate(fleet.github.attempts()):
        if attempt.delivery.action != "completed":
            told = await fleet.deliver(_as_news(attempt.delivery, number))
            expect(f"it is heard: {told}", told == 200)
    await fleet.clock.sleep(2 * MINUTE)
    states = [fleet.books.jobs()[job]["state"] for job in jobs]
    expect(f"what is over stays over: {states}", states == ["done"] * len(jobs))
    await at_rest(fleet)


def _claims(fleet: Fleet) -> list[str]:
    return [slot.pod_name for slot in fleet.books.slots.values() if slot.claims]


def _as_news(delivery: Delivery, number: int) -> Delivery:
    guid = f"00000000-0000-4000-8000-{number:012d}"
    headers = tuple(
        (name, guid if name == "x-github-delivery" else value) for name, value in delivery.headers
    )
    return msgspec.structs.replace(delivery, guid=guid, headers=headers)


SCENARIOS = (
    Scenario(
        name="webhooks-while-all-else-is-slow",
        tells="jobs are queued while Kubernetes is slow and GitHub's API is away",
        shapes=three_hosts,
        play=webhooks_while_all_else_is_slow,
        without=(
            Without(guard="webhooks_wait_for_nobody", fails="every delivery is answered at once"),
        ),
    ),
    Scenario(
        name="stop-reports-lost",
        tells="no report of a Pod's end is taken to heart",
        shapes=one_host,
        play=stop_reports_lost,
        without=(
            Without(guard="pods_against_slots", fails="every claim is given back: not within"),
        ),
    ),
    Scenario(
        name="old-word-about-a-finished-job",
        tells="starts of jobs that are over are told once more, as news",
        shapes=one_host,
        play=old_word_about_a_finished_job,
        without=(Without(guard="done_stays_done", fails="went from 'done' to 'running'"),),
    ),
)
