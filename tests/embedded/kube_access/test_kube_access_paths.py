"""Authorization uses the same parse of a path as the route, and caches are bounded for anonymous requests."""

import random
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.embedded.kube_access.accesssupport import (
    BOSS,
    NOBODY,
    SPACE,
    RbacHarness,
    play,
    rule,
    user,
)

from runyard.clock import RealClock
from runyard.embedded.kube.access.actions import Actions
from runyard.embedded.kube.access.auth import Action, User
from runyard.embedded.kube.access.rbac import Rbac, RbacObjects
from runyard.embedded.kube.catalogue import Catalogue
from runyard.embedded.kube.core import KubeCore
from runyard.embedded.kube.resources import NAMESPACES, PODS
from runyard.embedded.kube.rules import grammar
from runyard.embedded.kube.selectors import exact_name, parse
from runyard.embedded.kube.status import StatusError
from runyard.http.messages import Request

LONG = "x" * 200_000


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    core = KubeCore(clock=RealClock(), rng=random.Random(1))
    found: Catalogue = core._store.catalogue
    return found


STEPS = ["", "v1", "tuist.dev", "v1alpha1", "namespaces", "x", "secrets", "runnerpools", "nodes"]
STEPS += ["status", "pods", "exec", "finalize", "token", "leases", "coordination.k8s.io", " ", "."]
STEPS += ["rbac.authorization.k8s.io", "roles", "watch", "api", "apis", "selfsubjectreviews"]
STEPS += ["events.k8s.io", "events", "authorization.k8s.io", "configmaps", "%2F", "..", "scale"]
HEADS = [["api", "v1"], ["apis", "", "v1"], ["apis", "coordination.k8s.io", "v1"], ["apis"], []]
HEADS += [["api", "v1", "namespaces", "x"], ["apis", "tuist.dev", "v1alpha1"], ["", "api", "v1"]]
PATHS = st.builds(
    lambda head, rest: "/" + "/".join([*head, *rest]),
    st.sampled_from(HEADS),
    st.lists(st.sampled_from(STEPS), max_size=5),
)


@given(path=PATHS, method=st.sampled_from(["GET", "PUT", "DELETE", "POST", "PATCH", "HEAD"]))
def test_authorization_and_routing_parse_a_path_alike(
    catalogue: Catalogue, path: str, method: str
) -> None:
    requested = Actions(catalogue).of(Request(method=method, path=path))
    try:
        target = catalogue.parse(path)
    except StatusError:
        return
    resource = target.resource
    space = target.name if resource is NAMESPACES else target.namespace
    assert requested.path is None
    assert (
        requested.group,
        requested.plural,
        requested.namespace,
        requested.name,
        requested.subresource,
    ) == (
        resource.group,
        resource.plural,
        space,
        target.name,
        target.subresource,
    )
    assert "" not in path.removesuffix("/").split("/")[1:]


def test_an_empty_path_segment_does_not_bypass_a_role() -> None:
    async def scenario(harness: RbacHarness) -> None:
        everywhere = {"nonResourceURLs": ["*"], "verbs": ["*"]}
        await harness.grant_cluster_wide("nobody", everywhere)
        await harness.ok(
            BOSS, "POST", f"/api/v1/namespaces/{SPACE}/secrets", {"metadata": {"name": "s"}}
        )
        for path in ("/apis//v1/secrets", f"/apis//v1/namespaces/{SPACE}/secrets/s"):
            answer = await harness.send(NOBODY, "GET", path)
            assert answer.status in (403, 404)
            assert (await harness.send(BOSS, "GET", path)).status == 404

    play(scenario)


def test_an_action_follows_the_current_catalogue(catalogue: Catalogue) -> None:
    actions = Actions(catalogue)
    request = Request(method="GET", path="/apis/tuist.dev/v1alpha1/runnerpools")
    before = actions.of(request)
    row = catalogue.find("tuist.dev", "v1alpha1", "runnerpools")
    assert row is not None
    catalogue.withdraw(row.key)
    assert actions.of(request) == before  # by its form alone, now
    catalogue.serve(row)
    assert actions.of(request) == before


NAMES = {
    "metadata.name=a": "a",
    "metadata.name==a": "a",
    "spec.nodeName=n,metadata.name=a": "a",
    "metadata.name!=a": "",
    "metadata.name": "",
    "metadata.name=a=b": "",
    "metadata.name=a/b": "",
    "metadata.name=..": "",
    " metadata.name=a": "",
    "metadata.name=a\\,b": "a,b",
}


@pytest.mark.parametrize("selector", NAMES)
def test_the_name_in_a_selector_is_the_one_that_the_list_reads(selector: str) -> None:
    name = exact_name(selector)
    assert name == NAMES[selector]
    if name:
        listed = parse(PODS, "", selector)
        assert ("metadata.name", name) in [(each.key, each.values[0]) for _, each in listed.fields]


def grown(count: int, send: Callable[[int], object]) -> int:
    """The bytes that are still held after so many requests."""

    send(0)
    tracemalloc.start()
    try:
        for turn in range(1, count):
            send(turn)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def _rbac() -> Rbac:
    role = {"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [rule("pods", "get")]}
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "r"},
        "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [user("bob")],
    }
    return Rbac(lambda: RbacObjects.of([role, binding]))


def test_long_requests_are_not_cached(catalogue: Catalogue) -> None:
    rbac, actions, bob = _rbac(), Actions(catalogue), User(name="bob")
    asks = {
        "verbs": lambda turn: rbac.decide(bob, Action(verb=f"{turn}{LONG}", plural="pods")),
        "paths": lambda turn: rbac.decide(bob, Action(verb="get", path=f"/{turn}{LONG}")),
        "users": lambda turn: rbac.decide(User(name=f"{turn}{LONG}"), Action(verb="get")),
        "groups": lambda turn: rbac.decide(
            User(name="x", groups=(f"{turn}{LONG}",)), Action(verb="a")
        ),
        "keys of labels": lambda turn: grammar.qualified(f"{turn}{LONG}"),
        "values of labels": lambda turn: grammar.label_value(f"{turn}{LONG}"),
        "names": lambda turn: actions.of(
            Request(method="GET", path=f"/api/v1/namespaces/x/pods/{turn}{LONG}")
        ),
        "methods": lambda turn: actions.of(Request(method=f"{turn}{LONG}", path="/api")),
        "selected names": lambda turn: actions.of(
            Request(
                method="GET",
                path="/api/v1/pods",
                query=(("fieldSelector", f"metadata.name={turn}{LONG}"),),
            )
        ),
        "selectors": lambda turn: parse(PODS, "", f"metadata.name={turn}{LONG}"),
    }
    held = {name: grown(20, send) for name, send in asks.items()}
    assert {name: size for name, size in held.items() if size > len(LONG)} == {}


def test_caches_of_many_requests_are_bounded() -> None:
    rbac = _rbac()

    def send(turn: int) -> None:
        caller = User(name="bob" if turn % 2 else f"somebody-{turn}")
        rbac.decide(caller, Action(verb=f"verb-{turn}", plural="pods"))

    assert grown(20_000, send) < 4 << 20


def test_a_long_selector_is_served() -> None:
    rbac, bob = _rbac(), User(name="bob", groups=(LONG,))
    assert rbac.decide(bob, Action(verb="get", plural="pods", name=LONG)).allowed
    assert not rbac.decide(bob, Action(verb=LONG, plural="pods")).allowed
    assert grammar.qualified(f"{LONG}/a").startswith("prefix part")
    assert grammar.qualified(f"a/{LONG}").startswith("name part")
    assert msgspec.json.encode(grammar.label_value(LONG)) == b'"must be no more than 63 bytes"'
