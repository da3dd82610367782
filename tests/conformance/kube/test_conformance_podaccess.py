"""What admission mounts into a new Pod to call the API, and where the CA certificate comes from."""

from typing import Any

import pytest
from tests.conformance.kube.kit import ROOT_CA, Api, Json, pod

pytestmark = pytest.mark.since(1, 24)

PLACE = "/var/run/secrets/kubernetes.io/serviceaccount"
PREFIX = "kube-api-access-"
PROJECTED = {
    "defaultMode": 420,
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [
                    {
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }
                ]
            }
        },
    ],
}


def container(name: str, *mounts: Json) -> Json:
    return {"name": name, "image": "vm:1", "volumeMounts": list(mounts)}


def mounted(spec: Json) -> dict[str, list[tuple[str, str]]]:
    """What each container has mounted where; the volume of the token is called "token"."""
    token = next((v["name"] for v in spec.get("volumes", ()) if v["name"].startswith(PREFIX)), "")
    return {
        each["name"]: [
            ("token" if mount["name"] == token else mount["name"], mount["mountPath"])
            for mount in each.get("volumeMounts", ())
        ]
        for each in (*spec.get("initContainers", ()), *spec["containers"])
    }


async def test_every_container_gets_the_token(api: Api) -> None:
    own = {"name": "own", "emptyDir": {}}
    made = await api.create(
        api.pods(),
        pod(
            volumes=[own],
            initContainers=[container("first")],
            containers=[
                container("plain"),
                container("busy", {"name": "own", "mountPath": "/own"}),
                container("taken", {"name": "own", "mountPath": PLACE}),
            ],
        ),
    )
    spec = made["spec"]
    result, added = spec["volumes"]
    assert result == own
    suffix = added["name"].removeprefix(PREFIX)
    assert len(suffix) == 5 and added == {"name": PREFIX + suffix, "projected": PROJECTED}
    assert mounted(spec) == {
        "first": [("token", PLACE)],
        "plain": [("token", PLACE)],
        "busy": [("own", "/own"), ("token", PLACE)],
        "taken": [("own", PLACE)],
    }
    mount = spec["containers"][0]["volumeMounts"][0]
    assert mount == {"name": added["name"], "mountPath": PLACE, "readOnly": True}
    assert (await api.get(api.pods("p")))["spec"] == spec


async def test_added_fields_have_no_manager(api: Api) -> None:
    made = [
        await api.create(api.pods(), pod("created")),
        await api.apply(api.pods("applied"), pod("applied"), "somebody"),
    ]
    for each in made:
        (entry,) = each["metadata"]["managedFields"]
        assert "f:volumes" not in entry["fieldsV1"]["f:spec"]
        assert PREFIX not in str(entry)
    again = await api.apply(api.pods("applied"), pod("applied"), "somebody")
    assert again == made[1]


async def test_the_names_of_volumes_differ(api: Api) -> None:
    made = [await api.create(api.pods(), pod(name)) for name in ("a", "b", "c")]
    assert len({each["spec"]["volumes"][0]["name"] for each in made}) == 3


@pytest.mark.parametrize(
    ("account", "result", "expected"),
    [
        (None, None, True),
        (None, True, True),
        (None, False, False),
        (False, None, False),
        (False, True, True),
        (True, False, False),
        (True, None, True),
    ],
)
async def test_a_pod_can_opt_out_of_its_token(
    api: Api, account: bool | None, result: bool | None, expected: bool
) -> None:
    automount = {} if account is None else {"automountServiceAccountToken": account}
    await api.create(api.path("serviceaccounts"), {"metadata": {"name": "robot"}, **automount})
    more: dict[str, Any] = {} if result is None else {"automountServiceAccountToken": result}
    made = await api.create(api.pods(), pod(serviceAccountName="robot", **more))
    assert mounted(made["spec"]) == {"runner": [("token", PLACE)] if expected else []}
    assert ("volumes" in made["spec"]) is expected


async def test_a_volume_of_that_name_is_used(api: Api) -> None:
    volume = {"name": f"{PREFIX}mine", "emptyDir": {}}
    made = await api.create(api.pods(), pod(volumes=[volume]))
    assert made["spec"]["volumes"] == [volume]
    assert mounted(made["spec"]) == {"runner": [("token", PLACE)]}


async def test_nothing_is_added_when_every_container_has_a_mount_there(api: Api) -> None:
    volume = {"name": "own", "emptyDir": {}}
    mount = {"name": "own", "mountPath": PLACE}
    made = await api.create(api.pods(), pod(volumes=[volume], containers=[container("c", mount)]))
    assert made["spec"]["volumes"] == [volume]


async def test_a_pod_pulls_images_with_the_secrets_of_its_account(api: Api) -> None:
    body = {"metadata": {"name": "robot"}, "imagePullSecrets": [{"name": "pull"}]}
    await api.create(api.path("serviceaccounts"), body)
    made = await api.create(api.pods(), pod("a", serviceAccountName="robot"))
    assert made["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    own = [{"name": "own"}]
    made = await api.create(api.pods(), pod("b", serviceAccountName="robot", imagePullSecrets=own))
    assert made["spec"]["imagePullSecrets"] == own


async def test_a_missing_account_is_reported_first(api: Api) -> None:
    wrong = pod(serviceAccountName="nobody", restartPolicy="Sometimes")
    assert await api.refused("POST", api.pods(), wrong) == (403, "Forbidden")


async def test_added_fields_cannot_be_removed(api: Api) -> None:
    made = await api.create(api.pods(), pod())
    spec = {key: value for key, value in made["spec"].items() if key != "volumes"}
    result = await api.why("PUT", api.pods("p"), {**made, "spec": spec})
    assert (result["code"], result["reason"]) == (422, "Invalid")
    await api.ok("PUT", api.pods("p"), made)


# ---- the certificate


async def test_the_certificate_is_in_every_namespace(api: Api) -> None:
    held = await api.get(api.maps(ROOT_CA))
    assert list(held["data"]) == ["ca.crt"]
    assert held["data"]["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")
    assert list(held["metadata"]["annotations"]) == ["kubernetes.io/description"]
    other = await api.get(f"/api/v1/namespaces/default/configmaps/{ROOT_CA}")
    assert other["data"] == held["data"]


async def test_a_deleted_or_changed_certificate_is_restored(api: Api) -> None:
    before = await api.get(api.maps(ROOT_CA))
    await api.ok("DELETE", api.maps(ROOT_CA))

    async def back() -> Json | None:
        answer = await api.call("GET", api.maps(ROOT_CA))
        found: Json = answer.json()
        return found if answer.status == 200 and found["data"] == before["data"] else None

    again = await api.eventually(back)
    assert again["metadata"]["uid"] != before["metadata"]["uid"]
    await api.patch(api.maps(ROOT_CA), {"data": {"ca.crt": "another", "more": "x"}})
    await api.eventually(back)
    await api.patch(api.maps(ROOT_CA), {"metadata": {"labels": {"mine": "yes"}}})
    held = await api.get(api.maps(ROOT_CA))
    assert held["metadata"]["labels"] == {"mine": "yes"}
