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
    link.request(method, path, body, headers)
    print("tried", json.dumps([component, method, path, link.getresponse().status]))
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


def as_job(up: Up, tries: tuple[tuple[str, str, str, str], ...]) -> tuple[dict[str, int], str]:
    """Sends requests from a job; returns the statuses, and all that it printed."""
    program = PROGRAM.format(
        tries=tries,
        addresses={each[0]: address(up, each[0]) for each in tries},
        data=str(up.data),
    )
    number = up.queue(
        f"\"${{RUNYARD_PYTHON:-python3}}\" - <<'END'\n{textwrap.dedent(program)}\nEND\n"
    )
    done = up.in_state(number, "completed")
    text = up.log(number)
    assert done["conclusion"] == "success", text
    tried = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("tried ")]
    return {" ".join(words): status for *words, status in tried}, text


def paused(up: Up) -> bool:
    return bool(owner(up, "GET", TENANT).json()["paused"])


def owner(up: Up, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
    return up.owner(method, path, body=body, headers={**JSON, **headers})


def test_a_job_cannot_change_the_fleet_or_read_other_tenants(up: Up) -> None:
    statuses, text = as_job(up, (*READS, *CHANGES))
    assert len(statuses) == len(READS) + len(CHANGES)
    assert {what: status for what, status in statuses.items() if status not in (401, 403)} == {}
    assert not paused(up)
    if "bwrap" in up.kubectl("get", "nodes", "-o", "yaml"):
        assert "read " not in text, "the sandbox hides the data directory"


def test_probes_and_metrics_stay_open_to_this_machine(up: Up) -> None:
    statuses, _ = as_job(up, OPEN)
    assert set(statuses.values()) == {200}, statuses


def test_reasons_of_readiness_need_the_token(up: Up) -> None:
    assert up.server("GET", "/readyz").json() == {"ready": True}
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
