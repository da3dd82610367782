"""The first event of a job is applied in one round trip, and again if the outcome of its commit is unknown."""

from typing import Any

import pytest
from tests.dispatch.dispatchharness import Harness, play
from tests.dispatch.test_dispatch_intake import event, send

from runyard.db.contract import CommitUnknown, Row, Statement
from runyard.db.inline import InlineDatabase, InlineTx
from runyard.embedded.github.identity import KeyPair


def test_the_first_event_of_a_job_takes_one_round_trip(
    database_url: str, app_keys: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    several = InlineTx.several

    async def counting(tx: InlineTx, *statements: Statement) -> list[list[Row]]:
        sent.append(len(statements))
        return await several(tx, *statements)

    async def scenario(harness: Harness) -> None:
        await send(harness, event("queued", job_id=4), "g-0")  # opens the connection
        monkeypatch.setattr(InlineTx, "several", counting)
        assert (await send(harness, event("queued"))).status == 200
        assert len(sent) == 1
        assert harness.job(5)["state"] == "queued"

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("committed", [True, False])
def test_an_event_whose_commit_is_unknown_is_applied_again(
    database_url: str, app_keys: KeyPair, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    transact = InlineDatabase.transact
    failures: list[str] = []

    async def failing(database: InlineDatabase, work: Any, *, name: str) -> Any:
        if failures:
            return await transact(database, work, name=name)
        failures.append(name)
        if committed:
            await transact(database, work, name=name)
        raise CommitUnknown("the connection was closed")

    async def scenario(harness: Harness) -> None:
        monkeypatch.setattr(InlineDatabase, "transact", failing)
        waiters = harness.server.shared.waiters
        waiters.wakeup.clear()
        assert (await send(harness, event("queued"))).status == 200
        assert waiters.wakeup.is_set()
        assert failures == ["webhook"]
        assert harness.job(5)["state"] == "queued"
        assert len(harness.rows("SELECT guid FROM deliveries")) == 1
        assert len(harness.rows("SELECT id FROM transitions WHERE job_id = 5")) == 1

    play(scenario, database_url, app_keys)
