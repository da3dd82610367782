"""The practice GitHub answers as GitHub would, and says that it is not GitHub."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tiers import examples

from runyard.embedded.github.identity import generate_key_pair
from runyard.http.messages import Request

RUNNERS = "/orgs/acme/actions/runners"
MINT = f"{RUNNERS}/generate-jitconfig"
GOOD: dict[str, Any] = {"name": "a", "runner_group_id": 1, "labels": ["mac"], "work_folder": "w"}


def test_it_says_that_it_is_a_practice_component(practice: Any) -> None:
    meta = practice.ask("GET", "/meta", auth="")
    assert meta.status == 200 and meta.json()["practice"] is True
    for answer in (meta, practice.ask("GET", RUNNERS), practice.ask("GET", "/nowhere", auth="x")):
        assert answer.header("x-runyard-practice") == "github"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"exp": 1_760_000_000 - 10}, id="expired"),
        pytest.param({"exp": 1_760_000_000 + 700}, id="too-long"),
        pytest.param({"iat": 1_760_000_000 + 60}, id="issued-in-the-future"),
        pytest.param({"iss": "78"}, id="another-app"),
        pytest.param({"iss": None}, id="no-issuer"),
        pytest.param({"exp": None}, id="no-end"),
        pytest.param({"iat": None}, id="no-start"),
        pytest.param({"exp": 1_760_000_000.5}, id="fraction"),
    ],
)
def test_a_wrong_jwt_is_refused(practice: Any, changes: dict[str, Any]) -> None:
    try:
        credential = practice.jwt(**changes)
    except TypeError:
        pytest.fail("the claim could not be signed")
    assert practice.ask("GET", "/app", auth=credential).status == 401


def test_a_jwt_of_another_key_is_refused(make_practice: Any) -> None:
    practice = make_practice()
    practice.keys = generate_key_pair()
    assert practice.ask("GET", "/app", auth=practice.jwt()).status == 401


def test_a_jwt_expires(practice: Any) -> None:
    credential = practice.jwt()
    assert practice.ask("GET", "/app", auth=credential).status == 200
    practice.clock.t += 560
    assert practice.ask("GET", "/app", auth=credential).status == 401


def test_a_token_ends_after_an_hour(practice: Any) -> None:
    practice.clock.t += 3590
    assert practice.ask("GET", RUNNERS).status == 200
    practice.clock.t += 11
    assert practice.ask("GET", RUNNERS).status == 401


@pytest.mark.parametrize("auth", ["", "nonsense", "a.b.c", "ghs_0000", "ü", "é.é.é"])
@pytest.mark.parametrize("path", ["/app", RUNNERS])
def test_an_invalid_credential_is_refused(practice: Any, path: str, auth: str) -> None:
    assert practice.ask("GET", path, auth=auth).status == 401


def test_the_two_credentials_are_not_interchangeable(practice: Any) -> None:
    assert practice.ask("GET", "/app").status == 401
    assert practice.ask("GET", RUNNERS, auth=practice.jwt()).status == 401


def test_a_request_without_user_agent_is_refused(practice: Any) -> None:
    request = Request(
        method="GET", path=RUNNERS, headers=(("authorization", f"Bearer {practice.token}"),)
    )
    assert asyncio.run(practice.core.handle(request)).status == 403


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param("/orgs/ACME/actions/runners", 200, id="names-ignore-case"),
        pytest.param("/repos/acme/App/actions/runners", 200, id="repository"),
        pytest.param("/orgs/mona/actions/runners", 404, id="a-person-is-no-organisation"),
        pytest.param("/orgs/nobody/actions/runners", 404, id="no-such-organisation"),
        pytest.param("/repos/mona/dots/actions/runners", 404, id="foreign-repository-is-hidden"),
        pytest.param("/repos/acme/nothing/actions/runners", 404, id="no-such-repository"),
        pytest.param("/orgs/acme/actions/runners/0", 404, id="no-such-runner"),
        pytest.param("/orgs/acme/actions/runners/" + "9" * 5000, 404, id="enormous-id"),
        pytest.param("/repos/acme/app/actions/jobs/1", 404, id="no-such-job"),
        pytest.param("/repos/acme/app/actions/runs/1/jobs", 404, id="no-such-run"),
        pytest.param("//", 404, id="slashes"),
        pytest.param("/user", 404, id="not-served"),
    ],
)
def test_an_installation_sees_only_its_own_repositories(
    practice: Any, path: str, status: int
) -> None:
    assert practice.ask("GET", path).status == status


def test_another_organisation_is_refused(practice: Any) -> None:
    other = practice.core.install("globex")
    assert practice.ask("GET", RUNNERS, auth=practice.token_of(other)).status == 403


def test_a_minted_runner_has_githubs_shape(practice: Any) -> None:
    answer = practice.ask("POST", MINT, GOOD)
    assert answer.status == 201
    runner = answer.json()["runner"]
    assert (runner["name"], runner["status"], runner["busy"]) == ("a", "offline", False)
    assert [label["name"] for label in runner["labels"]] == ["mac"]
    assert practice.ask("GET", f"{RUNNERS}/{runner['id']}").json() == runner
    listed = practice.ask("GET", RUNNERS, query=(("name", "a"),)).json()
    assert listed == {"total_count": 1, "runners": [runner]}
    assert practice.ask("GET", RUNNERS, query=(("name", "b"),)).json()["total_count"] == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param({**GOOD, "name": "a" * 64}, 201, id="longest-name"),
        pytest.param({**GOOD, "name": "a" * 65}, 422, id="name-too-long"),
        pytest.param({**GOOD, "name": " "}, 422, id="blank-name"),
        pytest.param({**GOOD, "name": 7}, 422, id="name-is-a-number"),
        pytest.param({**GOOD, "labels": []}, 422, id="no-labels"),
        pytest.param({**GOOD, "labels": ["x"] * 101}, 422, id="too-many-labels"),
        pytest.param({**GOOD, "labels": ["x" * 257]}, 422, id="label-too-long"),
        pytest.param({**GOOD, "labels": "mac"}, 422, id="labels-no-list"),
        pytest.param({**GOOD, "runner_group_id": 99}, 422, id="no-such-group"),
        pytest.param({"name": "a"}, 422, id="fields-missing"),
        pytest.param([], 422, id="a-list"),
        pytest.param(None, 400, id="no-body"),
    ],
)
def test_a_mint_is_validated(practice: Any, body: Any, status: int) -> None:
    assert practice.ask("POST", MINT, body).status == status
    assert len(practice.core.runners()) == (status == 201)


def test_a_name_is_taken_until_its_runner_is_gone_and_per_scope(practice: Any) -> None:
    runner_id, _ = practice.mint("a")
    assert practice.ask("POST", MINT, GOOD).status == 409
    practice.mint("a", scope="repos/acme/app")
    assert practice.ask("DELETE", f"{RUNNERS}/{runner_id}").status == 204
    assert practice.ask("DELETE", f"{RUNNERS}/{runner_id}").status == 404
    practice.mint("a")


def test_a_full_runner_group_refuses(practice: Any) -> None:
    for number in range(50):
        practice.mint(f"r{number}")
    assert practice.ask("POST", MINT, GOOD).status == 422


def test_pages_have_a_total_and_a_link(practice: Any) -> None:
    for number in range(5):
        practice.mint(f"r{number}")
    page = practice.ask("GET", RUNNERS, query=(("per_page", "2"), ("page", "2")))
    assert [runner["name"] for runner in page.json()["runners"]] == ["r2", "r3"]
    assert page.json()["total_count"] == 5
    assert 'page=3>; rel="next"' in page.header("link")
    last = practice.ask("GET", RUNNERS, query=(("per_page", "2"), ("page", "3")))
    assert len(last.json()["runners"]) == 1 and last.header("link") == ""
    far = practice.ask("GET", RUNNERS, query=(("page", "9" * 18),))
    assert far.status == 200 and far.json()["runners"] == []


def test_an_outage_answers_503_to_everything_and_changes_nothing(practice: Any) -> None:
    practice.core.faults.outage = True
    for method, path in (("GET", RUNNERS), ("POST", MINT), ("GET", "/meta"), ("GET", "/app")):
        assert practice.ask(method, path, GOOD).status == 503
    practice.core.faults.outage = False
    assert not practice.core.runners()


def test_a_scripted_failure_is_used_up(practice: Any) -> None:
    practice.core.faults.fail_next(RUNNERS, 500, 2, method="GET")
    assert practice.ask("POST", MINT, GOOD).status == 201
    statuses = [practice.ask("GET", RUNNERS).status for _ in range(3)]
    assert statuses == [500, 500, 200]


def test_the_primary_limit_counts_down_and_resets(practice: Any) -> None:
    practice.core.set_limits(primary_per_hour=2)
    first = practice.ask("GET", RUNNERS)
    missing = practice.ask("GET", f"{RUNNERS}/1")
    assert (first.header("x-ratelimit-remaining"), missing.status) == ("1", 404)
    assert missing.header("x-ratelimit-remaining") == "0"
    over = practice.ask("GET", RUNNERS)
    assert over.status == 403 and over.header("x-ratelimit-remaining") == "0"
    assert float(over.header("x-ratelimit-reset")) > practice.clock.t
    practice.clock.t += 3600
    practice.token = practice.token_of(practice.acme)
    assert practice.ask("GET", RUNNERS).status == 200


def test_the_secondary_limit_counts_a_write_five_times(practice: Any) -> None:
    practice.core.set_limits(points_per_minute=6)
    assert practice.ask("POST", MINT, GOOD).status == 201
    assert practice.ask("GET", RUNNERS).status == 200
    over = practice.ask("GET", RUNNERS)
    assert over.status == 403 and over.header("retry-after") == "60"
    practice.clock.t += 60
    assert practice.ask("GET", RUNNERS).status == 200


WORDS = (
    *("app", "orgs", "repos", "acme", "lib", "actions", "runners", "jobs", "runs", "mona"),
    *("generate-jitconfig", "hook", "deliveries", "attempts", "installations"),
    *("access_tokens", "meta", "0", "1", "-1", "1003"),
)
SEGMENTS = st.one_of(
    st.sampled_from(WORDS),
    st.text(max_size=8),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.text(max_size=70)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
BODIES = st.one_of(
    st.binary(max_size=60),
    st.fixed_dictionaries(
        {"name": VALUES, "runner_group_id": VALUES, "labels": VALUES}, optional={"x": VALUES}
    ).map(msgspec.json.encode),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
@given(
    method=st.sampled_from(["GET", "POST", "DELETE", "PATCH", "", "get"]),
    segments=st.lists(SEGMENTS, max_size=8),
    auth=st.sampled_from(["app", "installation"]) | st.text(max_size=30),
    query=st.lists(
        st.tuples(
            st.sampled_from(["per_page", "page", "cursor", "name", "status"]), st.text(max_size=12)
        ),
        max_size=3,
    ),
    body=BODIES,
)
def test_invalid_requests_are_never_an_internal_error(
    practice: Any, method: str, segments: list[str], auth: str, query: Any, body: bytes
) -> None:
    known = {"app": practice.app_jwt, "installation": practice.token}
    request = Request(
        method=method,
        path="/" + "/".join(segments),
        query=tuple(query),
        headers=(("authorization", f"Bearer {known.get(auth, auth)}"), ("user-agent", "x")),
        body=body,
    )
    answer = asyncio.run(practice.core.handle(request))
    assert 200 <= answer.status < 500
    assert practice.core.internal_errors == 0
