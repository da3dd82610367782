"""Credentials are fetched once, replaced early, and never shown."""

import asyncio
from typing import Any

import jwt
import msgspec
import pytest

from runyard.github import errors
from runyard.github.app import AppAuth, Token
from runyard.github.views import MintedRunner
from runyard.http.messages import Response


def test_a_jwt_is_reused_for_most_of_ten_minutes(fleet: Any) -> None:
    first = fleet.app.jwt()
    fleet.clock.t += 500
    assert fleet.app.jwt() == first
    fleet.clock.t += 20
    second = fleet.app.jwt()
    assert second != first
    claims = jwt.decode(second, options={"verify_signature": False})
    assert claims["iat"] == int(fleet.clock.t) - 60
    assert claims["exp"] - claims["iat"] == 600


def test_a_clock_that_was_set_back_does_not_keep_a_jwt_from_the_future(fleet: Any) -> None:
    fleet.app.jwt()
    fleet.clock.t -= 3600
    asyncio.run(fleet.github.installations())


@pytest.mark.parametrize("skew", [-50, 50], ids=["behind", "ahead"])
def test_a_jwt_of_a_slightly_wrong_clock_is_accepted(fleet: Any, skew: int) -> None:
    async def scenario() -> None:
        # Signed by a host with a wrong clock, judged by GitHub's.
        fleet.clock.t += skew
        fleet.app.jwt()
        fleet.clock.t -= skew
        assert len(await fleet.github.installations()) == 1

    asyncio.run(scenario())
    assert fleet.wire.count("/app/installations") == 1


def test_a_token_is_replaced_before_it_ends(fleet: Any) -> None:
    async def scenario() -> None:
        await fleet.github.list_runners(fleet.org)
        fleet.clock.t += 3000
        await fleet.github.list_runners(fleet.org)
        assert fleet.wire.count("access_tokens") == 1
        fleet.clock.t += 310
        await fleet.github.list_runners(fleet.org)
        assert fleet.wire.count("access_tokens") == 2

    asyncio.run(scenario())


def test_a_revoked_token_is_replaced_within_the_call(fleet: Any) -> None:
    async def scenario() -> None:
        await fleet.github.list_runners(fleet.org)
        fleet.core.revoke_tokens()
        assert await fleet.github.list_runners(fleet.org) == ()
        assert fleet.wire.count("access_tokens") == 2

    asyncio.run(scenario())


def test_many_callers_share_one_refresh(fleet: Any) -> None:
    async def scenario() -> None:
        async def slowly(request: Any, onward: Any) -> Any:
            await asyncio.sleep(0)
            return await onward()

        fleet.wire.tamper = slowly
        async with asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(fleet.github.list_runners(fleet.org))
        assert fleet.wire.count("access_tokens") == 1

    asyncio.run(scenario())


def test_a_failed_refresh_fails_all_waiting_callers_and_is_not_cached(fleet: Any) -> None:
    async def scenario() -> None:
        fleet.core.faults.fail_next("/app/installations/", 503)

        async def slowly(request: Any, onward: Any) -> Any:
            await asyncio.sleep(0)
            return await onward()

        fleet.wire.tamper = slowly
        results = await asyncio.gather(
            *(fleet.github.list_runners(fleet.org) for _ in range(5)), return_exceptions=True
        )
        assert [type(result) for result in results] == [errors.NoToken] * 5
        assert fleet.wire.count("access_tokens") == 1
        assert await fleet.github.list_runners(fleet.org) == ()

    asyncio.run(scenario())


def test_another_caller_refreshes_after_a_cancellation(fleet: Any) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        calls = 0

        async def fetch(_: int) -> Token:
            nonlocal calls
            calls += 1
            if calls == 1:
                await gate.wait()
            return Token(value="t", expires_at=fleet.clock.now() + 3600)

        async with asyncio.TaskGroup() as group:
            leader = group.create_task(fleet.app.token(1, fetch))
            await asyncio.sleep(0)
            follower = group.create_task(fleet.app.token(1, fetch))
            doomed = group.create_task(fleet.app.token(1, fetch))
            await asyncio.sleep(0)
            doomed.cancel()
            await asyncio.sleep(0)
            leader.cancel()
        assert follower.result() == "t"
        assert calls == 2

    asyncio.run(scenario())


def test_a_key_that_is_no_rsa_key_is_refused_at_the_start(fleet: Any) -> None:
    with pytest.raises(ValueError):
        AppAuth(app_id=1, private_key="not a key", clock=fleet.clock)


def test_credentials_are_in_no_repr_and_no_error(fleet: Any) -> None:
    token = Token(value="ghs_s3cret", expires_at=1.0)
    minted = MintedRunner(runner_id=1, encoded_jit_config="s3cret")
    for value in (token, minted, fleet.app, fleet.github, [token], {"x": minted}):
        assert "s3cret" not in repr(value)
        assert "s3cret" not in f"{value!s}"
    assert "s3cret" not in str(token.__rich_repr__()) + str(minted.__rich_repr__())

    async def scenario() -> None:
        async def leak(request: Any, onward: Any) -> Any:
            answer = await onward()
            if "jitconfig" not in request.path:
                return answer
            body = answer.json()
            body["runner"]["id"] = body["encoded_jit_config"]
            return Response(status=201, body=msgspec.json.encode(body))

        fleet.wire.tamper = leak
        with pytest.raises(errors.Unreadable) as problem:
            await fleet.github.generate_jit(fleet.org, name="a", labels=("x",))
        jit = next(iter(fleet.core.runners().values())).jit
        chain: BaseException | None = problem.value
        while chain is not None:
            assert jit[:40] not in str(chain)
            chain = chain.__cause__

    asyncio.run(scenario())
