"""An event for a slot that was written a moment ago: one round trip, and nothing if the slot has changed since."""

from typing import Any

import msgspec
import psycopg
import pytest
from psycopg.rows import dict_row

from runyard.clock import RealClock
from runyard.db.inline import InlineDatabase
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.events import Arm
from runyard.dispatch.machine.values import Decision, Slot
from runyard.dispatch.store import SQL, Store, to_slot
from runyard.sim.loop import run_virtual
from runyard.wire.reasons_dispatch import Refused

OFFERED = (
    "INSERT INTO slots (pod_uid, pod_name, pool, generation, state, tenant, scope, runner_name, platform,"
    " vcpus, memory_gb, deadline, last_beat, opened_at)"
    " VALUES ('u', 'p', 'mac', 5, 'offered', 'acme', 'orgs/acme', 'p', 'macos', 1, 1, now(), now(), now())"
)


def armed(url: str, *, change: str = "", era: str = "") -> tuple[Decision, dict[str, Any], int]:
    """Arm a slot as it was before `change`; returns the decision, the row, and the number of transactions."""
    names: list[str] = []

    async def main() -> Decision:
        with InlineDatabase(url, clock=RealClock(), before=names.append) as database:
            store = Store(database, ctx=Context(), actor="me")

            async def known(tx: Any) -> tuple[Slot, str]:
                row = await tx.one(SQL.slot_lock, pod_uid="u")
                return to_slot(row), row["era"]

            slot, now = await database.transact(known, name="read")
            if change:
                with psycopg.connect(url, autocommit=True) as link:
                    link.execute(change)
            names.clear()
            event = Arm(generation=slot.generation, runner_id=7, jit=b"sealed", stamped=True)
            return await store.apply_to_known(slot, event, name="arm", in_era=era or now)

    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as link:
        link.execute(OFFERED)
        decision = run_virtual(main())
        row = link.execute("SELECT * FROM slots WHERE pod_uid = 'u'").fetchone()
        logged = link.execute("SELECT count(*) AS n FROM transitions").fetchone()
    assert logged == {"n": len(decision.slots)}
    return decision, row or {}, len(names)


def test_a_slot_that_is_unchanged_is_written_in_one_transaction(database_url: str) -> None:
    decision, row, transactions = armed(database_url)
    assert (row["state"], row["runner_id"], bytes(row["jit"])) == ("armed", 7, b"sealed")
    assert decision.slot is not None
    assert decision.slot.generation == row["generation"] > 5
    assert transactions == 1
    assert msgspec.structs.asdict(decision.slot)["stamped"]


@pytest.mark.parametrize(
    ("change", "era", "code"),
    [
        ("UPDATE slots SET generation = 6", "", Refused.OFFER_OVER),
        ("UPDATE slots SET generation = 6, state = 'idle'", "", Refused.OFFER_OVER),
        ("DELETE FROM slots", "", Refused.OFFER_OVER),
        ("", "2001-01-01 00:00:00+00", Refused.DATABASE_FAILED_OVER),
    ],
)
def test_a_slot_that_has_changed_is_not_written(
    database_url: str, change: str, era: str, code: Refused
) -> None:
    decision, row, _ = armed(database_url, change=change, era=era)
    assert decision.refused is not None
    assert decision.refused.code is code
    assert row.get("jit") is None
    assert row.get("state") != "armed"
