"""Webhooks are applied only if GitHub signed them, in any order and number, whatever they contain."""

import itertools
import random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.dispatch.dispatchharness import LABELS, SECRET, Harness, play

from runyard.embedded.github.identity import KeyPair
from runyard.github.signatures import sign
from runyard.http.messages import Request, Response
from runyard.sim.loop import run_virtual
from runyard.wire.paths import GITHUB_WEBHOOK
from runyard.wire.reasons_dispatch import DeliveryOutcome


def event(action: str, job_id: int = 5, **changes: Any) -> dict[str, Any]:
    job = {
        "id": job_id,
        "run_id": 1,
        "status": action,
        "labels": list(LABELS),
        "runner_name": None if action == "queued" else changes.pop("runner", "mac-runner-00000001"),
        "conclusion": "success" if action == "completed" else None,
    }
    return {
        "action": action,
        "workflow_job": job | changes.pop("job", {}),
        "repository": {"id": 1, "full_name": changes.pop("repo", "acme/app")},
        "installation": {"id": 7},
        "organization": {"login": "acme", "id": 3},
    } | changes


def hook(body: bytes, guid: str = "g-1", *, secret: str = SECRET, **headers: str) -> Request:
    pairs = {
        "x-github-event": "workflow_job",
        "x-github-delivery": guid,
        "x-hub-signature-256": sign(body, secret),
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(method="POST", path=GITHUB_WEBHOOK, headers=tuple(pairs.items()), body=body)


async def send(harness: Harness, body: Any, guid: str = "g-1", **more: str) -> Response:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    answer = await harness.server.intake.api.handle(hook(raw, guid, **more))
    assert isinstance(answer, Response)
    return answer


def test_only_what_github_signed_is_read(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        body = event("queued")
        for header in ("", "sha256=", "sha1=abc", "sha256=" + "0" * 64, "\udcff"):
            answer = await send(harness, body, x_hub_signature_256=header)
            assert answer.status == 401
        assert (await send(harness, body, secret="wrong")).status == 401
        assert (await send(harness, body, secret="")).status == 401
        assert harness.rows("SELECT * FROM jobs") == [] == harness.rows("SELECT * FROM deliveries")
        assert (await send(harness, body, secret="old")).status == 200
        assert (await send(harness, event("queued", 6), "g-2", secret="new")).status == 200
        assert len(harness.rows("SELECT * FROM jobs")) == 2

    play(scenario, database_url, app_keys, webhook_secrets=("new", "old", ""))


def test_a_body_that_is_too_large_is_not_read(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        body = event("queued", padding="x" * 2000)
        assert (await send(harness, body)).status == 413
        assert (await send(harness, event("queued"))).status == 200

    play(scenario, database_url, app_keys, body_limit=1500)


@pytest.mark.parametrize("guid", ["", "x" * 101, "a\0b", "\udc00"])
def test_a_delivery_without_a_usable_guid_is_refused(
    database_url: str, app_keys: KeyPair, guid: str
) -> None:
    async def scenario(harness: Harness) -> None:
        assert (await send(harness, event("queued"), guid)).status == 400

    play(scenario, database_url, app_keys)


def test_another_event_is_acknowledged_and_ignored(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        assert (await send(harness, {}, x_github_event="ping")).json() == {"outcome": "ignored"}
        assert harness.rows("SELECT * FROM deliveries") == []

    play(scenario, database_url, app_keys)


INVALID = {
    "not JSON": b"{",
    "not UTF-8": b'{"action": "\xff"}',
    "nothing": b"",
    "a list": b"[]",
    "half of a pair": msgspec.json.encode(event("queued")).replace(b"shape-mac", b"\\ud800"),
    "NUL in a label": event("queued", job={"labels": ["a\0b"]}),
    "NUL in the runner": event("in_progress", runner="a\0b"),
    "NUL in the conclusion": event("completed", job={"conclusion": "\0"}),
    "NUL in the repository": event("queued", repo="acme/a\0b"),
    "no owner": event("queued", repo="app"),
    "a path": event("queued", repo="acme/../../orgs"),
    "a huge id": event("queued", 2**70),
    "a negative id": event("queued", -1),
    "no installation": event("queued", installation=None),
    "installation zero": event("queued", installation={"id": 0}),
    "labels without end": event("queued", job={"labels": ["x" * 150] * 100}),
    "labels of many bytes": event(
        "queued", job={"labels": [chr(0x4E00 + n) * 100 for n in range(9)]}
    ),
    "many short labels": event("queued", job={"labels": [f"l{n}" for n in range(200)]}),
    "a label too long": event("queued", job={"labels": ["x" * 5000]}),
}
HAN = random.Random(1).choices(
    [chr(n) for n in range(0x4E00, 0x9FA5)], k=650
)  # not to be compressed
AS_LARGE_AS_CAN_BE = {
    "of many bytes": ["".join(HAN[n : n + 130]) for n in range(0, 650, 130)],
    "of many labels": [f"{n:03}" for n in range(181)],
}
OF_NO_INTEREST = {
    "unknown action": event("exploded"),
}


@pytest.mark.parametrize("name", [*INVALID, *OF_NO_INTEREST])
def test_an_invalid_event_is_refused_with_a_reason_and_changes_nothing(
    database_url: str, app_keys: KeyPair, name: str
) -> None:
    async def scenario(harness: Harness) -> None:
        answer = await send(harness, (INVALID | OF_NO_INTEREST)[name])
        if name in OF_NO_INTEREST:
            assert (answer.status, answer.json()) == (200, {"outcome": "ignored"})
        else:
            assert answer.status == 400 and answer.json()["reason"], answer.body
        assert harness.rows("SELECT * FROM jobs") == []
        # Recorded, so that the audit does not fetch it every minute.
        assert [row["guid"] for row in harness.rows("SELECT guid FROM deliveries")] == ["g-1"]

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("name", AS_LARGE_AS_CAN_BE)
def test_the_largest_accepted_labels_fit_into_the_indexes(
    database_url: str, app_keys: KeyPair, name: str
) -> None:
    async def scenario(harness: Harness) -> None:
        labels = AS_LARGE_AS_CAN_BE[name]
        repo = f"{'o' * 100}/{'r' * 100}"
        answer = await send(harness, event("queued", repo=repo, job={"labels": labels}))
        assert (answer.status, answer.json()) == (200, {"outcome": "applied"})
        labels = [*labels, labels[0]]
        assert (
            await send(harness, event("queued", 6, job={"labels": labels}), "g-2")
        ).status == 400

    play(scenario, database_url, app_keys)


TEXT = st.text(max_size=12) | st.sampled_from(
    ["\0", "queued", "completed", "acme/app", "in_progress"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["id", "labels", "runner_name", "conclusion", "full_name", "action", "installation", "run_id"]
)


def spoil(value: Any, name: str, by: Any) -> Any:
    if isinstance(value, dict):
        return {key: by if key == name else spoil(inner, name, by) for key, inner in value.items()}
    return value


SPOILED = st.tuples(
    st.sampled_from(["queued", "in_progress", "completed"]),
    FIELDS,
    VALUES,
    st.none() | st.binary(max_size=40),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(st.lists(SPOILED, min_size=5, max_size=30))
def test_every_signed_request_is_answered(
    database_url: str, app_keys: KeyPair, spoiled: list[tuple[str, str, Any, bytes | None]]
) -> None:
    async def main() -> None:
        harness = Harness(database_url, app_keys)
        try:
            for number, (action, name, by, raw) in enumerate(spoiled):
                body = msgspec.json.encode(spoil(event(action), name, by)) if raw is None else raw
                answer = await send(harness, body, f"g-{number}")
                assert answer.status in (200, 400), answer.body
        finally:
            harness.close()

    run_virtual(main())


def test_a_repeated_delivery_is_a_duplicate(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        assert (await send(harness, event("queued"))).json() == {"outcome": "applied"}
        assert (await send(harness, event("queued"))).json() == {"outcome": "duplicate"}
        assert (await send(harness, event("queued"), "g-2")).json() == {"outcome": "known"}
        assert len(harness.rows("SELECT * FROM transitions WHERE subject = 'job'")) == 1

    play(scenario, database_url, app_keys)


STORY = ("queued", "in_progress", "completed")


@pytest.mark.parametrize("order", list(itertools.permutations(STORY)), ids="-".join)
def test_any_order_and_any_number_lead_to_the_same_rows(
    database_url: str, app_keys: KeyPair, order: tuple[str, ...]
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod(1)
        guests_job = await harness.armed(guest)  # its runner is the one that the events name
        for number, action in enumerate((*order, *order)):
            body = event(action, 5, installation={"id": harness.acme})
            await send(harness, body, f"story-{number}")
        job, slot = harness.job(5), harness.slot(guest)
        assert (job["state"], job["conclusion"]) == ("done", "success")
        assert job["runner_name"] == slot["runner_name"]
        assert (slot["state"], slot["executing_job"], slot["intended_job"]) == ("draining", 5, None)
        assert harness.job(guests_job)["state"] == "queued", "its runner got another job"

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(("repo", "kind"), [("acme/app", "Organization"), ("mona/dots", "User")])
def test_the_first_webhook_creates_the_tenant(
    database_url: str, app_keys: KeyPair, repo: str, kind: str
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.armed(guest, repo)
        owner = repo.partition("/")[0]
        (tenant,) = harness.rows("SELECT * FROM tenants")
        assert (tenant["tenant"], tenant["kind"]) == (owner, kind)
        assert len(harness.rows("SELECT * FROM tenant_limits")) == 2
        scope = f"orgs/{owner}" if kind == "Organization" else f"repos/{repo}"
        assert harness.slot(guest)["scope"] == scope
        assert len(harness.github.runners()) == 1

    play(scenario, database_url, app_keys)


def test_a_reinstalled_app_updates_the_installation_and_keeps_limits(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await send(harness, event("queued"))
        harness.execute("UPDATE tenant_limits SET vcpus = 3")
        await send(harness, event("queued", 6, installation={"id": 99}), "g-2")
        (tenant,) = harness.rows("SELECT * FROM tenants")
        assert tenant["installation_id"] == 99
        assert {row["vcpus"] for row in harness.rows("SELECT * FROM tenant_limits")} == {3}

    play(scenario, database_url, app_keys)


def test_a_job_that_waits_for_approval_is_served_after_it(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        job = harness.queue(waiting=True)
        await harness.github.settle()
        assert harness.job(job)["state"] == "waiting"
        async with harness.waiting(guest):
            await harness.match()
            assert harness.slot(guest)["state"] == "idle"
            harness.github.approve_job(job)
            await harness.github.settle()
            await harness.match()
        assert harness.slot(guest)["intended_job"] == job

    play(scenario, database_url, app_keys)


def test_the_displayed_fields_of_a_job_are_stored(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        fields = {
            "run_id": 77,
            "run_attempt": 2,
            "name": "build (\0" + "x" * 500,
            "workflow_name": "CI",
            "head_branch": None,
            "head_sha": "ab" * 20,
        }
        assert (await send(harness, event("queued", job=fields))).json() == {"outcome": "applied"}
        job = harness.job(5)
        assert (job["run_id"], job["run_attempt"]) == (77, 2)
        assert job["name"] == "build ( " + "x" * 192
        assert (job["workflow"], job["branch"], job["head_sha"]) == ("CI", "", "ab" * 20)

    play(scenario, database_url, app_keys)


def test_numbers_out_of_range_do_not_lose_a_job(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        fields = {"run_id": -1, "run_attempt": 1 << 40}
        assert (await send(harness, event("queued", job=fields))).status == 200
        assert (harness.job(5)["run_id"], harness.job(5)["run_attempt"]) == (0, 1)

    play(scenario, database_url, app_keys)


def test_a_webhook_is_answered_while_github_and_kubernetes_are_down(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        async def hang(request: Request, onward: Any) -> Response:
            await harness.clock.sleep(3600)
            raise AssertionError("nobody waits that long")

        harness.github_wire.tamper = harness.kube_wire.tamper = hang
        began = harness.clock.now()
        for number, action in enumerate(("waiting", *STORY), start=1):
            answer = await send(harness, event(action), f"g-{number}")
            assert (answer.status, answer.json()) == (200, {"outcome": "applied"})
        assert harness.clock.now() == began, "somebody was waited for"
        assert harness.job(5)["state"] == "done"
        assert harness.github_wire.requests == harness.kube_wire.requests == []

    play(scenario, database_url, app_keys)


def test_only_declared_outcomes_are_stored_and_every_one_of_them_can_be(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        bodies = (event("queued"), event("queued"), event("exploded"), b"{", event("queued", 0))
        for number, body in enumerate(bodies):
            await send(harness, body, f"g-{number}")
        again = (await send(harness, event("queued"), "g-0")).json()
        assert again == {"outcome": DeliveryOutcome.DUPLICATE}
        stored = [row["outcome"] for row in harness.rows("SELECT outcome FROM deliveries")]
        assert sorted(stored) == sorted({*DeliveryOutcome} - {DeliveryOutcome.DUPLICATE})

    play(scenario, database_url, app_keys)
