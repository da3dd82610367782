"""A practice GitHub whose memory cannot be written must not look ready."""

import asyncio
import random
from pathlib import Path

import pytest

from runyard.embedded.github.core import GithubCore
from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.embedded.github.keep import Keeper, KeepError
from runyard.http.messages import Request
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual


@pytest.fixture(scope="module")
def keys() -> KeyPair:
    return generate_key_pair()


async def statuses(core: GithubCore) -> list[int]:
    """As anybody sees them: no credential, no user agent."""
    paths = ("/healthz", "/readyz", "/metrics")
    answers = [await core.handle(Request(method="GET", path=path)) for path in paths]
    assert all(answer.header("x-runyard-practice") == "github" for answer in answers)
    return [answer.status for answer in answers]


def test_it_is_ready_while_its_memory_can_be_written(
    keys: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        clock, keeper = VirtualClock(), Keeper(tmp_path / "github.db")
        core = GithubCore(
            clock=clock,
            rng=random.Random(1),
            app_id=1,
            public_key=keys.public_pem,
            webhook_secret="hush",
            keeper=keeper,
        )
        core.install("acme")
        async with asyncio.TaskGroup() as group:
            carrying = group.create_task(core.run())
            await clock.sleep(60)
            assert await statuses(core) == [200, 200, 403]
            with monkeypatch.context() as broken:
                broken.setattr(Keeper, "commit", full)
                with pytest.raises(KeepError):
                    core.add_repo("acme/app")
                assert (await statuses(core))[:2] == [200, 200]  # a blip, until it lasts
                await clock.sleep(30)
                assert (await statuses(core))[:2] == [200, 503]
            assert (await statuses(core))[:2] == [200, 200]
            carrying.cancel()
        keeper.close()

    run_virtual(main())


def full(*_: object, **__: object) -> None:
    raise KeepError("the disk is full", fix="make room")
