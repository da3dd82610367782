"""The real kubectl and custom resources: defining, using, showing and removing them."""

import json
from typing import Any

import pytest
from tests.embedded.kube.crdsupport import NAME, definition, widget
from tests.embedded.kube_http.kubectlsupport import SPACE, Play, Served

from runyard.wire import manifests

HEAD = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}


def write(served: Served, name: str, obj: dict[str, Any]) -> str:
    path = served.folder / f"{name}.json"
    path.write_text(json.dumps(obj))
    return str(path)


async def defined(served: Served) -> str:
    path = write(served, "definition", HEAD | definition())
    assert "created" in await served.kubectl("apply", "-f", path)
    await served.kubectl("wait", "--for=condition=established", "--timeout=10s", f"crd/{NAME}")
    return path


@pytest.mark.slow
def test_a_definition_is_applied_used_and_deleted(play: Play) -> None:
    async def scenario(served: Served) -> None:
        path = await defined(served)
        one = write(served, "one", widget("one"))
        assert "created" in await served.kubectl("apply", "-f", one)
        assert "unchanged" in await served.kubectl("apply", "-f", one)
        assert "applied" in await served.kubectl("apply", "--server-side", "-f", one)
        lines = (await served.kubectl("get", "widgets", "-o", "wide")).splitlines()
        assert [line.split() for line in lines] == [
            ["NAME", "SIZE", "SEEN", "COLOUR"],
            ["one", "3", "red"],
        ]
        found = json.loads(await served.kubectl("get", "wi", "one", "-o", "json"))
        assert found["spec"] == {"size": 3, "colour": "red"}
        assert "Colour:  red" in await served.kubectl("describe", "widget", "one")
        assert "Established" in await served.kubectl("describe", "crd", NAME)
        await served.kubectl("scale", "widget/one", "--replicas=5")
        await served.kubectl("patch", "widget", "one", "--type=merge", "-p", '{"spec":{"port":80}}')
        pointed = "-o=jsonpath={.spec.size} {.spec.port}"
        assert await served.kubectl("get", "widget", "one", pointed) == "5 80"
        assert "deleted" in await served.kubectl("delete", "-f", path)
        code, _, err = await served.run("get", "widgets")
        assert code == 1 and "could not find" in err

    play(scenario)


def test_a_wrong_object_is_refused_with_the_reason(play: Play) -> None:
    async def scenario(served: Served) -> None:
        await defined(served)
        bad = write(served, "bad", widget("bad", size=0))
        code, _, err = await served.run("apply", "-f", bad)
        assert code == 1
        assert "spec.size in body should be greater than or equal to 1" in err
        typo = write(served, "typo", widget("typo", sice=4))
        code, _, err = await served.run("create", "-f", typo)
        assert code == 1 and 'unknown field "spec.sice"' in err
        code, out, err = await served.run("create", "-f", typo, "--validate=warn")
        assert code == 0 and "created" in out and 'unknown field "spec.sice"' in err
        assert served.core.find(f"widgets.{NAME.partition('.')[2]}", SPACE, "typo") is not None

    play(scenario)


def test_our_own_kinds_can_be_read_and_explained(play: Play) -> None:
    async def scenario(served: Served) -> None:
        shown = await served.kubectl("get", "crd", "-o", "name")
        assert shown.split() == [
            f"customresourcedefinition.apiextensions.k8s.io/{item['metadata']['name']}"
            for item in manifests.definitions()
        ]
        lines = (await served.kubectl("get", "rpool", "-o", "wide")).splitlines()
        assert lines[0].split() == [
            *("NAME", "REPLICAS", "OBSERVED", "DISPATCHLABEL"),
            *("IMAGE", "OBSERVEDIMAGE", "FLEETSELECTOR", "AGE"),
        ]
        assert "-required-" in await served.kubectl("explain", "runnerpool.spec")
        assert "containerPort" in await served.kubectl("explain", "pod.spec.containers.ports")
        shown = await served.kubectl("get", "runtimeclass")
        assert "runyard-tart" in shown and "HANDLER" in shown

    play(scenario)
