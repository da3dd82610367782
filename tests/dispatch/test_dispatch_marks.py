"""A Pod never looks trusted while the job of a fork runs in it, whichever job its runner was registered for."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.dispatch.dispatchharness import Guest, Harness, Onward, play
from tests.dispatch.test_dispatch_intake import event, hook, send
from tests.dispatch.test_dispatch_minting import RACE
from tests.dispatch.test_dispatch_trust import FORK, OWN, answer_runs, labels_of, run_of

from runyard.dispatch.plans.marks import Mark, labels_for, mark_after
from runyard.embedded.github.identity import KeyPair
from runyard.http.errors import OutcomeUnknown
from runyard.http.messages import Request, Response, Stream
from runyard.wire import names
from runyard.wire.reasons_dispatch import Trust

BEFORE, AFTER_FORK = Mark(account_id=7), Mark(account_id=7, untrusted=True)
ACCOUNT, UNTRUSTED = {names.RUNNER_ACCOUNT: "7"}, {names.CACHE_UNTRUSTED: "true"}


@pytest.mark.parametrize(
    ("before", "account", "trust", "labels"),
    [
        (Mark(), 7, Trust.SAME_REPOSITORY, ACCOUNT),
        (Mark(), 7, Trust.FORK, {**ACCOUNT, **UNTRUSTED}),
        (Mark(), 0, Trust.UNKNOWN, UNTRUSTED),
        (Mark(), 0, Trust.SAME_REPOSITORY, {}),
        (BEFORE, 7, Trust.SAME_REPOSITORY, {}),
        (BEFORE, 0, Trust.OPEN_EVENT, UNTRUSTED),
        (AFTER_FORK, 7, Trust.SAME_REPOSITORY, {}),
        (AFTER_FORK, 7, Trust.FORK, {}),
    ],
)
def test_a_mark_is_only_ever_added(
    before: Mark, account: int, trust: Trust, labels: dict[str, str]
) -> None:
    after = mark_after(before, account_id=account, trust=trust)
    assert labels_for(before, after) == labels
    assert after.untrusted >= before.untrusted


# ── The whole dispatch ──────────────────────────────────────────────────────────────────────────

OTHER = 5  # the job that GitHub gives to the runner instead


async def swapped(harness: Harness, *, action: str = "in_progress") -> None:
    """GitHub reports that the armed runner executes another job."""
    body = event(action, OTHER, installation={"id": harness.acme}, job={"run_id": 90})
    assert harness.handle is not None
    answer = await harness.handle(hook(msgspec.json.encode(body), f"swap-{action}"))
    assert isinstance(answer, Response) and answer.status == 200


def is_marked(harness: Harness, guest: Guest) -> bool:
    return labels_of(harness, guest).get(names.CACHE_UNTRUSTED) == "true"


async def trusted(harness: Harness) -> Guest:
    """A Pod that is armed for a job of the repository itself."""
    await harness.pool()
    guest = await harness.pod()
    answer_runs(harness, run_of("push", OWN))
    await harness.armed(guest)
    assert not is_marked(harness, guest)
    answer_runs(harness, run_of("pull_request", FORK))
    return guest


def test_a_fork_job_on_the_runner_of_a_trusted_one_is_marked_when_it_starts(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await trusted(harness)
        calls = len(harness.kube_wire.requests)
        await swapped(harness)
        assert len(harness.kube_wire.requests) == calls, "a webhook waits for no other system"
        assert harness.server.shared.swapped.is_set(), "the loop is woken at once"
        await harness.server.marker.step()
        assert is_marked(harness, guest)
        assert harness.job(OTHER)["trust"] == Trust.FORK.value
        calls = len(harness.kube_wire.requests)
        await harness.server.marker.step()
        assert len(harness.kube_wire.requests) == calls, "it is written once"

    play(scenario, database_url, app_keys)


def test_the_running_server_marks_the_pod_within_a_second(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await trusted(harness)
        async with harness.running():
            await harness.clock.sleep(2)  # its loops have begun
            await swapped(harness)
            await harness.clock.sleep(1.5)
            assert is_marked(harness, guest)

    play(scenario, database_url, app_keys)


def test_a_job_of_the_repository_on_the_runner_of_a_fork_job_stays_marked(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        answer_runs(harness, run_of("pull_request", FORK))
        await harness.armed(guest)
        answer_runs(harness, run_of("push", OWN))
        await swapped(harness)
        await harness.server.marker.step()
        assert harness.job(OTHER)["trust"] == Trust.SAME_REPOSITORY.value
        assert is_marked(harness, guest), "the job of the fork may have run here"
        assert harness.slot(guest)["marked_job"] == OTHER

    play(scenario, database_url, app_keys)


def test_a_run_that_cannot_be_read_after_the_swap_is_marked(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await trusted(harness)
        answer_runs(harness, Response(status=500))
        await swapped(harness)
        await harness.server.marker.step()
        assert is_marked(harness, guest)

    play(scenario, database_url, app_keys)


def patches(harness: Harness, instead: Callable[[], Awaitable[None]]) -> None:
    """Run this before the next request that labels a Pod with its account or as untrusted."""

    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        labels = (names.RUNNER_ACCOUNT.encode(), names.CACHE_UNTRUSTED.encode())
        if request.method == "PATCH" and any(each in request.body for each in labels):
            harness.kube_wire.tamper = None
            await instead()
        return await onward()

    harness.kube_wire.tamper = tamper


def test_a_start_that_is_reported_while_the_first_labels_are_written_is_not_missed(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        answer_runs(harness, run_of("push", OWN))
        await harness.offered(guest)

        async def other_starts() -> None:
            answer_runs(harness, run_of("pull_request", FORK))
            await swapped(harness)
            await harness.server.marker.step()
            assert harness.slot(guest)["marked_job"] is None, "the replica that armed it labels it"

        patches(harness, other_starts)
        await harness.mint()
        assert is_marked(harness, guest)
        assert harness.slot(guest)["marked_job"] == OTHER

    play(scenario, database_url, app_keys)


class _Killed(Exception):
    """The server was killed here."""


@pytest.mark.parametrize("written", [False, True], ids=["before-the-patch", "after-the-patch"])
@pytest.mark.parametrize("at", ["first", "swap"])
def test_a_crash_while_labels_are_written_is_made_up_for(
    database_url: str, app_keys: KeyPair, at: str, written: bool
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        answer_runs(harness, run_of("push", OWN))
        await harness.offered(guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.method == "PATCH" and b"runner-" in request.body:
                if names.POOL_OWNER.encode() in request.body:
                    return await onward()
                if written:
                    await onward()
                raise _Killed
            return await onward()

        if at == "first":
            harness.kube_wire.tamper = tamper
            with pytest.raises(_Killed):
                await harness.mint()
        else:
            await harness.mint()
            harness.kube_wire.tamper = tamper
        answer_runs(harness, run_of("pull_request", FORK))
        await swapped(harness)
        if at == "swap":
            with pytest.raises(ExceptionGroup):
                await harness.server.marker.step()
        harness.kube_wire.tamper = None
        await harness.clock.sleep(harness.settings.marks_grace)
        await harness.server.marker.step()
        assert is_marked(harness, guest)
        assert harness.slot(guest)["marked_job"] == OTHER

    play(scenario, database_url, app_keys)


def test_labels_that_kubernetes_did_not_take_are_written_by_the_next_step(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await trusted(harness)
        await swapped(harness)

        async def lost() -> None:
            raise OutcomeUnknown("the API server went away")

        patches(harness, lost)
        await harness.server.marker.step()
        assert not is_marked(harness, guest)
        assert harness.job(OTHER)["trust"] == Trust.FORK.value, "`runyard explain` shows it already"
        await harness.server.marker.step()
        assert is_marked(harness, guest)

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("events", [("in_progress", "completed"), ("completed",)], ids="-".join)
def test_a_fork_job_that_ends_before_its_pod_is_marked_is_marked_while_the_pod_ends(
    database_url: str, app_keys: KeyPair, events: tuple[str, ...]
) -> None:
    # At the end of a Pod its host keeps the cache for later jobs of the account, unless the Pod is marked.
    async def scenario(harness: Harness) -> None:
        guest = await trusted(harness)
        for action in events:
            await swapped(harness, action=action)
        assert harness.slot(guest)["state"] == "draining"
        assert harness.server.shared.swapped.is_set(), "the loop is woken at once"
        await harness.server.marker.step()
        assert is_marked(harness, guest)
        assert harness.job(OTHER)["trust"] == Trust.FORK.value
        calls = len(harness.kube_wire.requests)
        await harness.server.marker.step()
        assert len(harness.kube_wire.requests) == calls, "it is written once"

    play(scenario, database_url, app_keys)


def test_the_labels_of_a_pod_that_is_gone_are_not_written_for_ever(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await trusted(harness)
        for action in ("in_progress", "completed"):
            await swapped(harness, action=action)
        await harness.delete_pod(guest)
        await harness.server.marker.step()
        calls = len(harness.kube_wire.requests)
        await harness.server.marker.step()
        assert len(harness.kube_wire.requests) == calls

    play(scenario, database_url, app_keys)


def test_a_race_of_writers_is_not_taken_for_a_pod_that_is_gone(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await trusted(harness)
        await swapped(harness)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            return RACE if request.method == "PATCH" else await onward()

        harness.kube_wire.tamper = tamper
        await harness.server.marker.step()
        harness.kube_wire.tamper = None
        assert not is_marked(harness, guest)
        await harness.server.marker.step()
        assert is_marked(harness, guest), "the job of a fork stays unmarked"

    play(scenario, database_url, app_keys)


def test_a_runner_without_a_job_that_gets_one_at_github_is_marked(
    database_url: str, app_keys: KeyPair
) -> None:
    # Its own job was cancelled, the matcher gave it none yet: nothing is requeued.
    async def scenario(harness: Harness) -> None:
        guest = await trusted(harness)
        harness.github.cancel_job(harness.slot(guest)["intended_job"])
        await harness.github.settle()
        assert harness.slot(guest)["intended_job"] is None
        await swapped(harness)
        assert harness.server.shared.swapped.is_set()
        await harness.server.marker.step()
        assert is_marked(harness, guest)

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(
    "order", [("in_progress", "queued"), ("queued", "in_progress")], ids="-".join
)
def test_the_order_of_the_events_does_not_matter(
    database_url: str, app_keys: KeyPair, order: tuple[str, ...]
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await trusted(harness)
        for action in order:
            await swapped(harness, action=action)
        await harness.server.marker.step()
        assert is_marked(harness, guest)

    play(scenario, database_url, app_keys)


def test_a_job_that_runs_where_it_was_meant_to_costs_no_second_label(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await trusted(harness)
        own = harness.slot(guest)["intended_job"]
        body = event("in_progress", own, installation={"id": harness.acme})
        assert (await send(harness, body, "own")).status == 200
        assert not harness.server.shared.swapped.is_set()
        calls = len(harness.kube_wire.requests)
        await harness.server.marker.step()
        assert len(harness.kube_wire.requests) == calls
        assert not is_marked(harness, guest)

    play(scenario, database_url, app_keys)
