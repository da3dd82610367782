"""Definitions: served once created, deleted with their objects, and restored after a restart."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.embedded.kube.coresupport import (
    MERGE,
    POOLS,
    Harness,
    events,
    play,
    pool,
    types_and_names,
)
from tests.embedded.kube.crdsupport import DEFINITIONS, GROUP, NAME, WIDGETS, definition, widget
from tests.embedded.kube.journalsupport import DataDir, run_restarts

from runyard.embedded.kube.storage.journal import Journal, JournalFull, Row
from runyard.sim.loop import run_virtual
from runyard.wire import manifests

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def conditions(obj: dict[str, Any]) -> dict[str, tuple[str, str]]:
    found = obj["status"]["conditions"]
    return {item["type"]: (item["status"], item["reason"]) for item in found}


def test_a_definition_is_served_as_soon_as_it_is_stored() -> None:
    async def scenario(harness: Harness) -> None:
        assert (await harness.call("GET", WIDGETS)).status == 404
        made = await harness.ok("POST", DEFINITIONS, definition())
        assert made["status"]["conditions"] is None, (
            "the response to the create has no conditions yet"
        )
        now = await harness.ok("GET", f"{DEFINITIONS}/{NAME}")
        assert conditions(now) == {
            "NamesAccepted": ("True", "NoConflicts"),
            "Established": ("True", "InitialNamesAccepted"),
        }
        assert now["status"]["acceptedNames"]["listKind"] == "WidgetList"
        assert now["status"]["storedVersions"] == ["v1"]
        assert (await harness.ok("GET", WIDGETS))["kind"] == "WidgetList"
        rows = (await harness.ok("GET", f"/apis/{GROUP}/v1"))["resources"]
        assert [row["name"] for row in rows] == ["widgets", "widgets/status", "widgets/scale"]
        index = await harness.ok("GET", "/openapi/v3")
        assert f"apis/{GROUP}/v1" in index["paths"]

    play(scenario)


def test_names_that_another_kind_has_are_not_accepted_until_they_are_free() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", DEFINITIONS, definition())
        await harness.ok("POST", DEFINITIONS, definition("wonders", "Widget"))
        other = f"wonders.{GROUP}"
        found = await harness.ok("GET", f"{DEFINITIONS}/{other}")
        assert conditions(found) == {
            "NamesAccepted": ("False", "ListKindConflict"),
            "Established": ("False", "NotAccepted"),
        }
        path = WIDGETS.replace("widgets", "wonders")
        assert (await harness.call("GET", path)).status == 404
        await harness.ok("DELETE", f"{DEFINITIONS}/{NAME}")
        found = await harness.ok("GET", f"{DEFINITIONS}/{other}")
        assert conditions(found)["Established"] == ("True", "InitialNamesAccepted")
        assert (await harness.ok("GET", path))["items"] == []

    play(scenario)


def test_a_deleted_definition_deletes_its_objects_and_ends_its_watches() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", DEFINITIONS, definition())
        for name in ("a", "b"):
            await harness.ok("POST", WIDGETS, widget(name))
        stream = await harness.watch(WIDGETS, resourceVersion=harness.core.version)
        await harness.ok("DELETE", f"{DEFINITIONS}/{NAME}")
        assert types_and_names(await events(stream)) == [("DELETED", "a"), ("DELETED", "b")]
        for path in (WIDGETS, f"{WIDGETS}/a", f"/apis/{GROUP}/v1", f"/apis/{GROUP}"):
            assert (await harness.call("GET", path)).status == 404
        assert (await harness.call("GET", f"{DEFINITIONS}/{NAME}")).status == 404
        groups = (await harness.ok("GET", "/apis"))["groups"]
        assert GROUP not in [group["name"] for group in groups]

    play(scenario)


def test_an_object_with_finalizers_keeps_its_definition() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", DEFINITIONS, definition())
        await harness.ok("POST", WIDGETS, widget(meta={"finalizers": ["x.y/hold"]}))
        gone = await harness.ok("DELETE", f"{DEFINITIONS}/{NAME}")
        assert conditions(gone)["Terminating"] == ("True", "InstanceDeletionPending")
        held = await harness.ok("GET", f"{DEFINITIONS}/{NAME}")
        assert held["metadata"]["finalizers"] == [CLEANUP]
        assert conditions(held)["Terminating"] == ("True", "InstanceDeletionInProgress")
        assert "deletionTimestamp" in (await harness.ok("GET", f"{WIDGETS}/a"))["metadata"]
        assert await harness.refused("POST", WIDGETS, widget("b")) == (403, "Forbidden")
        await harness.merge(f"{WIDGETS}/a", {"metadata": {"finalizers": None}})
        assert (await harness.call("GET", f"{DEFINITIONS}/{NAME}")).status == 404
        assert (await harness.call("GET", WIDGETS)).status == 404

    play(scenario)


def test_a_recreated_kind_is_empty_and_old_watches_list_again() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", DEFINITIONS, definition())
        await harness.ok("POST", WIDGETS, widget())
        seen = harness.core.version
        await harness.ok("DELETE", f"{DEFINITIONS}/{NAME}")
        await harness.ok("POST", DEFINITIONS, definition())
        assert (await harness.ok("GET", WIDGETS))["items"] == []
        stream = await harness.watch(WIDGETS, resourceVersion=seen)
        (gone,) = await events(stream)
        assert (gone["type"], gone["object"]["code"]) == ("ERROR", 410)

    play(scenario)


def test_a_changed_schema_shows_what_was_stored_with_its_new_defaults() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.ok("POST", DEFINITIONS, definition())
        made = await harness.ok("POST", WIDGETS, widget(size=9))
        fresh = definition()
        schema = {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {
                        "size": {"type": "integer", "maximum": 5},
                        "new": {"type": "string", "default": "here"},
                    },
                }
            },
        }
        fresh["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
        fresh["spec"]["versions"][0]["selectableFields"] = []
        await harness.merge(f"{DEFINITIONS}/{NAME}", {"spec": fresh["spec"]})
        found = await harness.ok("GET", f"{WIDGETS}/a")
        assert found["spec"] == {"size": 9, "new": "here"}
        assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        # A value that is invalid in the new schema may stay unchanged.
        await harness.merge(f"{WIDGETS}/a", {"metadata": {"labels": {"a": "b"}}})
        patch = {"spec": {"size": 8}}
        assert await harness.refused("PATCH", f"{WIDGETS}/a", patch, kind=MERGE) == (422, "Invalid")

    play(scenario)


def test_our_own_kinds_are_definitions_that_are_there_from_the_start() -> None:
    async def scenario(harness: Harness) -> None:
        listed = (await harness.ok("GET", DEFINITIONS))["items"]
        names = [item["metadata"]["name"] for item in listed]
        assert names == [item["metadata"]["name"] for item in manifests.definitions()]
        made = await harness.ok("POST", POOLS, pool())
        assert made["spec"]["replicas"] == 0 and made["spec"]["podMemoryMB"] == 14336
        assert made["metadata"]["generation"] == 1

    play(scenario)


# ---- across restarts


def test_a_restart_restores_definitions_and_their_objects(tmp_path: Path) -> None:
    async def before(harness: Harness) -> None:
        await harness.ok("POST", DEFINITIONS, definition())
        await harness.ok("POST", WIDGETS, widget())
        await harness.ok("POST", POOLS, pool())

    async def after(harness: Harness) -> None:
        assert (await harness.ok("GET", f"{WIDGETS}/a"))["spec"]["colour"] == "red"
        assert (await harness.ok("GET", f"{POOLS}/mac"))["spec"]["os"] == "darwin"
        await harness.ok("DELETE", f"{DEFINITIONS}/{NAME}")

    async def last(harness: Harness) -> None:
        assert (await harness.call("GET", WIDGETS)).status == 404
        assert (await harness.ok("GET", f"{POOLS}/mac"))["metadata"]["name"] == "mac"

    run_restarts(DataDir(tmp_path), before, after, last)


class Refusing(Journal):
    """A journal that reports a full disk on request."""

    full = False

    def commit(self, version: int, rows: Iterable[Row]) -> None:
        if self.full:
            raise JournalFull("no space", fix="free some space")
        super().commit(version, rows)


@pytest.mark.parametrize("act", ["define", "delete"])
def test_a_definition_that_could_not_be_stored_changes_nothing(tmp_path: Path, act: str) -> None:
    journal = Refusing(tmp_path / "api.db")

    async def scenario() -> None:
        harness = Harness(journal=journal)
        if act == "delete":
            await harness.ok("POST", DEFINITIONS, definition())
            await harness.ok("POST", WIDGETS, widget())
        journal.full = True
        if act == "delete":
            answer = await harness.call("DELETE", f"{DEFINITIONS}/{NAME}")
        else:
            answer = await harness.call("POST", DEFINITIONS, definition())
        assert answer.status == 507
        journal.full = False
        found = await harness.call("GET", f"{WIDGETS}/a")
        assert found.status == (200 if act == "delete" else 404)
        if act == "delete":
            await harness.ok("POST", WIDGETS, widget("b"))
        else:
            await harness.ok("POST", DEFINITIONS, definition())
            await harness.ok("POST", WIDGETS, widget())

    run_virtual(scenario())
    journal.close()
