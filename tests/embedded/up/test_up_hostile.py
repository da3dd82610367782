"""Bad input over real sockets of a running machine: refused with a reason, and nothing of it is kept."""

import hashlib
import hmac
import http.client
import json
import socket
from typing import Any

import psycopg
import pytest
from tests.embedded.up.upsupport import HAS_PROC, Answer, Up, ask

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]
SOCKETS = ("server", "kube", "github")
MIB = 1 << 20


def rows(up: Up, table: str) -> int:
    password = (up.data / "postgres" / "password").read_text().strip()
    place = str(up.data / "postgres" / "socket")
    with psycopg.connect(
        host=place, user="runyard", password=password, dbname="runyard"
    ) as connection:
        found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # type: ignore[arg-type]  # a constant
    assert found is not None
    return int(found[0])


def send(up: Up, name: str, method: str, path: str, **kwargs: Any) -> Answer:
    """Sends a request with a valid credential."""
    token = {"kube": "admin_token", "github": "people_token"}.get(name)
    headers = {"authorization": f"Bearer {up.secrets[token]}"} if token else {}
    headers |= {"user-agent": "test-client"} | kwargs.pop("headers", {})
    tls = up.tls() if name == "kube" else None
    return ask(up.url(name), method, path, headers=headers, tls=tls, **kwargs)


def refused(answer: Answer, *statuses: int) -> None:
    """Checks that a refusal is JSON with a reason and reveals no internals."""
    assert answer.status in statuses if statuses else 400 <= answer.status < 500, answer
    assert "json" in answer.headers.get("content-type", ""), answer
    printed = answer.json()
    assert printed.get("error") or printed.get("message"), answer
    for word in (b"Traceback", b'File "', b".py", b"psycopg", b"aiohttp", b"msgspec"):
        assert word not in answer.body, answer


# Webhooks


@pytest.mark.parametrize(
    "signature",
    ["", "sha256=" + "0" * 64, "sha256=", "sha1=abc", "nonsense", "sha256=" + "é" * 64],
    ids=["none", "wrong", "empty", "another kind", "nonsense", "not ASCII"],
)
def test_a_webhook_with_a_wrong_signature_is_not_stored(up: Up, signature: str) -> None:
    before = rows(up, "deliveries"), rows(up, "jobs")
    value = signature.encode().decode("latin-1")
    refused(up.webhook(b'{"action": "queued"}', x_hub_signature_256=value), 401)
    assert (rows(up, "deliveries"), rows(up, "jobs")) == before


def test_a_signature_of_another_body_is_refused(up: Up) -> None:
    secret = up.secrets["webhook_secret"].encode()
    other = "sha256=" + hmac.new(secret, b"{}", hashlib.sha256).hexdigest()
    refused(up.webhook(b"{ }", x_hub_signature_256=other), 401)


NONSENSE: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"action": "queued", "workflow_job": {"id": 1',
    "a list": b"[]",
    "a number": b"1",
    "not UTF-8": b'{"action": "\xff\xfe"}',
    "NUL bytes": b"\0" * 1000,
    "NUL in a text": b'{"action": "queued\\u0000"}',
    "deep": b"[" * 100_000,
    "deep and closed": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "wrong types": b'{"action": 1, "workflow_job": "x", "repository": []}',
    "a huge number": b'{"action": "queued", "workflow_job": {"id": 1' + b"0" * 400 + b"}}",
    "job of wrong types": json.dumps(
        {
            "action": "queued",
            "workflow_job": {"id": "x", "run_id": None, "labels": [1], "status": {}},
            "repository": {"id": "1", "full_name": 5, "owner": {"login": None}},
            "installation": {"id": []},
        }
    ).encode(),
    "NUL in names": json.dumps(
        {
            "action": "queued",
            "workflow_job": {
                "id": 5,
                "run_id": 5,
                "run_attempt": 1,
                "labels": ["run\0yard"],
                "status": "queued",
                "conclusion": None,
                "runner_name": None,
                "created_at": "2026-01-01T00:00:00Z",
                "started_at": "2026-01-01T00:00:00Z",
                "completed_at": None,
            },
            "repository": {
                "id": 1,
                "full_name": "a\0/b",
                "owner": {"login": "a\0", "type": "Organization"},
            },
            "organization": {"login": "a\0"},
            "installation": {"id": 1},
        }
    ).encode(),
}


@pytest.mark.parametrize("body", NONSENSE.values(), ids=NONSENSE)
def test_an_invalid_signed_webhook_is_refused_with_a_reason_and_creates_no_job(
    up: Up, body: bytes
) -> None:
    before = rows(up, "jobs")
    answer = up.webhook(body, x_github_delivery=f"nonsense-{len(body)}")
    refused(answer, 400)
    assert answer.json()["reason"], answer
    assert rows(up, "jobs") == before


def test_a_delivery_without_an_id_is_refused(up: Up) -> None:
    refused(up.webhook(b"{}", x_github_delivery=""), 400)
    refused(up.webhook(b"{}", x_github_delivery="x" * 101), 400)


# Every socket


@pytest.mark.parametrize("name", SOCKETS)
@pytest.mark.parametrize(
    "path",
    ["/no/such/path", "/%00", "/..%2f..%2fetc/passwd", "/" + "a" * 4000],
    ids=["unknown", "NUL", "dots", "long"],
)
def test_an_unknown_path_is_refused(up: Up, name: str, path: str) -> None:
    answer = send(up, name, "GET", path)
    if name == "kube":  # as a real API server prints it, which is not JSON
        assert (answer.status, answer.body) == (404, b"404 page not found\n"), answer
        return
    # GitHub does not reveal its paths to a caller without valid credentials.
    refused(answer, *((401,) if name == "github" else (400, 404)))


METHODS = {
    "server": ("DELETE", "/webhooks/github"),
    "kube": ("TRACE", "/api/v1/namespaces/tuist-runners/pods"),
    "github": ("DELETE", "/practice/jobs"),
}


@pytest.mark.parametrize("name", SOCKETS)
def test_a_wrong_method_is_refused(up: Up, name: str) -> None:
    refused(send(up, name, *METHODS[name]), 404, 405)


POSTS = {
    "server": "/api/internal/runners/dispatch",
    "kube": "/api/v1/namespaces/tuist-runners/pods",
    "github": "/practice/jobs",
}
BODIES = {
    "too large": b'{"a": "' + b"x" * (5 * MIB) + b'"}',
    "no JSON": b"{",
    "a list": b"[]",
    "NUL bytes": b"\0" * 64,
    "not UTF-8": b'{"repo": "\xff"}',
    "deep": b"[" * 100_000,
    "NUL in a name": b'{"metadata": {"name": "a\\u0000b"}, "repo": "a/b\\u0000", "labels": ["x"]}',
    "wrong types": b'{"metadata": 5, "spec": [], "repo": 5, "labels": {}, "script": null}',
}


@pytest.mark.parametrize("name", SOCKETS)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_an_invalid_body_is_refused(up: Up, name: str, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    refused(send(up, name, "POST", POSTS[name], body=body, headers=headers))


@pytest.mark.parametrize("name", ["kube", "github"])
@pytest.mark.parametrize(
    "value",
    ["", "Bearer ", "Bearer x", "Basic eDp5", "Bearer " + "x" * 4000, "Bearer \xff"],
    ids=["none", "empty", "wrong", "another kind", "long", "not ASCII"],
)
def test_a_request_without_valid_credentials_is_refused(up: Up, name: str, value: str) -> None:
    path = "/api/v1/pods" if name == "kube" else "/practice/jobs"
    tls = up.tls() if name == "kube" else None
    headers = {"authorization": value} if value else {}
    refused(ask(up.url(name), "GET", path, headers=headers, tls=tls), 401, 403)


@pytest.mark.parametrize("path", [POSTS["server"], "/api/internal/runners/pods/stopped"])
@pytest.mark.parametrize(
    "value",
    ["", "Bearer nonsense", "Bearer a.b.c", "Bearer \xff"],
    ids=["none", "wrong", "a token's shape", "not ASCII"],
)
def test_a_runner_without_an_identity_is_refused(up: Up, path: str, value: str) -> None:
    headers = {"authorization": value} if value else {}
    refused(up.server("POST", path, body=b"{}", headers=headers), 401, 403)


RAW = {
    "no HTTP at all": b"\0\1\2\3\r\n\r\n",
    "another protocol": b"SSH-2.0-x\r\n\r\n",
    "a bad length": b"POST /webhooks/github HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "a header without an end": b"GET / HTTP/1.1\r\nx: " + b"a" * 70_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("name", ["server", "github"])
@pytest.mark.parametrize("sent", RAW.values(), ids=RAW)
def test_bytes_that_are_not_http_are_refused(up: Up, name: str, sent: bytes) -> None:
    host, _, port = up.url(name).partition("://")[2].partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(connection)
        try:
            answer.begin()
            printed = answer.read()
            assert 400 <= answer.status < 500
            assert b"Traceback" not in printed
        except (http.client.HTTPException, ConnectionError):
            pass  # closing the connection is a valid answer
        finally:
            answer.close()
    assert send(up, name, "GET", "/no/such/path").status in (401, 404)


# Public pages


@pytest.mark.parametrize(
    ("path", "kind", "word"),
    [
        ("/", "text/html", b"<html"),
        ("/healthz", "json", b""),
        ("/readyz", "json", b'"ready"'),
        ("/metrics", "text/plain", b"# HELP "),
        ("/openapi.json", "json", b'"openapi"'),
        ("/api/v1/overview", "json", b'"pools"'),
    ],
)
def test_the_servers_pages_are_served(up: Up, path: str, kind: str, word: bytes) -> None:
    answer = up.owner("GET", path)
    assert answer.status == 200
    assert kind in answer.headers["content-type"]
    assert word in answer.body


def test_after_all_requests_no_component_has_exited_and_a_job_runs(up: Up) -> None:
    assert up.run("true") == "success"
    for log in (up.data / "logs").glob("*.log"):
        text = log.read_text(errors="replace")
        assert "Traceback" not in text and "crashed" not in text, (log, text[-2000:])
