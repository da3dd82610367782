"""A job on this machine cannot change the fleet or read other tenants' data; its owner needs no extra step."""

import http.cookies
import json
import os
import shlex
import stat
import subprocess
import sys
import textwrap
import urllib.parse

import pytest
from tests.conftest import Absent
from tests.embedded.up.upsupport import (
    HAS_PROC,
    REPOSITORY,
    SPACE,
    Answer,
    Up,
    ask,
    environment,
    until,
)
from tests.vm.process_harness import Way, isolation, networked

from runyard.clock import RealClock
from runyard.components.hosting import RUNNER_REQUESTS
from runyard.embedded.github.logs import Logs
from runyard.embedded.github.runner_routes import RunnerRoutes
from runyard.embedded.github.settings import PracticeSettings
from runyard.embedded.github.state import PracticeState

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]
TENANT = f"/api/v1/tenants/{REPOSITORY.partition('/')[0]}"
JSON = {"content-type": "application/json"}
PAUSE = b'{"paused": true, "why": "by a job"}'
MANIFEST = {
    "name": "x",
    "url": "http://a.example",
    "redirect_url": "http://a.example",
    "hook_attributes": {"url": "http://a.example"},
}
FORM = urllib.parse.urlencode({"manifest": json.dumps(MANIFEST)})
# Component, method, path, body: what the job tries. It sends no credential, because it has none.
READS = (
    ("server", "GET", "/", ""),
    ("server", "GET", "/api/v1/overview", ""),
    ("server", "GET", "/api/v1/tenants", ""),
    ("server", "GET", TENANT, ""),
    ("server", "GET", "/api/v1/jobs", ""),
    ("server", "GET", "/api/v1/test-runs", ""),
    ("server", "GET", "/api/v1/events", ""),
    ("server", "GET", "/login?code=00000000000000000000000000000000", ""),
    ("github", "GET", "/practice/jobs", ""),
    ("github", "GET", "/app/installations", ""),
    ("kube", "GET", f"/api/v1/namespaces/{SPACE}/pods", ""),
    ("operator", "GET", "/openapi.json", ""),
    ("host-1", "GET", "/openapi.json", ""),
)
CHANGES = (
    ("server", "PATCH", TENANT, PAUSE.decode()),
    ("server", "POST", "/api/v1/jobs/1/cancel", "{}"),
    ("server", "POST", "/api/v1/login-links", ""),
    ("server", "POST", "/api/v1/test-tokens", '{"account": "practice"}'),
    ("server", "POST", "/api/v1/test-runs", "{}"),
    ("github", "POST", "/practice/jobs", "{}"),
    ("github", "POST", "/settings/apps/new", FORM),
    ("github", "POST", "/organizations/practice/settings/apps/new", FORM),
    ("kube", "POST", f"/api/v1/namespaces/{SPACE}/pods", "{}"),
    ("kube", "DELETE", f"/api/v1/namespaces/{SPACE}/pods", ""),
)
OPEN = (
    ("server", "GET", "/healthz", ""),
    ("server", "GET", "/readyz", ""),
    ("server", "GET", "/metrics", ""),
    ("operator", "GET", "/metrics", ""),
    ("kube", "GET", "/healthz", ""),
    ("github", "GET", "/healthz", ""),
)
UNREACHABLE = 0
PROGRAM = """
import http.client, json, os, ssl
for component, method, path, body in {tries!r}:
    address = {addresses!r}[component]
    tls = ssl._create_unverified_context()
    link = (http.client.HTTPSConnection(address, context=tls, timeout=30) if component == "kube"
        else http.client.HTTPConnection(address, timeout=30))
    headers = {{"content-type": "application/json", "user-agent": "job"}}
    if "settings" in path:
        headers["content-type"] = "application/x-www-form-urlencoded"
    try:
        link.request(method, path, body, headers)
        status = link.getresponse().status
    except OSError:
        status = {unreachable}
    print("tried", json.dumps([component, method, path, status]))
    link.close()
for folder, _, files in os.walk({data!r}):
    for name in files:
        try:
            with open(os.path.join(folder, name), "rb") as file:
                print("read", json.dumps(os.path.join(folder, name)), len(file.read(9)))
        except OSError:
            pass
"""


def address(up: Up, component: str) -> str:
    return up.url(component).partition("://")[2]


Tries = tuple[tuple[str, str, str, str], ...]


def program_of(up: Up, tries: Tries, *, data: str) -> str:
    return PROGRAM.format(
        tries=tries,
        addresses={each[0]: address(up, each[0]) for each in tries},
        data=data,
        unreachable=UNREACHABLE,
    )


def as_process(up: Up, tries: Tries) -> dict[str, int]:
    """Sends the same requests from a process of this machine, as a job without a network of its own would."""
    argv = [sys.executable, "-c", program_of(up, tries, data="/nonexistent")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return statuses_of(done.stdout)


def has_own_network(up: Up) -> bool:
    """Whether jobs have a network of their own. They must have one where it works on this machine."""
    nodes = json.loads(up.kubectl("get", "nodes", "-o", "json"))["items"]
    networks = {node["metadata"]["labels"]["runyard.dev/job-network"] for node in nodes}
    ways: tuple[Way, ...] = ("bwrap-users", "bwrap")
    best = next((way for way in ways if not isinstance(isolation(way), str)), None)
    works = best is not None and not isinstance(networked(best), str)
    assert networks == {"own" if works else "host"}
    return works


def as_job(up: Up, tries: Tries) -> tuple[dict[str, int], str]:
    """Sends requests from a job; returns the statuses, and all that it printed."""
    program = program_of(up, tries, data=str(up.data))
    number = up.queue(
        f"\"${{RUNYARD_PYTHON:-python3}}\" - <<'END'\n{textwrap.dedent(program)}\nEND\n"
    )
    done = up.in_state(number, "completed")
    text = up.log(number)
    assert done["conclusion"] == "success", text
    return statuses_of(text), text


def statuses_of(text: str) -> dict[str, int]:
    tried = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("tried ")]
    return {" ".join(words): status for *words, status in tried}


def paused(up: Up) -> bool:
    return bool(owner(up, "GET", TENANT).json()["paused"])


def owner(up: Up, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
    return up.owner(method, path, body=body, headers={**JSON, **headers})


def test_a_job_cannot_change_the_fleet_or_read_other_tenants(up: Up) -> None:
    tries = (*READS, *CHANGES)
    from_here = as_process(up, tries)
    statuses, text = as_job(up, tries)
    assert len(statuses) == len(from_here) == len(tries)
    assert {what: status for what, status in from_here.items() if status not in (401, 403)} == {}
    expected = dict.fromkeys(statuses, UNREACHABLE) if has_own_network(up) else from_here
    assert statuses == expected
    assert not paused(up)
    if "bwrap" in up.kubectl("get", "nodes", "-o", "yaml"):
        assert "read " not in text, "the sandbox hides the data directory"


def test_probes_and_metrics_stay_open_to_this_machine_but_not_to_jobs(up: Up) -> None:
    from_here = as_process(up, OPEN)
    assert set(from_here.values()) == {200}, from_here
    statuses, _ = as_job(up, OPEN)
    expected = dict.fromkeys(statuses, UNREACHABLE) if has_own_network(up) else from_here
    assert statuses == expected


# A job that tries to get further through the sockets of its VM than they allow.
PRYING = """
import socket
for name in ("practice", "dispatch"):
    for target in ("POST /api/v1/login-links", "GET /practice/jobs", "GET /practice/runner/session/job"):
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(30)
                link.connect("/vm/net/" + name)
                link.sendall((target + " HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n").encode())
                print("asked", name, link.recv(99).decode().split()[1])
        except PermissionError:
            print("asked", name, "closed")
"""


def test_the_runners_socket_passes_on_nothing_but_its_runners_requests(
    up: Up, absent: Absent
) -> None:
    if not has_own_network(up):
        absent("a network of its own for each VM", "see tools/system.sh")
    number = up.queue(f"\"${{RUNYARD_PYTHON:-python3}}\" - <<'END'\n{PRYING}\nEND\n")
    up.in_state(number, "completed")
    asked = [line.split()[1:] for line in up.log(number).splitlines() if line[:6] == "asked "]
    answers = {
        name: [each[1] for each in asked if each[0] == name] for name in ("practice", "dispatch")
    }
    # The last one reaches the practice GitHub, which asks for a session's key.
    assert answers["practice"] == ["403", "403", "401"], asked
    # Where poller and job are one user, the job can open the poller's socket too, which passes on nothing but a poll.
    assert answers["dispatch"] in (["closed"] * 3, ["403"] * 3), asked


def test_every_request_of_a_practice_runner_has_a_way_out_of_its_network() -> None:
    state = PracticeState.__new__(PracticeState)
    routes = RunnerRoutes(
        state=state, logs=Logs.__new__(Logs), clock=RealClock(), settings=PracticeSettings()
    )
    assert sorted((each.method, each.path) for each in routes.routes()) == sorted(RUNNER_REQUESTS)


def test_reasons_of_readiness_need_the_token(up: Up) -> None:
    def ready() -> bool:
        found = up.server("GET", "/readyz").json()
        assert set(found) == {"ready"}, found
        return bool(found["ready"])

    until(ready, what="the server is ready")
    assert "conditions" in up.owner("GET", "/readyz").json()


def test_the_token_is_in_a_file_that_only_its_owner_can_read(up: Up) -> None:
    for name in ("dashboard.token", "metrics.token"):
        mode = (up.data / name).stat().st_mode
        assert stat.S_IMODE(mode) == 0o600


def runyard(up: Up, *argv: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "runyard.cli.main", *argv],
        capture_output=True,
        text=True,
        check=False,
        env=environment(**env),
    )


@pytest.mark.parametrize("by", ["--data", "RUNYARD_DATA", "the printed line"])
def test_the_owners_commands_need_no_extra_step(up: Up, by: str) -> None:
    flags, env = ["--data", str(up.data)], {}
    if by != "--data":
        flags, env = [], {"RUNYARD_DATA": str(up.data)}
    if by == "the printed line":
        (line,) = [line for line in up.lines if "export RUNYARD_SERVER=" in line]
        env = dict(word.split("=", 1) for word in shlex.split(line.partition(": export ")[2]))
        assert env["RUNYARD_SERVER"] == up.url("server")
    done = runyard(up, "tenant", "list", *flags, **env)
    assert (done.returncode, done.stderr) == (0, "")
    for word, now in (("pause", True), ("resume", False)) if by == "--data" else ():
        done = runyard(up, "tenant", word, "practice", *flags, **env)
        assert done.returncode == 0, done.stderr
        assert paused(up) == now


def follow(up: Up, link: str, **headers: str) -> Answer:
    server = up.url("server")
    assert link.startswith(f"{server}/login?code=")
    return ask(server, "GET", link.removeprefix(server), headers=headers)


def cookie_of(answer: Answer) -> str:
    (cookie,) = http.cookies.SimpleCookie(answer.headers["set-cookie"]).values()
    assert cookie["httponly"] and cookie["samesite"] == "Strict" and cookie["path"] == "/"
    return f"{cookie.key}={cookie.value}"


def test_a_login_link_opens_the_dashboard_once(up: Up) -> None:
    done = runyard(up, "dashboard", "--data", str(up.data))
    assert done.returncode == 0, done.stderr
    link = done.stdout.strip()
    assert follow(up, link, host="evil.example").status == 421
    opened = follow(up, link)
    assert opened.status == 200 and opened.headers["refresh"] == "0; url=/"
    cookie = cookie_of(opened)
    assert up.secrets["dashboard_token"] not in str(opened)
    again = follow(up, link)
    assert again.status == 401 and "set-cookie" not in again.headers
    assert up.server("GET", "/", headers={"cookie": cookie}).status == 200
    for site, status in (("same-site", 401), ("cross-site", 401), ("same-origin", 200)):
        got = up.server(
            "PATCH", TENANT, body=PAUSE, headers={**JSON, "cookie": cookie, "sec-fetch-site": site}
        )
        assert got.status == status, site
    assert runyard(up, "tenant", "resume", "practice", "--data", str(up.data)).returncode == 0


@pytest.fixture(scope="module", autouse=True)
def printed(up: Up) -> Answer:
    """The answer to the link that `runyard up` printed: followed at once, because it works for minutes only."""
    up.prints("export RUNYARD_SERVER=")
    (line,) = [line for line in up.lines if " up. Dashboard: " in line]
    answer = follow(up, line.partition("Dashboard: ")[2].strip())
    assert up.run("true") == "success"  # the tenant exists from now on
    return answer


def test_the_printed_link_logs_in(up: Up, printed: Answer) -> None:
    cookie = cookie_of(printed)
    assert up.server("GET", "/api/v1/overview", headers={"cookie": cookie}).status == 200


def test_a_killed_server_forgets_its_links(up: Up) -> None:
    link = runyard(up, "dashboard", "--data", str(up.data)).stdout.strip()
    before = up.pid("server")
    os.kill(before, 9)
    until(lambda: up.pid("server") not in (0, before), what="another server")
    until(lambda: up.server("GET", "/healthz").status == 200)
    assert follow(up, link).status == 401
