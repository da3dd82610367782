"""After every outcome of a mint and its stamp, the rows, the stamp and the registration are consistent."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.dispatch.dispatchharness import SPACE, Guest, Harness, Onward, play

from runyard.dispatch.matching.values import Hold
from runyard.dispatch.plans.mint import Conclusion, MintAnswer, StampAnswer, conclude
from runyard.embedded.github.identity import KeyPair
from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.kube.kinds import PODS
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL
from runyard.wire import names

Setup = Callable[[Harness, Guest], Awaitable[None]]


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


async def minted(harness: Harness, guest: Guest) -> None:
    return


async def refused(harness: Harness, guest: Guest) -> None:
    harness.github.faults.fail_next("/orgs/acme/actions/runners/generate-jitconfig", 422)


async def not_sent(harness: Harness, guest: Guest) -> None:
    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        if "generate-jitconfig" in request.path:
            raise NotSent("no way there")
        return await onward()

    harness.github_wire.tamper = tamper


async def failed_after(harness: Harness, guest: Guest) -> None:
    harness.github.faults.fail_after_mint(503)


async def lost(harness: Harness, guest: Guest) -> None:
    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        answer = await onward()
        if "generate-jitconfig" in request.path:
            raise OutcomeUnknown("the answer was lost")
        return answer

    harness.github_wire.tamper = tamper


async def hung(harness: Harness, guest: Guest) -> None:
    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        if "generate-jitconfig" in request.path:
            await harness.clock.sleep(9.0)
        return await onward()

    harness.github_wire.tamper = tamper


# ── Kubernetes' answers to the stamp ────────────────────────────────────────────────────────────


async def stamped(harness: Harness, guest: Guest) -> None:
    return


async def gone(harness: Harness, guest: Guest) -> None:
    await harness.delete_pod(guest)


async def replaced(harness: Harness, guest: Guest) -> None:
    await harness.delete_pod(guest)
    await harness.pod_only(guest.name)


async def terminating(harness: Harness, guest: Guest) -> None:
    body = {"metadata": {"finalizers": ["example.org/keep"]}}
    await harness.admin.patch(PODS, guest.name, body, namespace=SPACE)
    await harness.admin.delete(PODS, guest.name, namespace=SPACE, grace=0)


# As the API answers a patch that lost the race with other writers of the object several times.
RACE = json_response(409, {"kind": "Status", "code": 409, "reason": "Conflict"})


def _stamp_fails(clearing: Response | None = None, *, before: bool = False) -> Setup:
    """The stamp is written and its response lost (or not written); clearing it works, or has this answer."""

    async def setup(harness: Harness, guest: Guest) -> None:
        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.method != "PATCH" or names.POOL_OWNER.encode() not in request.body:
                return await onward()
            if b"null" in request.body:
                return clearing or await onward()
            if not before:
                await onward()
            raise OutcomeUnknown("lost")

        harness.kube_wire.tamper = tamper

    return setup


async def nonsense(harness: Harness, guest: Guest) -> None:
    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        answer = await onward()
        return json_response(200, {}) if request.method == "PATCH" else answer

    harness.kube_wire.tamper = tamper


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
    "lost answer": (_stamp_fails(), "unclear"),
    "lost before it arrived": (_stamp_fails(before=True), "unclear"),
    "lost answer, and it stays": (_stamp_fails(json_response(500, {})), "stays"),
    "lost answer, and clearing it loses a race": (_stamp_fails(RACE), "stays"),
    "an answer that names nothing": (nonsense, "unclear"),
}


UNUSABLE = ("Pod gone", "Pod replaced", "Pod terminating")  # no Pod to use again after the fence


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("mint", MINTS)
def test_rows_stamp_and_registration_agree_after_every_outcome(
    database_url: str, app_keys: KeyPair, mint: str, stamp: str
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        job = await harness.offered(guest)
        offered = harness.slot(guest)
        await STAMPS[stamp][0](harness, guest)
        await MINTS[mint][0](harness, guest)
        began = harness.clock.monotonic()
        await harness.mint()
        assert harness.clock.monotonic() - began < harness.settings.deadlines.offered
        slot, queued = harness.slot(guest), harness.job(job)
        said = MINTS[mint][1], STAMPS[stamp][1]
        if said == ("minted", "stamped"):
            assert (slot["state"], slot["stamped"], queued["state"]) == ("armed", True, "bound")
            assert slot["jit"] is not None and harness.stamp(guest) == "acme"
            assert [runner.id for runner in harness.github.runners().values()] == [
                slot["runner_id"]
            ]
            return
        assert slot["jit"] is None
        if said[0] == "refused" and said[1] != "stays":
            assert (slot["state"], slot["tenant"], slot["vcpus"]) == ("idle", "", 0)
            assert (queued["state"], queued["verified"]) == ("queued", False)
            assert harness.stamp(guest) in ("", "no pod")
            assert not harness.github.runners()
            return
        # A runner or a stamp may be there: nothing was freed, and the fence is due at once.
        assert (slot["state"], slot["intended_job"], queued["state"]) == ("offered", job, "bound")
        assert slot["generation"] > offered["generation"]
        harness.kube_wire.tamper = harness.github_wire.tamper = None
        harness.served_long()
        await harness.clock.sleep(10.5)
        await harness.server.recovery.sweeper.step()
        slot = harness.slot(guest)
        if stamp in UNUSABLE:
            assert (slot["state"], slot["fence"]) == ("draining", "done")
        else:
            assert (slot["state"], slot["fence"], slot["runner_id"]) == ("idle", "none", None)
            assert harness.stamp(guest) == "", "the operator takes a stamped Pod for a busy one"
        assert slot["intended_job"] is None
        assert harness.job(job)["state"] == "queued" and not harness.job(job)["verified"]
        # A slow mint arrives now; the search for ghost registrations deletes it.
        assert len(harness.github.runners()) == 0

    play(scenario, database_url, app_keys)


def test_a_runner_that_is_minted_too_late_is_deleted(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.offered(guest)
        harness.overdue(guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if "generate-jitconfig" in request.path:
                harness.github_wire.tamper = None
                await (
                    harness.server.recovery.sweeper.step()
                )  # the fence comes first and finds no runner
            return await onward()

        harness.github_wire.tamper = tamper
        await harness.mint()
        assert harness.slot(guest)["state"] == "draining"
        assert not harness.github.runners()

    play(scenario, database_url, app_keys)


def test_without_a_database_the_offer_ends_by_its_deadline(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        job = await harness.offered(guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            harness.database.down = "generate-jitconfig" in request.path
            return await onward()

        harness.github_wire.tamper = tamper
        await harness.mint()
        harness.github_wire.tamper, harness.database.down = None, False
        assert harness.slot(guest)["state"] == "offered" and len(harness.github.runners()) == 1
        harness.overdue(guest)
        await harness.server.recovery.sweeper.step()
        assert harness.slot(guest)["state"] == "draining" and not harness.github.runners()
        assert harness.job(job)["state"] == "queued"

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(("status", "hold"), [(422, 60.0), (403, 60.0)], ids=["job", "account"])
def test_a_job_that_cannot_be_minted_for_is_not_tried_again_at_once(
    database_url: str, app_keys: KeyPair, status: int, hold: float
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        job = await harness.offered(guest)
        harness.github.faults.fail_next("/orgs/acme/actions/runners/generate-jitconfig", status)
        await harness.mint()
        async with harness.waiting(guest):
            await harness.match()
            assert harness.slot(guest)["state"] == "idle", "offered again without a look at GitHub"
            await harness.server.recovery.reader.step()
            assert not harness.job(job)["verified"]
            await harness.clock.sleep(hold + 1)
        await harness.server.recovery.reader.step()
        assert harness.job(job)["verified"]
        async with harness.waiting(guest):
            await harness.match()
        assert harness.slot(guest)["intended_job"] == job

    play(scenario, database_url, app_keys)


MINT_AT_ORG = "/orgs/acme/actions/runners/generate-jitconfig"
MINT_AT_REPO = "/repos/acme/app/actions/runners/generate-jitconfig"
MINT_AT_USER = "/repos/mona/dots/actions/runners/generate-jitconfig"


def test_an_organisation_that_cannot_be_minted_at_is_served_at_its_repositories(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        job = await harness.offered(guest)
        harness.github.faults.fail_next(MINT_AT_ORG, 404)
        await harness.mint()
        assert harness.slot(guest)["state"] == "idle"
        assert not harness.rows("SELECT * FROM exclusions"), "nobody is at fault"
        await harness.server.recovery.reader.step()
        async with harness.waiting(guest):
            await harness.match()
        assert harness.slot(guest)["scope"] == "repos/acme/app"
        await harness.mint()
        slot = harness.slot(guest)
        assert (slot["state"], slot["intended_job"]) == ("armed", job)

    play(scenario, database_url, app_keys)


def test_runners_are_in_the_chosen_group_at_an_organisation_and_in_the_only_one_elsewhere(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.offered(guest)
        groups: list[tuple[str, int]] = []

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if "generate-jitconfig" not in request.path:
                return await onward()
            groups.append((request.path, msgspec.json.decode(request.body)["runner_group_id"]))
            return json_response(404, {"message": "Not Found"})

        harness.github_wire.tamper = tamper
        await harness.mint()
        await harness.server.recovery.reader.step()
        async with harness.waiting(guest):
            await harness.match()
        await harness.mint()
        assert groups == [(MINT_AT_ORG, 5), (MINT_AT_REPO, 1)]

    play(scenario, database_url, app_keys, runner_group=5)


def test_a_refused_account_does_not_delay_the_others(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        first, second = await harness.pod(), await harness.pod(2)
        job = await harness.offered(first)
        harness.github.faults.fail_next(MINT_AT_ORG, 403)
        await harness.mint()
        await harness.queued()
        await harness.server.recovery.reader.step()
        (row,) = harness.rows("SELECT kind, name, failures FROM exclusions")
        assert row == {"kind": "account", "name": "acme", "failures": 1}
        async with harness.waiting(first, second):
            await harness.match()
            assert not harness.mints, "its other job was offered although its account is refused"
            held = (await harness.server.matcher.preview()).held
            assert [each.hold for each in held] == [Hold.EXCLUDED]
        await harness.clock.sleep(61)
        await harness.server.recovery.reader.step()
        async with harness.waiting(first, second):
            await harness.match()
            assert len(harness.mints) == 1, "one tries, the others wait for how that ends"
            await harness.match()
            assert len(harness.mints) == 1
            await harness.mint()
            assert not harness.rows("SELECT * FROM exclusions"), "a success disproves it"
            await harness.match()
            assert len(harness.mints) == 1
            await harness.mint()
        assert {harness.slot(each)["state"] for each in (first, second)} == {"armed"}
        assert job in {harness.slot(each)["intended_job"] for each in (first, second)}

    play(scenario, database_url, app_keys)


def test_each_refusal_doubles_the_exclusion(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.offered(guest)
        for expected in (60, 120, 240):
            harness.github.faults.fail_next(MINT_AT_ORG, 403)
            await harness.mint()
            (row,) = harness.rows(
                "SELECT extract(epoch FROM until)::float AS until FROM exclusions"
            )
            assert row["until"] - harness.clock.now() == pytest.approx(expected, abs=2)
            await harness.clock.sleep(expected + 1)
            await harness.server.recovery.reader.step()
            async with harness.waiting(guest):
                await harness.match()
            assert len(harness.mints) == 1

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(("status", "first"), [(403, 60), (503, 5)], ids=["account", "GitHub"])
def test_mints_that_fail_together_are_one_failure(
    database_url: str, app_keys: KeyPair, status: int, first: int
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guests = [await harness.pod(number) for number in range(1, 8)]
        for _ in guests:
            await harness.queued()
        async with harness.waiting(*guests[:5]):
            await harness.match()
        assert len(harness.mints) == 5
        harness.github.faults.fail_next(MINT_AT_ORG, status, 99)
        await mint_together(harness)
        assert exclusion_of(harness) == (1, pytest.approx(first, abs=2))
        await harness.clock.sleep(first + 1)
        await harness.server.recovery.reader.step()
        async with harness.waiting(guests[5], guests[6]):
            await harness.match()
        assert len(harness.mints) == 1
        await harness.mint()
        assert exclusion_of(harness) == (2, pytest.approx(2 * first, abs=2)), "the try failed"

    play(scenario, database_url, app_keys)


def test_trials_of_two_accounts_in_one_outage_count_as_one_failure(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guests = [await harness.pod(number) for number in range(1, 5)]
        for path in (MINT_AT_ORG, MINT_AT_USER):
            harness.github.faults.fail_next(path, 403)
        for guest, repo in zip(guests, ("acme/app", "mona/dots"), strict=False):
            await harness.offered(guest, repo)
        await mint_together(harness)
        kinds = [row["kind"] for row in harness.rows("SELECT kind FROM exclusions ORDER BY kind")]
        assert kinds == ["account", "repository"]
        await harness.clock.sleep(61)
        await harness.server.recovery.reader.step()
        async with harness.waiting(*guests[2:]):
            await harness.match()
        assert len(harness.mints) == 2, "each account is tried"
        await not_sent(harness, guests[0])
        await mint_together(harness)
        assert exclusion_of(harness, "github") == (1, pytest.approx(5, abs=2))

    play(scenario, database_url, app_keys)


async def mint_together(harness: Harness) -> None:
    mints, harness.mints[:] = list(harness.mints), []
    await asyncio.gather(*mints)


def exclusion_of(harness: Harness, kind: str = "%") -> tuple[int, float]:
    """How often it failed, and for how many seconds it is excluded."""
    (row,) = harness.rows(
        "SELECT failures, extract(epoch FROM until)::float AS until FROM exclusions"
        " WHERE kind LIKE %s",
        kind,
    )
    return row["failures"], row["until"] - harness.clock.now()


def test_an_account_whose_name_is_no_label_value_is_excluded_with_a_reason(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        harness.github.install("mona-")  # GitHub allowed such names once
        harness.github.add_repo("mona-/dots")
        first, second = await harness.pod(), await harness.pod(2)
        job = await harness.offered(first, "mona-/dots")
        await harness.mint()
        (row,) = harness.rows("SELECT kind, name, failures, reason, detail FROM exclusions")
        assert row == {
            "kind": "account",
            "name": "mona-",
            "failures": 1,
            "reason": "stamp-invalid",
            "detail": {"tenant": "mona-"},
        }
        harness.served_long()
        await harness.clock.sleep(0.5)
        await harness.server.recovery.sweeper.step()
        assert not harness.github.runners() and harness.job(job)["state"] == "queued"
        await harness.server.recovery.reader.step()
        async with harness.waiting(second):
            await harness.match()
        assert harness.slot(second)["state"] == "idle", "a second runner was spent on the same name"
        await harness.clock.sleep(61)
        await harness.server.recovery.reader.step()
        async with harness.waiting(second):
            await harness.match()
        await harness.mint()
        assert exclusion_of(harness) == (2, pytest.approx(120, abs=2))

    play(scenario, database_url, app_keys)


def test_a_rejected_app_key_excludes_every_tenant(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.offered(guest)
        harness.github.faults.fail_next("/app/installations/", 401, times=100)
        await harness.mint()
        counted = harness.meter.get(
            RUNYARD_ACTIONS_TOTAL, component="server", action="mint", outcome="page"
        )
        assert counted == 1
        (row,) = harness.rows("SELECT kind, name, reason, detail FROM exclusions")
        assert (row["kind"], row["name"]) == ("github", "")
        assert (row["reason"], row["detail"]["kind"]) == ("mint-refused", "unauthorized")

    play(scenario, database_url, app_keys)
