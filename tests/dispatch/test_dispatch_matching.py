"""Matching is fair, no first job blocks its queue, and no budget is exceeded."""

import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.dispatch.machine.events import Adopt, Offer
from runyard.dispatch.machine.values import Headroom
from runyard.dispatch.matching.match import match
from runyard.dispatch.matching.select import select
from runyard.dispatch.matching.values import (
    Budget,
    Candidate,
    Exclusion,
    Hold,
    Kind,
    PoolView,
    Proposal,
    RepositoryQueue,
    Snapshot,
    TenantQueue,
    Vacancy,
    Waiting,
    fits,
)
from runyard.wire.reasons_dispatch import Holding, Why

MAC = ("self-hosted", "macos", "shape-mac")
LINUX = ("self-hosted", "linux", "shape-linux")
NOWHERE = ("ubuntu-latest",)


def pool(name: str = "mac", labels: tuple[str, ...] = MAC, *, vcpus: int = 4) -> PoolView:
    platform = "macos" if "macos" in labels else "linux"
    return PoolView(
        name=name,
        platform=platform,
        labels=labels,
        dispatch_label=labels[-1],
        mint_labels=labels,
        vcpus=vcpus,
        memory_gb=2 * vcpus,
    )


POOLS = (pool(), pool("linux", LINUX, vcpus=2))


def slot(number: int, pool_name: str = "mac") -> Waiting:
    name = f"{pool_name}-runner-{number:08x}"
    return Waiting(pod_uid=f"uid-{number}", pod_name=name, pool=pool_name, generation=number)


def everywhere(vtime: float) -> dict[str, float]:
    return dict.fromkeys(("linux", "macos"), vtime)


def queue(
    tenant: str,
    jobs: list[tuple[int, tuple[str, ...]]],
    *,
    vtime: float = 0.0,
    weight: float = 1.0,
    headroom: int = 1000,
    at_org: bool = True,
) -> TenantQueue:
    left = Headroom(vcpus=headroom, memory_gb=2 * headroom)
    budgets = tuple(Budget(platform=each, headroom=left, limit=left) for each in ("linux", "macos"))
    own = tuple(Candidate(job_id=i, labels=lb) for i, lb in jobs)
    return TenantQueue(
        tenant=tenant,
        installation_id=1,
        at_org=at_org,
        weight=weight,
        vtimes=everywhere(vtime),
        repositories=(RepositoryQueue(repository=f"{tenant}/app", jobs=own),),
        budgets=budgets,
    )


def jobs_of(tenant: TenantQueue) -> tuple[Candidate, ...]:
    return tuple(job for each in tenant.repositories for job in each.jobs)


def proposals_for(found: Snapshot) -> tuple[Proposal, ...]:
    return match(found).proposals


def snapshot(*tenants: TenantQueue, waiting: tuple[Waiting, ...], **more: object) -> Snapshot:
    values = {"pools": POOLS, "vacancies": (), "waiting": waiting, "tenants": tenants}
    return Snapshot(**(values | more))  # type: ignore[arg-type]  # many kinds of fields


def served(found: Snapshot) -> list[tuple[str, int]]:
    return [(each.tenant, each.event.job_id) for each in proposals_for(found)]


def test_a_flood_of_one_tenant_does_not_delay_the_first_job_of_another() -> None:
    flood = queue("aaa", [(i, MAC) for i in range(10_000)], vtime=400.0)
    late = queue("zzz", [(99_999, MAC)])
    found = snapshot(flood, late, waiting=(slot(1),), floors=everywhere(396.0))
    assert served(found) == [("zzz", 99_999)]


def test_an_idle_tenant_gets_no_credit() -> None:
    # Both have jobs for all ten runners; the formerly idle tenant must not get all of them.
    busy = queue("busy", [(i, MAC) for i in range(20)], vtime=400.0)
    sleeper = queue("sleeper", [(100 + i, MAC) for i in range(20)], vtime=3.0)
    found = snapshot(busy, sleeper, waiting=tuple(map(slot, range(10))), floors=everywhere(396.0))
    counts = Counter(tenant for tenant, _ in served(found))
    assert counts in ({"sleeper": 5, "busy": 5}, {"sleeper": 6, "busy": 4})


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ((NOWHERE,) * 50, "jobs that fit nowhere"),
        ((LINUX,) * 50, "jobs for a pool where nobody waits"),
        ((("self-hosted", "macOS", "shape-mac", "gpu"),) * 50, "one label too many"),
        ((("self-hosted", "macOS"),) * 50, "no dispatch label"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_job_does_not_block_its_queue(
    head: tuple[tuple[str, ...], ...], why: str
) -> None:
    jobs = [*enumerate(head), (999, ("Shape-Mac", "MACOS"))]
    assert served(snapshot(queue("t", jobs), waiting=(slot(1),))) == [("t", 999)], why


def test_a_tenant_without_headroom_does_not_block_the_next() -> None:
    poor = queue("a-poor", [(i, MAC) for i in range(30)], headroom=3)
    rich = queue("rich", [(100, MAC)], vtime=50.0)
    assert served(snapshot(poor, rich, waiting=(slot(1), slot(2)))) == [("rich", 100)]


def test_a_tenant_without_a_limit_has_no_headroom() -> None:
    nobody = msgspec.structs.replace(queue("t", [(1, MAC)]), budgets=())
    assert served(snapshot(nobody, waiting=(slot(1),))) == []


def test_the_oldest_job_and_the_longest_waiting_pod_come_first() -> None:
    found = proposals_for(snapshot(queue("t", [(5, MAC), (3, MAC)]), waiting=(slot(9), slot(2))))
    assert [(each.event.job_id, each.pod_uid) for each in found] == [(5, "uid-9"), (3, "uid-2")]


def vacancy(number: int, *, tenant: str = "t", scope: str = "orgs/t", pool: str = "mac") -> Vacancy:
    return Vacancy(pod_uid=f"vac-{number}", pool=pool, generation=7, tenant=tenant, scope=scope)


def test_a_vacant_runner_is_used_first_and_costs_nothing() -> None:
    (only, second) = proposals_for(
        snapshot(queue("t", [(1, MAC), (2, MAC)]), waiting=(slot(1),), vacancies=(vacancy(1),))
    )
    assert (only.pod_uid, only.event, only.cost) == ("vac-1", Adopt(generation=7, job_id=1), 0.0)
    assert (second.pod_uid, second.cost) == ("uid-1", 4.0)


@pytest.mark.parametrize(
    "other",
    [
        vacancy(1, tenant="x"),
        vacancy(1, scope="repos/t/other"),
        vacancy(1, pool="linux"),
        vacancy(1, pool="unknown"),
    ],
    ids=["another tenant", "another scope", "another pool", "no such pool"],
)
def test_a_vacant_runner_is_used_only_for_jobs_that_github_would_assign_to_it(
    other: Vacancy,
) -> None:
    assert served(snapshot(queue("t", [(1, MAC)]), waiting=(), vacancies=(other,))) == []


def test_a_person_has_no_organisation_to_register_at() -> None:
    (only,) = proposals_for(snapshot(queue("mona", [(1, MAC)], at_org=False), waiting=(slot(1),)))
    assert isinstance(only.event, Offer) and only.event.scope == "repos/mona/app"


LABELS = st.sampled_from([MAC, LINUX, NOWHERE, ("SHAPE-MAC",), ("shape-linux", "linux")])


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    rng = random.Random(draw(st.integers(0, 10_000)))
    tenants = [
        queue(
            f"t{number}",
            [(1000 * number + i, draw(LABELS)) for i in range(draw(st.integers(0, 8)))],
            vtime=draw(st.floats(0, 50)),
            weight=draw(st.sampled_from([0.5, 1.0, 3.0])),
            headroom=draw(st.integers(0, 20)),
        )
        for number in range(draw(st.integers(0, 4)))
    ]
    count = draw(st.integers(0, 12))
    waiting = tuple(slot(i, rng.choice(["mac", "linux", "gone"])) for i in range(count))
    vacancies = tuple(
        vacancy(i, tenant=f"t{rng.randrange(4)}", scope=f"orgs/t{rng.randrange(4)}")
        for i in range(draw(st.integers(0, 3)))
    )
    return snapshot(
        *tenants, waiting=waiting, vacancies=vacancies, floors=everywhere(draw(st.floats(0, 20)))
    )


@given(snapshots())
def test_no_job_or_runner_is_matched_twice_and_no_budget_exceeded(found: Snapshot) -> None:
    proposals = proposals_for(found)
    assert len({each.pod_uid for each in proposals}) == len(proposals)
    assert len({each.event.job_id for each in proposals}) == len(proposals)
    spent: Counter[tuple[str, str]] = Counter()
    pools = {each.name: each for each in found.pools}
    jobs = {job.job_id: job for tenant in found.tenants for job in jobs_of(tenant)}
    pods = {each.pod_uid: each.pool for each in found.waiting}
    vacant = {each.pod_uid: each.pool for each in found.vacancies}
    for each in proposals:
        own = (pods | vacant)[each.pod_uid]
        assert fits(pools[own], jobs[each.event.job_id].labels)
        if isinstance(each.event, Offer):
            assert own == pods[each.pod_uid] and each.event.vcpus == pools[own].vcpus
            spent[each.tenant, each.event.platform] += each.event.vcpus
    for tenant in found.tenants:
        for budget in tenant.budgets:
            assert spent[tenant.tenant, budget.platform] <= budget.headroom.vcpus


@given(snapshots())
def test_every_job_that_could_run_is_matched(found: Snapshot) -> None:
    proposals = proposals_for(found)
    used = {each.pod_uid for each in proposals}
    given = {each.event.job_id for each in proposals}
    pools = {each.name: each for each in found.pools}
    spent: Counter[tuple[str, str]] = Counter()
    for each in proposals:
        if isinstance(each.event, Offer):
            spent[each.tenant, each.event.platform] += each.event.vcpus
    for tenant in found.tenants:
        headrooms = {each.platform: each.headroom for each in tenant.budgets}
        for job in jobs_of(tenant):
            for pod in found.waiting:
                if job.job_id in given or pod.pod_uid in used or pod.pool not in pools:
                    continue
                own = pools[pod.pool]
                left = headrooms[own.platform].vcpus - spent[tenant.tenant, own.platform]
                assert not fits(own, job.labels) or left < own.vcpus


@given(snapshots())
def test_the_same_snapshot_gives_the_same_proposals(found: Snapshot) -> None:
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Snapshot)
    assert match(found) == match(again)


class Served(msgspec.Struct):
    """What each tenant has got, and its virtual time; every tenant always has queued jobs."""

    weights: dict[str, float]
    labels: dict[str, tuple[str, ...]]
    pools: tuple[PoolView, ...] = POOLS
    got: Counter[str] = msgspec.field(default_factory=Counter)
    vtimes: dict[str, dict[str, float]] = {}
    floors: dict[str, float] = {}
    _number: int = 0

    def serve(self, *pools: str) -> None:
        """Match one idle runner of each of these pools."""
        tenants = []
        for name, weight in self.weights.items():
            self._number += 100
            own = [(self._number + i, self.labels[name]) for i in range(20)]
            vtimes = self.vtimes.setdefault(name, {})
            tenants.append(msgspec.structs.replace(queue(name, own, weight=weight), vtimes=vtimes))
        waiting = tuple(slot(self._number + i, each) for i, each in enumerate(pools))
        found = snapshot(*tenants, waiting=waiting, pools=self.pools, floors=self.floors)
        for each in proposals_for(found):
            own_times, lane = self.vtimes[each.tenant], each.platform
            start = max(own_times.get(lane, 0.0), self.floors.get(lane, 0.0))
            own_times[lane] = start + each.cost / self.weights[each.tenant]
            self.got[each.tenant] += 1
            self.floors[lane] = max(self.floors.get(lane, 0.0), start)


def simulate(weights: dict[str, float], *, rounds: int, seed: int) -> Counter[str]:
    """Serve a few runners at a time while every tenant has queued jobs; returns how many each got."""
    rng = random.Random(seed)
    served = Served(weights=weights, labels=dict.fromkeys(weights, MAC))
    for _ in range(rounds):
        served.serve(*("mac",) * rng.randint(1, 7))
    return served.got


def jain(shares: list[float]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


@pytest.mark.parametrize("seed", range(5))
def test_shares_follow_the_weights(seed: int) -> None:
    weights = {"a": 1.0, "b": 1.0, "c": 2.0, "d": 0.5, "e": 4.0}
    got = simulate(weights, rounds=300, seed=seed)
    assert jain([got[name] / weights[name] for name in weights]) >= 0.99


def test_runners_on_linux_do_not_change_virtual_time_on_macos() -> None:
    labels = {"a-flood": LINUX, "b": MAC, "c": MAC}
    served = Served(weights={"a-flood": 1.0, "b": 1.0, "c": 2.0}, labels=labels)
    for number in range(600):
        served.serve("linux", *(("mac",) if number % 20 == 0 else ()))
    assert served.got == {"a-flood": 600, "b": 10, "c": 20}


def test_tenants_of_a_scarce_pool_alternate_whatever_their_names() -> None:
    large = (*MAC[:2], "shape-large")
    served = Served(
        weights={"a-flood": 1.0, "b": 1.0, "c": 1.0},
        labels={"a-flood": MAC, "b": large, "c": large},
        pools=(pool(), pool("large", large, vcpus=8)),
    )
    for number in range(400):
        served.serve("mac", *(("large",) if number % 20 == 0 else ()))
    assert served.got == {"a-flood": 400, "b": 10, "c": 10}


def test_a_long_queue_is_matched_without_comparing_every_pair() -> None:
    # 200 tenants with 20 jobs that fit no pool, 500 Pods: two million pairs.
    tenants = [queue(f"t{n}", [(n * 100 + i, NOWHERE) for i in range(20)]) for n in range(200)]
    calls = Counter[str]()

    class Counted(tuple[str, ...]):
        __slots__ = ()

        def __contains__(self, item: object) -> bool:
            calls["looked"] += 1
            return super().__contains__(item)

    counted = tuple(msgspec.structs.replace(each, labels=Counted(each.labels)) for each in POOLS)
    found = snapshot(*tenants, waiting=tuple(map(slot, range(500))), pools=counted)
    assert proposals_for(found) == ()
    assert calls["looked"] < 100


# ------------------------------------------------------------------------------ repositories and priorities


def repository(
    name: str,
    jobs: range,
    *,
    priority: int = 0,
    vtime: float = 0.0,
    weight: float = 1.0,
    **more: str,
) -> RepositoryQueue:
    own = tuple(Candidate(job_id=job, labels=MAC, priority=priority) for job in jobs)
    return RepositoryQueue(
        repository=name, jobs=own, vtimes=everywhere(vtime), weight=weight, **more
    )


def tenant_of(*repositories: RepositoryQueue, floor: float = 0.0) -> TenantQueue:
    base = queue("t", [])
    return msgspec.structs.replace(base, repositories=repositories, floors=everywhere(floor))


def test_a_flood_of_one_repository_does_not_delay_another() -> None:
    flood, quiet = repository("t/a", range(100), vtime=40.0), repository("t/z", range(500, 501))
    found = snapshot(tenant_of(flood, quiet, floor=36.0), waiting=(slot(1),))
    assert served(found) == [("t", 500)]


def test_repositories_are_served_by_their_weights() -> None:
    heavy, light = repository("t/a", range(50), weight=3.0), repository("t/b", range(100, 150))
    found = snapshot(tenant_of(heavy, light), waiting=tuple(map(slot, range(20))))
    counts = Counter(each.repository for each in proposals_for(found))
    assert counts == {"t/a": 15, "t/b": 5}


def test_a_higher_priority_goes_before_every_other_job_of_its_tenant_and_of_no_other() -> None:
    late = repository("t/b", range(100, 102), priority=5, vtime=90.0)
    other = queue("other", [(900, MAC)], vtime=1.0)
    found = snapshot(
        tenant_of(repository("t/a", range(3)), late),
        other,
        waiting=tuple(map(slot, range(4))),
    )
    # 900 waits for its tenant's turn: priorities do not count between tenants.
    assert served(found) == [("t", 100), ("other", 900), ("t", 101), ("t", 0)]


# ------------------------------------------------------------------------------ what holds the rest


def test_every_kind_without_a_runner_has_a_reason() -> None:
    poor = queue("a-poor", [(1, MAC)], headroom=3)
    found = match(snapshot(poor, queue("b", [(2, LINUX)]), waiting=(slot(1),)), thorough=True)
    held = {each.tenant: (each.hold, each.reason) for each in found.held}
    short = Holding.CPU_BUDGET.because(tenant="a-poor", platform="macos", left=3, limit=3, needed=4)
    assert held == {
        "a-poor": (Hold.TENANT_CAP, short),
        "b": (Hold.NO_RUNNER, Holding.NO_RUNNER_IDLE.because(pools="linux")),
    }


@given(snapshots())
def test_a_job_is_proposed_or_its_kind_is_held(found: Snapshot) -> None:
    matching = match(found, thorough=True)
    given_to = {each.event.job_id for each in matching.proposals}
    held = {(each.tenant, each.repository, each.labels) for each in matching.held}
    for tenant in found.tenants:
        for each in tenant.repositories:
            for job in each.jobs:
                kind = (tenant.tenant, each.repository, job.labels)
                assert job.job_id in given_to or kind in held


@given(snapshots())
def test_a_thorough_match_changes_no_proposal(found: Snapshot) -> None:
    assert match(found).proposals == match(found, thorough=True).proposals


def kind(labels: tuple[str, ...] = MAC, *, tenant: str = "t", paused: bool = False) -> Kind:
    return Kind(tenant=tenant, repository=f"{tenant}/app", labels=labels, paused=paused)


def excluded(kind_: str, name: str, left: float = 30.0) -> Exclusion:
    return Exclusion(
        kind=kind_,
        name=name,
        left=left,
        reason=Why.MINT_REFUSED.because(kind="not-found", message="404"),
    )


@pytest.mark.parametrize(
    ("one", "exclusions", "supplied", "hold"),
    [
        (kind(paused=True), (), ("mac",), Hold.PAUSED),
        (kind(), (excluded("repository", "t/app"),), ("mac",), Hold.EXCLUDED),
        (kind(), (excluded("account", "t"),), ("mac",), Hold.EXCLUDED),
        (kind(), (excluded("github", ""),), ("mac",), Hold.GITHUB),
        (kind(NOWHERE), (), ("mac",), Hold.NO_POOL),
        (kind(), (), ("linux",), Hold.NO_RUNNER),
    ],
    ids=["paused", "repository", "account", "github", "no pool", "no runner"],
)
def test_jobs_that_cannot_run_are_not_read(
    one: Kind, exclusions: tuple[Exclusion, ...], supplied: tuple[str, ...], hold: Hold
) -> None:
    found = select((one, kind(tenant="u")), pools=POOLS, supplied=supplied, exclusions=exclusions)
    assert [each.hold for each in found.held if each.tenant == "t"] == [hold]
    assert all(each.tenant == "u" for each in found.wanted)


def test_an_expired_exclusion_allows_one_trial() -> None:
    found = select(
        (kind(),), pools=POOLS, supplied=("mac",), exclusions=(excluded("account", "t", left=-1.0),)
    )
    (only,) = found.wanted
    assert only.trial == "account:t"
    tried = repository("t/app", range(5), trial=only.trial)
    sibling = repository("t/b", range(50, 55), trial=only.trial)
    other = queue("z", [(900, MAC)])
    matching = match(
        snapshot(tenant_of(tried, sibling), other, waiting=tuple(map(slot, range(9)))),
        thorough=True,
    )
    assert [each.event.job_id for each in matching.proposals] == [0, 900]
    assert {each.hold for each in matching.held} == {Hold.EXCLUDED}
