"""Every invalid request to any route of the practice GitHub is answered with a reason and never with a 500.

The routes come from the route tables themselves, so a new route is tried as soon as it exists. Bodies are valid ones
with changes, because nearly valid input is processed furthest.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.embedded.github.conftest import Practice
from tests.tiers import examples

from runyard.embedded.github.store import RecordStore
from runyard.http.messages import Request

ORG = "/orgs/acme/actions/runners"
REPO = "/repos/acme/app/actions"
REST = (
    ("GET", "/meta"),
    ("GET", "/app"),
    ("GET", "/app/installations"),
    ("POST", "/app/installations/{installation}/access_tokens"),
    ("GET", "/app/hook/deliveries"),
    ("GET", "/app/hook/deliveries/{delivery}"),
    ("POST", "/app/hook/deliveries/{delivery}/attempts"),
    *((method, ORG) for method in ("GET", "POST", "DELETE")),
    ("POST", f"{ORG}/generate-jitconfig"),
    ("POST", f"{REPO}/runners/generate-jitconfig"),
    ("GET", f"{ORG}/{{runner}}"),
    ("DELETE", f"{ORG}/{{runner}}"),
    ("GET", f"{REPO}/jobs/{{job}}"),
    ("GET", f"{REPO}/runs"),
    ("GET", f"{REPO}/runs/{{run}}"),
    ("GET", f"{REPO}/runs/{{run}}/jobs"),
)
GOOD: dict[str, dict[str, Any]] = {
    "/practice/accounts": {"account": "acme", "kind": "Organization"},
    "/practice/repos": {"repo": "acme/app", "runners_allowed": True},
    "/practice/jobs": {
        "repo": "acme/app",
        "labels": ["mac"],
        "script": "true",
        "name": "unit",
        "duration": 1.5,
        "env": {"A": "b"},
        "run_id": None,
        "waiting": False,
    },
    "/practice/runner/session": {"instance": "start-0001"},
    "/practice/runner/session/conclusion": {"conclusion": "success"},
    "generate-jitconfig": {
        "name": "r",
        "runner_group_id": 1,
        "labels": ["mac"],
        "work_folder": "_work",
    },
}
ODD_TEXT = st.text(max_size=6) | st.sampled_from(
    [
        "",
        "0",
        "-1",
        "1e9",
        "9" * 18,
        "9" * 19,
        "9" * 4000,
        "٣",
        "²",
        "%00",
        "..",
        "\0",
        "\n",
        "ü" * 300,
        "v1_x",
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False)
    | st.text(alphabet=st.characters(), max_size=8)
    | st.sampled_from(["\0", "\x1b[2J", "\n", "ä" * 5000, "\ud800", "a/b/c", "/", "cancelled"])
)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
HOSTILE = st.sampled_from(
    [
        b"",
        b"{",
        b"[" * 100_000,
        b'{"a":' * 5000,
        b"\xff\xfe",
        b"\0",
        b"null",
        b"1e999999",
        b'"\\ud800"',
    ]
)


class AllRoutes:
    """A practice GitHub with some of every record, and every credential for it."""

    def __init__(self, practice: Any) -> None:
        self.practice = practice
        self.core = practice.core
        tables = (*self.core._practice_routes.routes(), *self.core._runner_routes.routes())
        self.table = [
            *((each.method, each.path, [name for name, _ in each.query]) for each in tables),
            *(
                (method, path, ["per_page", "page", "cursor", "status", "name"])
                for method, path in REST
            ),
        ]
        self.minted = 0

    def known(self) -> dict[str, str]:
        """Existing values for the parameters of route templates."""
        if not any(each.busy for each in self.core.runners().values()):
            self._start_a_job()
        worker = next(each for each in self.core.runners().values() if each.busy)
        attempts = self.core.attempts()
        return {
            "job": str(worker.job_id),
            "run": str(self.core.jobs()[worker.job_id].run_id),
            "runner": str(worker.id),
            "delivery": str(attempts[-1].delivery.id),
            "installation": str(self.practice.acme),
            "session": self.key,
            "jit": worker.jit,
        }

    def _start_a_job(self) -> None:
        self.minted += 1
        runner = self.core._state.register(
            "orgs/acme", name=f"w{self.minted}", labels=("mac",), group_id=1, work_folder="w"
        )
        self.core.queue_job("acme/app", ("mac",), script="true")
        opened = self.practice.open(runner.jit)
        assert opened.status == 201
        self.key = str(opened.json()["session"])

    def bearers(self, known: dict[str, str]) -> list[str]:
        """Every valid credential, and some invalid ones."""
        token, practice = "practice-secret", self.practice
        return [
            token,
            known["session"],
            known["jit"],
            practice.app_jwt,
            practice.token,
            "",
            "x.y",
            "7.",
        ]


@pytest.fixture(scope="module")
def routes(practice_keys: Any, tmp_path_factory: Any) -> Any:
    folder: Path = tmp_path_factory.mktemp("nonsense")
    store = RecordStore(folder / "github.db")
    yield AllRoutes(Practice(practice_keys, store=store))
    store.close()


def spoiled(draw: Any, path: str) -> bytes:
    """A body that is valid, almost valid, or arbitrary."""
    good = next((body for end, body in GOOD.items() if path.endswith(end)), {})
    match draw(st.sampled_from(["good", "spoiled", "spoiled", "any", "bytes"])):
        case "good":
            return json.dumps(good).encode()
        case "spoiled":
            field = draw(st.sampled_from([*good, "surplus"]))
            return json.dumps({**good, field: draw(JSON)}).encode()
        case "any":
            return json.dumps(draw(JSON)).encode()
        case _:
            return bytes(draw(HOSTILE | st.binary(max_size=20)))


@settings(
    max_examples=examples(400),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_every_route_answers_invalid_requests(routes: AllRoutes, data: Any) -> None:
    known = routes.known()
    method, path, queries = data.draw(st.sampled_from(routes.table), label="route")
    for name, value in known.items():
        if f"{{{name}}}" in path:
            path = path.replace(f"{{{name}}}", data.draw(st.just(value) | ODD_TEXT, label=name))
    if data.draw(st.integers(0, 9)) == 0:
        method = data.draw(
            st.sampled_from(["HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW", ""])
        )
    query = data.draw(
        st.lists(st.tuples(st.sampled_from([*queries, "surplus"]), ODD_TEXT), max_size=3)
    )
    bearer = data.draw(st.sampled_from(routes.bearers(known)) | st.text(max_size=6), label="bearer")
    request = Request(
        method=method,
        path=path,
        # A wait in seconds would never end on a manual clock.
        query=tuple((name, value) for name, value in query if name != "wait"),
        headers=(
            ("authorization", f"Bearer {bearer}"),
            ("content-type", data.draw(st.sampled_from(["application/json", "text/x", ""]))),
            ("user-agent", "test"),
        ),
        body=spoiled(data.draw, path),
    )
    answer = routes.practice.send(request)
    assert 200 <= answer.status < 500, answer
    assert routes.core.internal_errors == 0
    assert answer.header("x-runyard-practice") == "github"
    if answer.status >= 400 and method != "HEAD":
        output = answer.json()
        assert output.get("error") or output.get("message"), answer
    if answer.status < 300 and method != "GET":  # an accepted object can be read
        for read in ("jobs", "accounts", "runners", "deliveries"):
            assert routes.practice.practice_request("GET", read).status == 200


REFUSED = {
    "a name that no process could be given": {"name": "a\0b"},
    "a script that no shell could be given": {"script": "a\0b"},
    "a half character": {"name": "\ud800"},
    "a label of nothing": {"labels": [""]},
    "labels that are none": {"labels": "mac"},
    "no label": {"labels": []},
    "a run that is too large": {"run_id": 2**70},
    "a run that does not exist": {"run_id": 5},
    "a time without end": {"duration": 1e300},
    "a time before now": {"duration": -1},
    "a repository that is a path": {"repo": "acme/../app"},
    "a repository with a line break": {"repo": "acme/app\n"},
    "a variable that is none": {"env": {"A=B": "c"}},
    "a script that is too long": {"script": "x" * (64 << 10) + "x"},
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_an_invalid_job_is_refused_without_an_effect(practice: Any, change: dict[str, Any]) -> None:
    raw = json.dumps({**GOOD["/practice/jobs"], **change}).encode()
    answer = practice.practice_request("POST", "jobs", raw=raw)
    assert answer.status in (400, 409, 422), answer
    assert answer.json()["error"] and not practice.core.jobs()


DEEP = (b'{"surplus":' + b"[" * 100_000, b'{"surplus":' * 5000, b"[" * 100_000)


@pytest.mark.parametrize("body", DEEP, ids=["lists", "objects", "no-object"])
def test_a_deeply_nested_body_breaks_no_route(routes: AllRoutes, body: bytes) -> None:
    for method, template, _ in routes.table:
        known = routes.known()
        path = template
        for name, value in known.items():
            path = path.replace(f"{{{name}}}", value)
        for bearer in routes.bearers(known):
            headers = (
                ("authorization", f"Bearer {bearer}"),
                ("content-type", "application/json"),
                ("user-agent", "test"),
            )
            request = Request(method=method, path=path, headers=headers, body=body)
            assert routes.practice.send(request).status < 500, path
    assert routes.core.internal_errors == 0
