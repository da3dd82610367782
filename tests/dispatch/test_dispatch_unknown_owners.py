"""A stamped Pod of an unknown owner is reaped when no scope at GitHub has its runner, and not before."""

import pytest
from tests.dispatch.dispatchharness import SPACE, Harness, Lines, Onward, play
from tests.dispatch.unknownowners import AGAIN, NOBODY, Fleet

from runyard.components import server
from runyard.dispatch.modes import Mode, Modes
from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT
from runyard.wire import names


def test_a_pod_of_an_unknown_owner_is_reaped_when_no_scope_has_its_runner(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        silent = await harness.pod(2, **NOBODY)
        await harness.poll(silent)
        never_polled = await fleet.leak()
        await fleet.tick()
        assert fleet.there(never_polled, silent) == [False, False]
        assert harness.kube.find("serviceaccounts", SPACE, never_polled.name) is None
        assert harness.slot(never_polled)["state"] == harness.slot(silent)["state"] == "closed"
        assert harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="orphaned_stamped_pod") == 2
        why = harness.rows(
            "SELECT reason, detail FROM transitions WHERE pod_uid = %s AND target = 'draining'",
            never_polled.uid,
        )
        found = {"owner": "nobody-we-know", "scopes": 6}
        assert why == [{"reason": "stamped-by-unknown-owner", "detail": found}]
        assert fleet.reported == ""

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(
    ("scope", "repo"),
    [
        pytest.param("orgs/acme", "acme/app", id="of a known tenant"),
        pytest.param("repos/acme/lib", "acme/lib", id="at a repository that sent no event"),
        pytest.param("repos/mona/dots", "mona/dots", id="of a person whose tenant is lost"),
        pytest.param("orgs/newco", "newco/tool", id="of an organisation whose tenant is lost"),
        pytest.param("repos/newco/tool", "newco/tool", id="at a repository of that one"),
    ],
)
def test_a_pod_is_kept_while_its_runner_is_busy_in_any_installation(
    database_url: str, app_keys: KeyPair, scope: str, repo: str
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        guest = await fleet.leak()
        session = await fleet.register(guest, scope)
        harness.github.queue_job(repo, ("lost",))
        await harness.github.settle()
        for _ in range(3):
            await fleet.tick()
            await harness.clock.sleep(AGAIN)
        assert fleet.there(guest) == [True] and not session.over
        assert fleet.reported == f"1: {guest.name} (GitHub says that its runner is busy at {scope})"
        session.finish("success")
        await fleet.tick()
        assert fleet.there(guest) == [False] and fleet.reported == ""

    play(scenario, database_url, app_keys)


def test_an_idle_runner_of_an_unknown_owner_is_deleted_before_its_pod(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        guest = await fleet.leak()
        await fleet.register(guest, "repos/newco/tool")
        await fleet.server.recovery.stamped.step()
        assert not harness.github.runners() and fleet.there(guest) == [True]
        assert harness.slot(guest)["state"] == "draining"

    play(scenario, database_url, app_keys)


UNREADABLE = [
    pytest.param("/orgs/acme/actions/runners", 500, "orgs/acme", id="a scope fails"),
    pytest.param("/orgs/newco/actions/runners", 404, "orgs/newco", id="a scope is hidden"),
    pytest.param("/repos/mona/dots/actions/runners", 403, "repos/mona/dots", id="not allowed"),
    pytest.param(
        "/installation/repositories", 500, "the repositories of acme", id="no repositories"
    ),
    pytest.param("/app/installations", 500, "the installations of the App", id="no installations"),
]


@pytest.mark.parametrize(("path", "status", "named"), UNREADABLE)
def test_a_scope_that_cannot_be_read_keeps_the_pod_and_is_named(
    database_url: str, app_keys: KeyPair, path: str, status: int, named: str
) -> None:
    log = Lines()

    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        guest = await fleet.leak()

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            denied = request.path == path
            return json_response(status, {"message": "no"}) if denied else await onward()

        harness.github_wire.tamper = tamper
        for _ in range(3):
            await fleet.tick()
            assert fleet.there(guest) == [True]
            assert fleet.reported.startswith(f"1: {guest.name} (") and named in fleet.reported
            await harness.clock.sleep(AGAIN)
        left = [line for line in log if line.get("left") == "scope-unreadable"]
        assert len(left) == 3 and left[0]["left_scope"].startswith(named)
        harness.github_wire.tamper = None
        await fleet.tick()
        assert fleet.there(guest) == [False] and fleet.reported == ""

    play(scenario, database_url, app_keys, log=log)


def test_a_hanging_scope_is_named_and_does_not_block_the_others(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        guest = await fleet.leak()

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.path == "/orgs/acme/actions/runners":
                await harness.clock.sleep(1000)
            return await onward()

        harness.github_wire.tamper = tamper
        for _ in range(2):
            async with harness.clock.timeout(120):  # the deadline of the loop
                await fleet.tick()
            await harness.clock.sleep(60)
        asked = {request.path for request in harness.github_wire.requests}
        assert "/repos/newco/tool/actions/runners" in asked
        assert fleet.there(guest) == [True]
        assert "does not show orgs/acme: no answer within 30 s" in fleet.reported

    play(scenario, database_url, app_keys)


def test_a_suspended_installation_keeps_the_pod(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        guest = await fleet.leak()
        harness.github.suspend(fleet.newco)
        await fleet.tick()
        assert fleet.there(guest) == [True] and "orgs/newco" in fleet.reported
        harness.github.suspend(fleet.newco, suspended=False)
        await harness.clock.sleep(AGAIN)
        await fleet.tick()
        assert fleet.there(guest) == [False]

    play(scenario, database_url, app_keys)


def test_scopes_of_slots_are_read_although_their_tenant_is_lost(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        other = await harness.pod(9)
        await harness.poll(other)
        harness.execute(
            "UPDATE slots SET tenant = 'gone', scope = 'orgs/gone', installation_id = 999999"
        )
        guest = await fleet.leak()
        await fleet.tick()
        assert fleet.there(guest) == [True] and "orgs/gone" in fleet.reported

    play(scenario, database_url, app_keys)


def test_without_any_scope_nothing_is_proven(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await harness.pool()
        guest = await fleet.leak()

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            empty = request.path == "/app/installations"
            return json_response(200, []) if empty else await onward()

        harness.github_wire.tamper = tamper
        await fleet.tick()
        assert fleet.there(guest) == [True] and harness.slot(guest) == {}
        assert "every scope" in fleet.reported

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("how", ["claimed", "stamp", "replaced"])
def test_a_pod_that_changes_during_the_lookup_is_kept(
    database_url: str, app_keys: KeyPair, how: str
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        guest = await fleet.leak()

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.path != "/repos/newco/tool/actions/runners":
                return await onward()
            harness.github_wire.tamper = None
            answer = await onward()  # the last scope: without a runner of that name
            if how == "claimed":
                harness.deliver = True
                await harness.armed(guest)
            elif how == "stamp":
                await harness.label(guest, **{names.POOL_OWNER: "acme"})
            else:
                await harness.delete_pod(guest)
                await harness.pod_only(guest.name, **NOBODY)
            return answer

        harness.github_wire.tamper = tamper
        await fleet.tick()
        assert harness.github_wire.tamper is None and fleet.there(guest) == [True]
        assert harness.slot(guest).get("state") == ("armed" if how == "claimed" else None)
        assert len(harness.github.runners()) == (how == "claimed")

    play(scenario, database_url, app_keys)


def test_a_lookup_in_many_scopes_is_spread_and_does_not_delay_other_leaks(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        for number in range(20):
            harness.github.add_repo(f"newco/tool-{number:02}")
        strange = await fleet.leak()
        leaked = await harness.pod(2, **{names.POOL_OWNER: "acme"})
        await harness.clock.sleep(301)
        costs = [await fleet.tick()]
        assert fleet.there(strange, leaked) == [True, False]
        assert "lookup" not in fleet.reported and "is being looked up" in fleet.reported
        while fleet.there(strange) == [True] and len(costs) < 20:
            await harness.clock.sleep(60)
            costs.append(await fleet.tick())
        # 3 lists of repositories and 26 scopes, in ticks of 5; the first one also lists the installations, gets
        # tokens and fences the other Pod.
        assert len(costs) == 6 and max(costs[1:]) <= 5 + 2, costs

    play(scenario, database_url, app_keys, lookup_limit=5)


@pytest.mark.parametrize("reads", [1, 2], ids=["during the lookup", "when it is proven"])
def test_a_failed_read_of_the_pod_does_not_throw_the_lookup_away(
    database_url: str, app_keys: KeyPair, reads: int
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        guest = await fleet.leak()
        left = 0

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            nonlocal left
            left -= request.path.endswith(f"/pods/{guest.name}")
            return json_response(500, {"message": "no"}) if left < 0 else await onward()

        # 3 lists of repositories and 6 scopes, in ticks of 5: two ticks.
        asked = [await fleet.tick()]
        harness.kube_wire.tamper, left = tamper, reads - 1
        await harness.clock.sleep(60)
        asked.append(await fleet.tick())
        assert left < 0 and fleet.there(guest) == [True] and guest.name in fleet.reported
        harness.kube_wire.tamper = None
        await harness.clock.sleep(60)
        asked.append(await fleet.tick())
        assert fleet.there(guest) == [False] and fleet.reported == ""
        paths = [each.path for each in harness.github_wire.requests]
        assert paths.count("/app/installations") == 1, asked
        runners = [each for each in paths if each.endswith("/actions/runners")]
        assert len(runners) == len(set(runners)) == 6

    play(scenario, database_url, app_keys, lookup_limit=5)


def test_one_request_for_each_scope_serves_all_pods(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        pods = [await harness.pod(number, **NOBODY) for number in range(1, 8)]
        await harness.clock.sleep(301)
        await fleet.tick()
        reads = [
            each.path for each in harness.github_wire.requests if "/actions/runners" in each.path
        ]
        assert fleet.there(*pods) == [False] * 7
        assert len(reads) == len(dict.fromkeys(reads)) == 6

    play(scenario, database_url, app_keys)


def test_a_lookup_that_failed_is_repeated_only_where_it_failed(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        for number in range(20):
            harness.github.add_repo(f"newco/tool-{number:02}")
        guest = await fleet.leak()
        hidden = "/repos/newco/tool-07/actions/runners"

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            return json_response(404, {}) if request.path == hidden else await onward()

        harness.github_wire.tamper = tamper
        assert await fleet.tick() > 26
        assert await fleet.tick() == 0, "not at once"
        assert "repos/newco/tool-07" in fleet.reported, "but it is still reported"
        await harness.clock.sleep(AGAIN)
        assert await fleet.tick() == 3, "installations, repositories, and the scope that failed"
        harness.github_wire.tamper = None
        await harness.clock.sleep(AGAIN)
        await fleet.tick()
        assert fleet.there(guest) == [False]

    play(scenario, database_url, app_keys, lookup_limit=100)


@pytest.mark.parametrize("what", ["runners", "token"])
def test_an_exhausted_rate_budget_delays_the_lookup_and_is_no_failure(
    database_url: str, app_keys: KeyPair, what: str
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        guest = await fleet.leak()

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            token = f"/app/installations/{harness.acme}/access_tokens"
            limited = request.path.startswith(token if what == "token" else "/orgs/acme")
            headers = (("retry-after", "90"),)
            return json_response(429, {}, headers) if limited else await onward()

        harness.github_wire.tamper = tamper
        await fleet.tick()
        harness.github_wire.tamper = None
        paths = [each.path for each in harness.github_wire.requests]
        others_are_read = "/orgs/newco/actions/runners" in paths
        assert others_are_read is (what == "runners"), "tokens are of the App's own budget"
        assert fleet.there(guest) == [True] and "is being looked up" in fleet.reported
        await harness.clock.sleep(60)
        await fleet.tick()
        assert fleet.there(guest) == [True]
        await harness.clock.sleep(60)
        await fleet.tick()
        assert fleet.there(guest) == [False]

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("mode", [Mode.DRY_RUN, Mode.OFF])
def test_a_reconciler_that_may_not_act_looks_nothing_up(
    database_url: str, app_keys: KeyPair, mode: Mode
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        guest = await fleet.leak()
        assert await fleet.tick() == 0 and fleet.there(guest) == [True]

    play(scenario, database_url, app_keys, modes=Modes(orphaned_stamped_pods=mode))


def test_one_replica_at_a_time_looks_runners_up(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        first = Fleet(harness)
        await first.known()
        guest = await first.leak()
        first.harness.github.suspend(first.newco)
        await first.tick()
        second = server.wire(harness.deps(name="server-2"))
        sent = len(harness.github_wire.requests)
        await second.recovery.stamped.step()
        assert len(harness.github_wire.requests) == sent
        first.harness.github.suspend(first.newco, suspended=False)
        await harness.clock.sleep(AGAIN)
        await second.recovery.stamped.step()
        assert harness.slot(guest)["state"] == "draining", "it follows one that does not come back"

    play(scenario, database_url, app_keys)


def test_a_known_owner_that_github_hides_is_reported_too(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        harness.execute("UPDATE tenants SET installation_id = 999999")  # uninstalled
        guest = await harness.pod(1, **{names.POOL_OWNER: "acme"})
        await harness.clock.sleep(301)
        await fleet.tick()
        assert fleet.there(guest) == [True]
        assert fleet.reported.startswith(f"1: {guest.name} (") and "orgs/acme" in fleet.reported
        harness.execute("UPDATE tenants SET installation_id = %s", harness.acme)
        await fleet.tick()
        assert fleet.there(guest) == [False] and fleet.reported == ""

    play(scenario, database_url, app_keys)
