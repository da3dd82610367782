"""Tokens: bound to an account, to a Pod, to an audience and to a time."""

from typing import Any

import pytest
from tests.embedded.kube.coresupport import ACCOUNTS, NODES, PODS, REVIEWS, World, node, play, pod

AUDIENCE = "example-audience"
EXTRA = "authentication.kubernetes.io"


async def token(world: World, *, account: str = "runner", seconds: int = 3600, **ref: str) -> str:
    spec: dict[str, Any] = {"audiences": [AUDIENCE], "expirationSeconds": seconds}
    if ref:
        spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1"} | ref
    made = await world.ok("POST", f"{ACCOUNTS}/{account}/token", {"spec": spec})
    text: str = made["status"]["token"]
    return text


async def review(world: World, text: str, audience: str = AUDIENCE) -> dict[str, Any]:
    body = {"spec": {"token": text, "audiences": [audience]}}
    status: dict[str, Any] = (await world.ok("POST", REVIEWS, body))["status"]
    return status


async def with_pod(world: World) -> str:
    await world.ok("POST", ACCOUNTS, {"metadata": {"name": "runner"}})
    made = await world.ok("POST", PODS, pod("runner", serviceAccountName="runner"))
    uid: str = made["metadata"]["uid"]
    return uid


def test_a_bound_token_names_its_account_and_its_pod() -> None:
    async def scenario(world: World) -> None:
        uid = await with_pod(world)
        status = await review(world, await token(world, name="runner", uid=uid))
        assert status["authenticated"] is True and status["audiences"] == [AUDIENCE]
        user = status["user"]
        assert user["username"] == "system:serviceaccount:default:runner"
        assert user["extra"].pop(f"{EXTRA}/credential-id")[0].startswith("JTI=")
        assert user["extra"] == {f"{EXTRA}/pod-name": ["runner"], f"{EXTRA}/pod-uid": [uid]}

    play(scenario)


def test_a_token_ends_with_its_pod_even_if_the_name_returns() -> None:
    async def scenario(world: World) -> None:
        uid = await with_pod(world)
        bound, free = await token(world, name="runner", uid=uid), await token(world)
        await world.ok("DELETE", f"{PODS}/runner")
        assert (await review(world, bound)).get("authenticated") is None
        await world.ok("POST", PODS, pod("runner", serviceAccountName="runner"))
        status = await review(world, bound)
        assert status.get("authenticated") is None and "no longer exists" in status["error"]
        assert (await review(world, free))["authenticated"] is True

    play(scenario)


def test_a_token_ends_with_its_account_even_if_the_name_returns() -> None:
    async def scenario(world: World) -> None:
        await with_pod(world)
        free = await token(world)
        await world.ok("DELETE", f"{ACCOUNTS}/runner")
        await world.ok("POST", ACCOUNTS, {"metadata": {"name": "runner"}})
        assert (await review(world, free)).get("authenticated") is None

    play(scenario)


def test_a_token_of_a_long_overdue_pod_is_invalid() -> None:
    async def scenario(world: World) -> None:
        await world.ok("POST", NODES, node())
        uid = await with_pod(world)
        bound = await token(world, name="runner", uid=uid, seconds=9999)
        await world.ok("DELETE", f"{PODS}/runner")
        assert (await review(world, bound))["authenticated"] is True
        await world.clock.sleep(92)
        assert (await review(world, bound)).get("authenticated") is None

    play(scenario)


def test_a_token_expires() -> None:
    async def scenario(world: World) -> None:
        await with_pod(world)
        text = await token(world, seconds=600)
        await world.clock.sleep(599)
        assert (await review(world, text))["authenticated"] is True
        await world.clock.sleep(1)
        assert (await review(world, text))["error"].endswith("token has expired]")

    play(scenario)


def test_a_forged_token_or_another_audience_is_not_authenticated() -> None:
    async def scenario(world: World) -> None:
        await with_pod(world)
        text = await token(world)
        assert (await review(world, text, "elsewhere")).get("authenticated") is None
        head, body, _ = text.split(".")
        unsigned = "eyJhbGciOiJub25lIn0." + body + "."
        for forged in ("x", "a.b.c", text[:-4] + "AAAA", f"{head}.{body}.", unsigned):
            status = await review(world, forged)
            assert status.get("authenticated") is None and status["error"]
        assert (await review(World(), text)).get("authenticated") is None
        assert (await review(world, text))["authenticated"] is True

    play(scenario)


REFUSED = {
    "too short": ({"expirationSeconds": 10}, 422),
    "not a number": ({"expirationSeconds": "x"}, 422),
    "no such Pod": ({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "no"}}, 404),
    "another life": (
        {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "runner", "uid": "x"}},
        409,
    ),
    "another account's Pod": (
        {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}},
        400,
    ),
    "no such Secret": (
        {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s"}},
        404,
    ),
    "another kind": (
        {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "s"}},
        400,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_invalid_token_request_is_refused(case: str) -> None:
    spec, code = REFUSED[case]

    async def scenario(world: World) -> None:
        await with_pod(world)
        await world.ok("POST", PODS, pod("p"))
        answer = await world.call("POST", f"{ACCOUNTS}/runner/token", {"spec": spec})
        assert answer.status == code

    play(scenario)
