"""After every outcome of a mint and its stamp, the rows, the stamp and the registration are consistent."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.dispatch.dispatchworld import SPACE, Guest, Onward, World, play

from runyard.dispatch.matching.values import Hold
from runyard.dispatch.plans.mint import Conclusion, MintAnswer, StampAnswer, conclude
from runyard.embedded.github.identity import KeyPair
from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.kube.kinds import PODS
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL
from runyard.wire import names

Setup = Callable[[World, Guest], Awaitable[None]]


def test_the_table_of_conclusions_is_complete() -> None:
    table = {
        (mint, stamp): conclude(mint, stamp).conclusion
        for mint in MintAnswer
        for stamp in StampAnswer
    }
    armed = [pair for pair, found in table.items() if found is Conclusion.ARM]
    assert armed == [(MintAnswer.MINTED, StampAnswer.STAMPED)]
    for (mint, stamp), found in table.items():
        back = found in (Conclusion.FAIL, Conclusion.CLEAR_AND_FAIL)
        assert back == (mint is MintAnswer.REFUSED)
        never = stamp in (StampAnswer.REFUSED, StampAnswer.INVALID)
        assert (found is Conclusion.FAIL) == (back and never)


# ── GitHub's answers ────────────────────────────────────────────────────────────────────────────


async def minted(world: World, guest: Guest) -> None:
    return


async def refused(world: World, guest: Guest) -> None:
    world.github.faults.fail_next("/orgs/acme/actions/runners/generate-jitconfig", 422)


async def not_sent(world: World, guest: Guest) -> None:
    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        if "generate-jitconfig" in request.path:
            raise NotSent("no way there")
        return await onward()

    world.github_wire.tamper = tamper


async def failed_after(world: World, guest: Guest) -> None:
    world.github.faults.fail_after_mint(503)


async def lost(world: World, guest: Guest) -> None:
    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        answer = await onward()
        if "generate-jitconfig" in request.path:
            raise OutcomeUnknown("the answer was lost")
        return answer

    world.github_wire.tamper = tamper


async def hung(world: World, guest: Guest) -> None:
    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        if "generate-jitconfig" in request.path:
            await world.clock.sleep(9.0)
        return await onward()

    world.github_wire.tamper = tamper


# ── Kubernetes' answers to the stamp ────────────────────────────────────────────────────────────


async def stamped(world: World, guest: Guest) -> None:
    return


async def gone(world: World, guest: Guest) -> None:
    await world.delete_pod(guest)


async def replaced(world: World, guest: Guest) -> None:
    await world.delete_pod(guest)
    await world.pod_only(guest.name)


async def terminating(world: World, guest: Guest) -> None:
    body = {"metadata": {"finalizers": ["example.org/keep"]}}
    await world.admin.patch(PODS, guest.name, body, namespace=SPACE)
    await world.admin.delete(PODS, guest.name, namespace=SPACE, grace=0)


def _stamp_fails(*, clears: bool, before: bool = False) -> Setup:
    """The stamp is written and its response lost (or not written); clearing it works, or not."""

    async def setup(world: World, guest: Guest) -> None:
        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.method != "PATCH" or names.POOL_OWNER.encode() not in request.body:
                return await onward()
            if b"null" in request.body:
                return await onward() if clears else json_response(500, {})
            if not before:
                await onward()
            raise OutcomeUnknown("lost")

        world.kube_wire.tamper = tamper

    return setup


async def nonsense(world: World, guest: Guest) -> None:
    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        answer = await onward()
        return json_response(200, {}) if request.method == "PATCH" else answer

    world.kube_wire.tamper = tamper


MINTS = {
    "minted": (minted, "minted"),
    "refused": (refused, "refused"),
    "not sent": (not_sent, "refused"),
    "503 after it was created": (failed_after, "unclear"),
    "lost answer": (lost, "unclear"),
    "hung": (hung, "unclear"),
}
STAMPS = {
    "stamped": (stamped, "stamped"),
    "Pod gone": (gone, "refused"),
    "Pod replaced": (replaced, "refused"),
    "Pod terminating": (terminating, "unclear"),
    "lost answer": (_stamp_fails(clears=True), "unclear"),
    "lost before it arrived": (_stamp_fails(clears=True, before=True), "unclear"),
    "lost answer, and it stays": (_stamp_fails(clears=False), "stays"),
    "an answer that names nothing": (nonsense, "unclear"),
}


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("mint", MINTS)
def test_rows_stamp_and_registration_agree_after_every_outcome(
    database_url: str, app_keys: KeyPair, mint: str, stamp: str
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        job = await world.offered(guest)
        offered = world.slot(guest)
        await STAMPS[stamp][0](world, guest)
        await MINTS[mint][0](world, guest)
        began = world.clock.monotonic()
        await world.mint()
        assert world.clock.monotonic() - began < world.settings.deadlines.offered
        slot, queued = world.slot(guest), world.job(job)
        said = MINTS[mint][1], STAMPS[stamp][1]
        if said == ("minted", "stamped"):
            assert (slot["state"], slot["stamped"], queued["state"]) == ("armed", True, "bound")
            assert slot["jit"] is not None and world.stamp(guest) == "acme"
            assert [runner.id for runner in world.github.runners().values()] == [slot["runner_id"]]
            return
        assert slot["jit"] is None
        if said[0] == "refused" and said[1] != "stays":
            assert (slot["state"], slot["tenant"], slot["vcpus"]) == ("idle", "", 0)
            assert (queued["state"], queued["verified"]) == ("queued", False)
            assert world.stamp(guest) in ("", "no pod")
            assert not world.github.runners()
            return
        # A runner or a stamp may be there: nothing was freed, and the fence is due at once.
        assert (slot["state"], slot["intended_job"], queued["state"]) == ("offered", job, "bound")
        assert slot["generation"] > offered["generation"]
        world.kube_wire.tamper = world.github_wire.tamper = None
        world.served_long()
        await world.clock.sleep(0.5)
        await world.server.recovery.sweeper.step()
        slot = world.slot(guest)
        assert (slot["state"], slot["fence"], slot["intended_job"]) == ("draining", "done", None)
        assert world.job(job)["state"] == "queued" and not world.job(job)["verified"]
        # A slow mint arrives now; the search for ghost registrations deletes it.
        assert len(world.github.runners()) == 0

    play(scenario, database_url, app_keys)


def test_a_runner_that_is_minted_too_late_is_deleted(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await world.offered(guest)
        world.overdue(guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if "generate-jitconfig" in request.path:
                world.github_wire.tamper = None
                await (
                    world.server.recovery.sweeper.step()
                )  # the fence comes first and finds no runner
            return await onward()

        world.github_wire.tamper = tamper
        await world.mint()
        assert world.slot(guest)["state"] == "draining"
        assert not world.github.runners()

    play(scenario, database_url, app_keys)


def test_without_a_database_the_offer_ends_by_its_deadline(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        job = await world.offered(guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            world.database.down = "generate-jitconfig" in request.path
            return await onward()

        world.github_wire.tamper = tamper
        await world.mint()
        world.github_wire.tamper, world.database.down = None, False
        assert world.slot(guest)["state"] == "offered" and len(world.github.runners()) == 1
        world.overdue(guest)
        await world.server.recovery.sweeper.step()
        assert world.slot(guest)["state"] == "draining" and not world.github.runners()
        assert world.job(job)["state"] == "queued"

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(("status", "hold"), [(422, 60.0), (403, 60.0)], ids=["job", "account"])
def test_a_job_that_cannot_be_minted_for_is_not_tried_again_at_once(
    database_url: str, app_keys: KeyPair, status: int, hold: float
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        job = await world.offered(guest)
        world.github.faults.fail_next("/orgs/acme/actions/runners/generate-jitconfig", status)
        await world.mint()
        async with world.waiting(guest):
            await world.match()
            assert world.slot(guest)["state"] == "idle", "offered again without a look at GitHub"
            await world.server.recovery.reader.step()
            assert not world.job(job)["verified"]
            await world.clock.sleep(hold + 1)
        await world.server.recovery.reader.step()
        assert world.job(job)["verified"]
        async with world.waiting(guest):
            await world.match()
        assert world.slot(guest)["intended_job"] == job

    play(scenario, database_url, app_keys)


MINT_AT_ORG = "/orgs/acme/actions/runners/generate-jitconfig"
MINT_AT_REPO = "/repos/acme/app/actions/runners/generate-jitconfig"
MINT_AT_USER = "/repos/mona/dots/actions/runners/generate-jitconfig"


def test_an_organisation_that_cannot_be_minted_at_is_served_at_its_repositories(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        job = await world.offered(guest)
        world.github.faults.fail_next(MINT_AT_ORG, 404)
        await world.mint()
        assert world.slot(guest)["state"] == "idle"
        assert not world.rows("SELECT * FROM exclusions"), "nobody is at fault"
        await world.server.recovery.reader.step()
        async with world.waiting(guest):
            await world.match()
        assert world.slot(guest)["scope"] == "repos/acme/app"
        await world.mint()
        slot = world.slot(guest)
        assert (slot["state"], slot["intended_job"]) == ("armed", job)

    play(scenario, database_url, app_keys)


def test_runners_are_in_the_chosen_group_at_an_organisation_and_in_the_only_one_elsewhere(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await world.offered(guest)
        groups: list[tuple[str, int]] = []

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if "generate-jitconfig" not in request.path:
                return await onward()
            groups.append((request.path, msgspec.json.decode(request.body)["runner_group_id"]))
            return json_response(404, {"message": "Not Found"})

        world.github_wire.tamper = tamper
        await world.mint()
        await world.server.recovery.reader.step()
        async with world.waiting(guest):
            await world.match()
        await world.mint()
        assert groups == [(MINT_AT_ORG, 5), (MINT_AT_REPO, 1)]

    play(scenario, database_url, app_keys, runner_group=5)


def test_a_refused_account_does_not_delay_the_others(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        first, second = await world.pod(), await world.pod(2)
        job = await world.offered(first)
        world.github.faults.fail_next(MINT_AT_ORG, 403)
        await world.mint()
        await world.queued()
        await world.server.recovery.reader.step()
        (row,) = world.rows("SELECT kind, name, failures FROM exclusions")
        assert row == {"kind": "account", "name": "acme", "failures": 1}
        async with world.waiting(first, second):
            await world.match()
            assert not world.mints, "its other job was offered although its account is refused"
            held = (await world.server.matcher.preview()).held
            assert [each.hold for each in held] == [Hold.EXCLUDED]
        await world.clock.sleep(61)
        await world.server.recovery.reader.step()
        async with world.waiting(first, second):
            await world.match()
            assert len(world.mints) == 1, "one tries, the others wait for how that ends"
            await world.match()
            assert len(world.mints) == 1
            await world.mint()
            assert not world.rows("SELECT * FROM exclusions"), "a success disproves it"
            await world.match()
            assert len(world.mints) == 1
            await world.mint()
        assert {world.slot(each)["state"] for each in (first, second)} == {"armed"}
        assert job in {world.slot(each)["intended_job"] for each in (first, second)}

    play(scenario, database_url, app_keys)


def test_each_refusal_doubles_the_exclusion(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await world.offered(guest)
        for expected in (60, 120, 240):
            world.github.faults.fail_next(MINT_AT_ORG, 403)
            await world.mint()
            (row,) = world.rows("SELECT extract(epoch FROM until)::float AS until FROM exclusions")
            assert row["until"] - world.clock.now() == pytest.approx(expected, abs=2)
            await world.clock.sleep(expected + 1)
            await world.server.recovery.reader.step()
            async with world.waiting(guest):
                await world.match()
            assert len(world.mints) == 1

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(("status", "first"), [(403, 60), (503, 5)], ids=["account", "GitHub"])
def test_mints_that_fail_together_are_one_failure(
    database_url: str, app_keys: KeyPair, status: int, first: int
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guests = [await world.pod(number) for number in range(1, 8)]
        for _ in guests:
            await world.queued()
        async with world.waiting(*guests[:5]):
            await world.match()
        assert len(world.mints) == 5
        world.github.faults.fail_next(MINT_AT_ORG, status, 99)
        await mint_together(world)
        assert exclusion_of(world) == (1, pytest.approx(first, abs=2))
        await world.clock.sleep(first + 1)
        await world.server.recovery.reader.step()
        async with world.waiting(guests[5], guests[6]):
            await world.match()
        assert len(world.mints) == 1
        await world.mint()
        assert exclusion_of(world) == (2, pytest.approx(2 * first, abs=2)), "the try failed"

    play(scenario, database_url, app_keys)


def test_trials_of_two_accounts_in_one_outage_count_as_one_failure(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guests = [await world.pod(number) for number in range(1, 5)]
        for path in (MINT_AT_ORG, MINT_AT_USER):
            world.github.faults.fail_next(path, 403)
        for guest, repo in zip(guests, ("acme/app", "mona/dots"), strict=False):
            await world.offered(guest, repo)
        await mint_together(world)
        kinds = [row["kind"] for row in world.rows("SELECT kind FROM exclusions ORDER BY kind")]
        assert kinds == ["account", "repository"]
        await world.clock.sleep(61)
        await world.server.recovery.reader.step()
        async with world.waiting(*guests[2:]):
            await world.match()
        assert len(world.mints) == 2, "each account is tried"
        for path in (MINT_AT_ORG, MINT_AT_USER):
            world.github.faults.fail_next(path, 503)
        await mint_together(world)
        assert exclusion_of(world, "github") == (1, pytest.approx(5, abs=2))

    play(scenario, database_url, app_keys)


async def mint_together(world: World) -> None:
    mints, world.mints[:] = list(world.mints), []
    await asyncio.gather(*mints)


def exclusion_of(world: World, kind: str = "%") -> tuple[int, float]:
    """How often it failed, and for how many seconds it is excluded."""
    (row,) = world.rows(
        "SELECT failures, extract(epoch FROM until)::float AS until FROM exclusions"
        " WHERE kind LIKE %s",
        kind,
    )
    return row["failures"], row["until"] - world.clock.now()


def test_an_account_whose_name_is_no_label_value_is_excluded_with_a_reason(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        world.github.install("mona-")  # GitHub allowed such names once
        world.github.add_repo("mona-/dots")
        first, second = await world.pod(), await world.pod(2)
        job = await world.offered(first, "mona-/dots")
        await world.mint()
        (row,) = world.rows("SELECT kind, name, failures, reason, detail FROM exclusions")
        assert row == {
            "kind": "account",
            "name": "mona-",
            "failures": 1,
            "reason": "stamp-invalid",
            "detail": {"tenant": "mona-"},
        }
        world.served_long()
        await world.clock.sleep(0.5)
        await world.server.recovery.sweeper.step()
        assert not world.github.runners() and world.job(job)["state"] == "queued"
        await world.server.recovery.reader.step()
        async with world.waiting(second):
            await world.match()
        assert world.slot(second)["state"] == "idle", "a second runner was spent on the same name"
        await world.clock.sleep(61)
        await world.server.recovery.reader.step()
        async with world.waiting(second):
            await world.match()
        await world.mint()
        assert exclusion_of(world) == (2, pytest.approx(120, abs=2))

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("status", [500, 503])
def test_while_github_fails_no_other_runners_are_tried(
    database_url: str, app_keys: KeyPair, status: int
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        first, second = await world.pod(), await world.pod(2)
        await world.offered(first)
        world.github.faults.fail_next(MINT_AT_ORG, status)
        await world.mint()
        await world.queued()
        async with world.waiting(second):
            await world.match()
        assert world.slot(second)["state"] == "idle", "a second runner was spent on the same outage"
        (held,) = (await world.server.matcher.preview()).held
        assert held.hold is Hold.GITHUB

    play(scenario, database_url, app_keys)


def test_a_rejected_app_key_excludes_every_tenant(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await world.offered(guest)
        world.github.faults.fail_next("/app/installations/", 401, times=100)
        await world.mint()
        counted = world.meter.get(
            RUNYARD_ACTIONS_TOTAL, component="server", action="mint", outcome="page"
        )
        assert counted == 1
        (row,) = world.rows("SELECT kind, name, reason, detail FROM exclusions")
        assert (row["kind"], row["name"]) == ("github", "")
        assert (row["reason"], row["detail"]["kind"]) == ("mint-refused", "unauthorized")

    play(scenario, database_url, app_keys)
