"""Checks that the scripts cover every kind of request that is used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance.kube import usage

from runyard.http.messages import Request

HERE = Path(__file__).parent
MERGE = (("content-type", "application/merge-patch+json"),)
WORDS = {
    "a list by labels and a field": (
        Request(
            method="GET",
            path="/api/v1/pods",
            query=(("limit", "500"), ("labelSelector", "a=b"), ("fieldSelector", "spec.x!=y")),
        ),
        ("list pods", "list ?limit", "list pods by spec.x!=", "list by labels"),
    ),
    "a patch of a status": (
        Request(
            method="PATCH", path="/apis/g/v1/namespaces/n/ps/p/status", headers=MERGE, body=b"{}"
        ),
        ("patch ps/status merge",),
    ),
    "a namespace": (Request(method="GET", path="/api/v1/namespaces/n"), ("get namespaces",)),
    "the status of a namespace": (
        Request(method="GET", path="/api/v1/namespaces/n/status"),
        ("get namespaces/status",),
    ),
    "a deletion with options": (
        Request(method="DELETE", path="/api/v1/nodes/n", body=b'{"kind":"x","orphan":true}'),
        ("delete nodes", "delete ?orphan"),
    ),
    "a document": (Request(method="GET", path="/apis/g/v1"), ("get /apis/*",)),
}


@pytest.mark.parametrize("case", WORDS)
def test_a_request_has_its_name(case: str) -> None:
    request, expected = WORDS[case]
    assert usage.words(request) == expected


@pytest.mark.long
@pytest.mark.timeout(400)
def test_every_request_that_is_used_is_in_a_script(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "loopback"]
    given = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, str(HERE)],
        env=given | {usage.RECORD: str(tmp_path)},
        cwd=HERE.parents[2],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    files = list(tmp_path.glob("*.txt"))
    scripted = {what for file in files for what in file.read_text("utf-8").splitlines()}
    served = {what for what, who in usage.used().items() if "unserved" not in who}
    assert sorted(served - scripted - passed_on()) == []


def passed_on() -> set[str]:
    """Kinds of requests that the node answers, which are tested elsewhere."""
    return {what for what in usage.used() if what.split()[1] in usage.NODES_OWN}
