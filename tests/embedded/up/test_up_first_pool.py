"""The first pool follows the driver and `--image` of each start; what a user changed is left alone."""

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.embedded.kube.coresupport import Harness, play

from runyard.embedded.up import first_pool, practice
from runyard.embedded.up.machine import Options
from runyard.hosts.joining import accounts
from runyard.http.loopback import Loopback
from runyard.kube.client import Kube
from runyard.kube.errors import NotFound
from runyard.kube.kinds import RUNNER_POOLS
from runyard.wire import names

OLD, NEW = "registry.example/macos:1", "registry.example/macos:2"
PROCESS = Options(data=Path("/data of mine"))
DELETED = "(deleted)"
TART = msgspec.structs.replace(PROCESS, driver="tart")


def starts(*runs: Options | dict[str, Any] | str) -> tuple[dict[str, Any], list[list[str]]]:
    """The pool, and what each start reported."""
    pool, reported, *_ = labelled(*runs)
    return pool, reported


def labelled(
    *runs: Options | dict[str, Any] | str,
) -> tuple[dict[str, Any], list[list[str]], list[tuple[str, ...]], list[str]]:
    """The pool, what each start reported, the labels for `runs-on` then, and what the pool waits for.

    A dictionary is a change by a user, as a merge patch; a text is a deletion, or the name of a host that joins.
    """
    reported: list[list[str]] = []
    seen: list[tuple[str, ...]] = []
    held: list[str] = []
    found: dict[str, Any] = {}

    async def scenario(harness: Harness) -> None:
        kube, space = Kube(Loopback(harness.core.handle)), names.RUNNERS_NAMESPACE
        for each in runs:
            if isinstance(each, dict):
                await kube.patch(RUNNER_POOLS, practice.POOL, each, namespace=space)
            elif each == DELETED:
                await kube.delete(RUNNER_POOLS, practice.POOL, namespace=space)
            elif isinstance(each, str):
                await accounts.grant(kube, each, "ab" * 16)
            else:
                reported.append([])
                await first_pool.ensure(kube, each, reported[-1].append)
                seen.append(await first_pool.labels(kube))
                held.append(await first_pool.waits_for(kube, each))
        with contextlib.suppress(NotFound):
            found.update(await kube.get(RUNNER_POOLS, practice.POOL, namespace=space))

    play(scenario)
    return found, reported, seen, held


def with_image(options: Options, image: str) -> Options:
    return msgspec.structs.replace(options, image=image)


def by_driver(options: Options) -> dict[str, Any]:
    """What the pool of a machine with these options has, apart from the number of runners."""
    made: dict[str, Any] = practice.pool(replicas=0, driver=options.driver, image=options.image)
    return {key: value for key, value in made["spec"].items() if key != "replicas"}


def has(pool: dict[str, Any], options: Options) -> bool:
    wanted = by_driver(options)
    same = all(pool["spec"][key] == value for key, value in wanted.items())
    return same and pool["spec"].get("runtimeClass", "") == wanted.get("runtimeClass", "")


def test_a_tart_that_is_installed_after_the_first_start_gets_the_pool_that_was_made_without_it() -> (
    None
):
    pool, (first, second) = starts(PROCESS, TART)
    assert has(pool, TART)
    assert first == []
    assert [practice.STOCK_IMAGE in line for line in second] == [True]


def test_a_pool_from_before_the_annotation_is_moved_if_it_is_unchanged() -> None:
    forget = {"metadata": {"annotations": {names.SENT_BY_UP: None}}}
    pool, _ = starts(PROCESS, forget, with_image(TART, NEW))
    assert has(pool, with_image(TART, NEW))


def test_a_workflow_names_the_label_that_the_pool_has_now() -> None:
    _, _, seen, _ = labelled(TART, {"spec": {"dispatchLabel": "ci"}}, TART, DELETED, TART)
    assert seen == [(practice.LABEL,), ("ci",), ()]


def test_an_image_that_is_given_later_reaches_the_pool() -> None:
    pool, (_, second, third) = starts(with_image(TART, OLD), with_image(TART, NEW), TART)
    assert has(pool, with_image(TART, NEW))
    assert [OLD in line and NEW in line for line in second] == [True]
    assert third == [], "without --image the pool keeps what it has"


def test_the_same_image_at_each_start_does_not_undo_a_later_change() -> None:
    changed = {"spec": {"image": NEW}}
    pool, (_, second) = starts(with_image(TART, OLD), changed, with_image(TART, OLD))
    assert pool["spec"]["image"] == NEW
    (line,) = second
    assert line.endswith(
        f"runyard pool create practice --image {OLD} --replace --data '/data of mine'"
    )


def test_an_image_that_is_given_reaches_a_pool_that_a_user_changed() -> None:
    changed = {"spec": {"podMemoryMB": 9000}}
    pool, _ = starts(TART, changed, with_image(TART, NEW))
    assert (pool["spec"]["image"], pool["spec"]["podMemoryMB"]) == (NEW, 9000)


def test_a_pool_that_a_user_changed_is_not_moved_to_another_runtime() -> None:
    changed = {"spec": {"podMemoryMB": 9000}}
    pool, (_, second) = starts(PROCESS, changed, TART)
    assert pool["spec"]["runtimeClass"] == by_driver(PROCESS)["runtimeClass"]
    (line,) = second
    for words in ("runyard pool create practice --runtime tart", practice.STOCK_IMAGE, "--replace"):
        assert words in line


def test_jobs_of_vms_do_not_become_processes_because_tart_is_broken_for_a_while() -> None:
    pool, (_, second) = starts(with_image(TART, OLD), PROCESS)
    assert has(pool, with_image(TART, OLD))
    (line,) = second
    assert "--driver process" in line


@pytest.mark.parametrize(
    ("runs", "waits"),
    [
        ((TART, PROCESS), "tart"),
        ((TART, TART), ""),
        ((TART, msgspec.structs.replace(PROCESS, driver_given=True)), ""),
        ((TART, "mini-2", PROCESS), ""),  # it may have tart
        ((TART, DELETED, PROCESS), ""),
        ((PROCESS, {"spec": {"podMemoryMB": 9000}}, TART), "process"),
    ],
)
def test_a_job_is_to_be_tried_although_no_host_can_run_it(
    runs: tuple[Any, ...], waits: str
) -> None:
    assert labelled(*runs)[3][-1] == waits


def test_a_driver_that_is_named_moves_the_pool_back() -> None:
    named = msgspec.structs.replace(PROCESS, driver_given=True)
    pool, _ = starts(with_image(TART, OLD), named)
    assert has(pool, named)


@pytest.mark.parametrize("options", [PROCESS, TART], ids=["process", "tart"])
def test_the_number_of_runners_stays_and_the_difference_names_its_command(options: Options) -> None:
    more = msgspec.structs.replace(options, hosts=3)
    pool, (first, second) = starts(options, more)
    assert pool["spec"]["replicas"] == 2
    assert first == []
    (line,) = second
    assert "runyard pool create practice --replicas 6 --replace" in line


def test_a_machine_with_joined_hosts_is_not_advised_to_have_fewer_runners() -> None:
    more = {"spec": {"replicas": 6}}  # for the slots of the host that joined
    pool, (_, second) = starts(TART, "mini-2", more, TART)
    assert pool["spec"]["replicas"] == 6
    assert second == []


def test_a_pool_that_a_user_deleted_is_not_made_again_by_the_next_start() -> None:
    pool, (_, second, third) = starts(TART, TART, DELETED, with_image(TART, NEW))
    assert pool == {}
    assert second == []
    (line,) = third
    assert f"Make it again with runyard pool create practice --image {NEW}" in line


def test_a_machine_with_other_vm_slots_has_as_many_runners_of_a_fitting_size() -> None:
    one = msgspec.structs.replace(TART, vm_slots=1)
    pool, (first, second, third) = starts(one, one, TART)
    assert pool["spec"]["replicas"] == 1
    assert first == second == []
    (line,) = third
    share = practice.pool(replicas=2, driver="tart")["spec"]["podMemoryMB"]
    assert "--replicas 2" in line
    if (
        pool["spec"]["podMemoryMB"] != share
    ):  # a small machine gives the least that macOS needs to each
        assert f"--memory {share}Mi" in line
    assert practice.pool(replicas=1, driver="tart", slots=1)["spec"] == {
        **pool["spec"],
        "replicas": 1,
    }
