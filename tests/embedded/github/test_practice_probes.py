"""A practice GitHub whose store cannot be written reports that it is not ready."""

import asyncio
import random
from pathlib import Path

import pytest

from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.embedded.github.store import RecordStore, StoreError
from runyard.http.messages import Request
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual


@pytest.fixture(scope="module")
def keys() -> KeyPair:
    return generate_key_pair()


async def statuses(core: GithubCore) -> list[int]:
    """The statuses of both probes, without a credential or user agent."""
    paths = ("/healthz", "/readyz", "/metrics")
    answers = [await core.handle(Request(method="GET", path=path)) for path in paths]
    assert all(answer.header("x-runyard-practice") == "github" for answer in answers)
    return [answer.status for answer in answers]


def test_it_is_ready_while_its_store_can_be_written(
    keys: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        clock, store = VirtualClock(), RecordStore(tmp_path / "github.db")
        core = GithubCore(
            clock=clock,
            rng=random.Random(1),
            app=PracticeApp(app_id=1, public_key=keys.public_pem, webhook_secret="hush"),
            store=store,
        )
        core.install("acme")
        async with asyncio.TaskGroup() as group:
            carrying = group.create_task(core.run())
            await clock.sleep(60)
            assert await statuses(core) == [200, 200, 403]
            with monkeypatch.context() as broken:
                broken.setattr(RecordStore, "commit", full)
                with pytest.raises(StoreError):
                    core.add_repo("acme/app")
                assert (await statuses(core))[:2] == [200, 200]  # a short failure is tolerated
                await clock.sleep(30)
                assert (await statuses(core))[:2] == [200, 503]
            assert (await statuses(core))[:2] == [200, 200]
            carrying.cancel()
        store.close()

    run_virtual(main())


def full(*_: object, **__: object) -> None:
    raise StoreError("the disk is full", fix="free some space")
