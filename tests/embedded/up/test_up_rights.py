"""On a laptop a component that lacks a right fails as in a cluster, and reports it."""

import json
from typing import Any

import pytest
from tests.embedded.up.upsupport import PODS, POOLS, SPACE, Answer, Up, until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = f"{RBAC}/namespaces/{SPACE}/roles"
MERGE = {"content-type": "application/merge-patch+json"}
ACCOUNTS = {
    "server": "tuist-runners-server",
    "operator": "tuist-runners-controller",
    "host-1": "tart-kubelet-host-1",
}


def cut(up: Up, role: str, resource: str, verb: str) -> list[dict[str, Any]]:
    """Removes one verb from a role; returns the rules before."""
    answer = up.kube("GET", f"{ROLES}/{role}")
    assert answer.status == 200, answer
    rules: list[dict[str, Any]] = answer.json()["rules"]
    left = [
        {**rule, "verbs": [each for each in rule["verbs"] if each != verb]}
        if rule["resources"] == [resource]
        else rule
        for rule in rules
    ]
    assert left != rules
    put(up, role, left)
    return rules


def put(up: Up, role: str, rules: list[dict[str, Any]]) -> None:
    rules = [rule for rule in rules if rule["verbs"]]
    answer = up.kube("PATCH", f"{ROLES}/{role}", {"rules": rules}, **MERGE)
    assert answer.status == 200, answer


def reported(up: Up, component: str, verb: str, resource: str) -> bool:
    """Whether its log quotes the refusal."""
    account = f"system:serviceaccount:tuist:{ACCOUNTS[component]}"
    refusal = f'User "{account}" cannot {verb} resource "{resource}"'
    log = (up.data / "logs" / f"{component}.log").read_text()
    return any(refusal in line or json.dumps(refusal)[1:-1] in line for line in log.splitlines())


def ready(up: Up) -> Answer:
    return up.owner("GET", "/readyz")


def works(up: Up) -> bool:
    return bool(ready(up).json()["works"])


@pytest.mark.slow
def test_every_component_has_its_own_account_and_none_is_an_administrator(up: Up) -> None:
    until(lambda: works(up), what="every loop's success")
    for component, account in ACCOUNTS.items():
        token = (up.data / "tokens" / component).read_text().strip()
        who = up.kube(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {},
            authorization=f"Bearer {token}",
        ).json()["status"]["userInfo"]
        assert who["username"] == f"system:serviceaccount:tuist:{account}"
        assert "system:masters" not in who["groups"]
        secrets = up.kube("GET", "/api/v1/secrets", authorization=f"Bearer {token}")
        assert secrets.status == 403
        assert not reported(up, component, "list", "secrets")


@pytest.mark.slow
def test_a_server_that_may_not_stamp_reports_it_and_dispatches_once_it_may(
    up: Up,
) -> None:
    until(lambda: works(up), what="every loop's success")
    rules = cut(up, "runyard-server", "pods", "patch")
    job = up.queue("echo hello", "waits for a right")
    until(lambda: reported(up, "server", "patch", "pods"), what="a 403 in the log")
    until(lambda: not works(up), what="a condition")
    assert ready(up).status == 200  # it still serves
    (condition,) = [
        each for each in ready(up).json()["conditions"] if each["code"] == "kubernetes-refused"
    ]
    assert f"403 to PATCH {PODS}/" in condition["message"]
    assert condition["fix"] in up.prints(condition["title"]), "the terminal says it, too"
    assert up.job(job)["status"] == "queued"
    put(up, "runyard-server", rules)
    assert up.in_state(job, "completed")["conclusion"] == "success"
    until(lambda: works(up), what="work again")
    up.prints(f"no longer: {condition['title']}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("component", "role", "resource", "verb"),
    [
        ("operator", "runyard-operator", "pods", "create"),
        ("host-1", "runyard-host", "pods/status", "patch"),
    ],
    ids=["operator", "host"],
)
def test_an_operator_or_a_host_that_lacks_a_right_reports_it(
    up: Up, component: str, role: str, resource: str, verb: str
) -> None:
    rules = cut(up, role, resource, verb)
    pools = up.items(POOLS)
    runners = pools[0]["spec"]["replicas"]
    for replicas in (runners - 1, runners):  # a new runner is wanted
        up.kube(
            "PATCH",
            f"{POOLS}/{pools[0]['metadata']['name']}",
            {"spec": {"replicas": replicas}},
            **MERGE,
        )
        if replicas < runners:
            until(lambda: len(up.items(PODS)) < runners, what="one runner less")
    until(lambda: reported(up, component, verb, resource), what="a 403 in the log")
    put(up, role, rules)
    until(lambda: up.run("echo works") == "success", what="a job")
