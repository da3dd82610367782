"""Restarts of components are shown and counted among the recoveries."""

import msgspec
from tests.dispatch.dispatchharness import Harness, play
from tests.web.web_views import SETTINGS

from runyard.embedded.github.identity import KeyPair
from runyard.web.overview import build_overview
from runyard.web.records import read_records
from runyard.web.snapshot import Snapshot
from runyard.web.values import Source
from runyard.wire.reasons_dispatch import Why
from runyard.wire.restarts import Ended, Restart


def restart(number: int, *, at: float, component: str = "server") -> Restart:
    return Restart(
        id=number,
        component=component,
        reason=Ended.KILLED.value,
        detail={"signal": 9},
        ended_at=at - 2.5,
        ready_at=at,
    )


def test_restarts_of_components_are_among_the_recoveries_without_any_database() -> None:
    now = 1_800_000_000.0
    down = Source(name="x", state="down", since=now)
    restarts = (
        restart(1, at=now - 7200),
        restart(2, at=now - 60),
        restart(3, at=now - 5, component="kube"),
    )
    view = build_overview(
        Snapshot(at=now, postgres=down, kubernetes=down, restarts=restarts), SETTINGS
    )
    assert [(each.component, each.id, each.reason, each.took) for each in view.healed] == [
        ("kube", 3, Ended.KILLED, 2.5),
        ("server", 2, Ended.KILLED, 2.5),
        ("server", 1, Ended.KILLED, 2.5),
    ]
    assert view.totals.healed_hour == 2
    few = msgspec.structs.replace(SETTINGS, recoveries_shown=1)
    view = build_overview(Snapshot(at=now, postgres=down, kubernetes=down, restarts=restarts), few)
    assert (len(view.healed), view.totals.healed_hour) == (1, 2), "the count covers all of them"


def test_recoveries_of_runners_and_components_are_in_the_order_of_time(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.armed(guest)
        await harness.delete_pod(guest)
        await harness.server.shared.closer.close_if_gone(pod_name=guest.name, pod_uid=guest.uid)
        now = harness.clock.now()
        restarts = (restart(1, at=now - 60), restart(2, at=now + 60))
        ok = Source(name="x", state="ok", as_of=now)
        records = await read_records(harness.database, SETTINGS)
        view = build_overview(
            Snapshot(at=now + 61, postgres=ok, kubernetes=ok, records=records, restarts=restarts),
            SETTINGS,
        )
        reasons = [each.reason for each in view.healed]
        assert reasons == [Ended.KILLED, Why.POD_NOT_FOUND, Ended.KILLED]
        assert view.totals.healed_hour == 3

    play(scenario, database_url, app_keys)
