"""Tokens: bound to an account, to a Pod, to an audience and to a time."""

from typing import Any

import pytest
from tests.embedded.kube.coresupport import ACCOUNTS, NODES, PODS, REVIEWS, Harness, node, play, pod

AUDIENCE = "example-audience"
EXTRA = "authentication.kubernetes.io"


async def token(
    harness: Harness, *, account: str = "runner", seconds: int = 3600, **ref: str
) -> str:
    spec: dict[str, Any] = {"audiences": [AUDIENCE], "expirationSeconds": seconds}
    if ref:
        spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1"} | ref
    made = await harness.ok("POST", f"{ACCOUNTS}/{account}/token", {"spec": spec})
    text: str = made["status"]["token"]
    return text


async def review(harness: Harness, text: str, audience: str = AUDIENCE) -> dict[str, Any]:
    body = {"spec": {"token": text, "audiences": [audience]}}
    status: dict[str, Any] = (await harness.ok("POST", REVIEWS, body))["status"]
    return status


async def with_pod(harness: Harness) -> str:
    await harness.ok("POST", ACCOUNTS, {"metadata": {"name": "runner"}})
    made = await harness.ok("POST", PODS, pod("runner", serviceAccountName="runner"))
    uid: str = made["metadata"]["uid"]
    return uid


def test_a_bound_token_names_its_account_and_its_pod() -> None:
    async def scenario(harness: Harness) -> None:
        uid = await with_pod(harness)
        status = await review(harness, await token(harness, name="runner", uid=uid))
        assert status["authenticated"] is True and status["audiences"] == [AUDIENCE]
        user = status["user"]
        assert user["username"] == "system:serviceaccount:default:runner"
        assert user["extra"].pop(f"{EXTRA}/credential-id")[0].startswith("JTI=")
        assert user["extra"] == {f"{EXTRA}/pod-name": ["runner"], f"{EXTRA}/pod-uid": [uid]}

    play(scenario)


def test_a_token_ends_with_its_pod_even_if_the_name_returns() -> None:
    async def scenario(harness: Harness) -> None:
        uid = await with_pod(harness)
        bound, free = await token(harness, name="runner", uid=uid), await token(harness)
        await harness.ok("DELETE", f"{PODS}/runner")
        assert (await review(harness, bound)).get("authenticated") is None
        await harness.ok("POST", PODS, pod("runner", serviceAccountName="runner"))
        status = await review(harness, bound)
        assert status.get("authenticated") is None and "no longer exists" in status["error"]
        assert (await review(harness, free))["authenticated"] is True

    play(scenario)


def test_a_token_ends_with_its_account_even_if_the_name_returns() -> None:
    async def scenario(harness: Harness) -> None:
        await with_pod(harness)
        free = await token(harness)
        await harness.ok("DELETE", f"{ACCOUNTS}/runner")
        await harness.ok("POST", ACCOUNTS, {"metadata": {"name": "runner"}})
        assert (await review(harness, free)).get("authenticated") is None

    play(scenario)


def test_a_token_of_a_long_overdue_pod_is_invalid() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", NODES, node())
        uid = await with_pod(harness)
        bound = await token(harness, name="runner", uid=uid, seconds=9999)
        await harness.ok("DELETE", f"{PODS}/runner")
        assert (await review(harness, bound))["authenticated"] is True
        await harness.clock.sleep(92)
        assert (await review(harness, bound)).get("authenticated") is None

    play(scenario)


def test_a_token_expires() -> None:
    async def scenario(harness: Harness) -> None:
        await with_pod(harness)
        text = await token(harness, seconds=600)
        await harness.clock.sleep(599)
        assert (await review(harness, text))["authenticated"] is True
        await harness.clock.sleep(1)
        assert (await review(harness, text))["error"].endswith("token has expired]")

    play(scenario)


def test_a_forged_token_or_another_audience_is_not_authenticated() -> None:
    async def scenario(harness: Harness) -> None:
        await with_pod(harness)
        text = await token(harness)
        assert (await review(harness, text, "elsewhere")).get("authenticated") is None
        head, body, _ = text.split(".")
        unsigned = "eyJhbGciOiJub25lIn0." + body + "."
        for forged in ("x", "a.b.c", text[:-4] + "AAAA", f"{head}.{body}.", unsigned):
            status = await review(harness, forged)
            assert status.get("authenticated") is None and status["error"]
        assert (await review(Harness(), text)).get("authenticated") is None
        assert (await review(harness, text))["authenticated"] is True

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

    async def scenario(harness: Harness) -> None:
        await with_pod(harness)
        await harness.ok("POST", PODS, pod("p"))
        answer = await harness.call("POST", f"{ACCOUNTS}/runner/token", {"spec": spec})
        assert answer.status == code

    play(scenario)
