"""The same generated requests to a real server and to the embedded one get the same answers."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import controlplane
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from tests.conformance.kube import known
from tests.conformance.kube.differential import Pair
from tests.conformance.kube.replay import Difference, compare, normalised
from tests.conformance.kube.sequences import SHORTEST, Step, sequences
from tests.conftest import COMPARED, Absent
from tests.tiers import pick

SEQUENCES = pick(fast=50, ci=50, long=300)
EVERY_DIFFERENCE = 300  # so many sequences meet every difference that the page lists
SEED = int(os.environ.get("RUNYARD_DIFFERENTIAL_SEED", "1"))


@pytest.fixture
def pair(tmp_path: Path, absent: Absent) -> Iterator[Pair]:
    assets = controlplane.find_assets(os.environ)
    if assets is None:
        absent("a real kube-apiserver", controlplane.HOW)
    with Pair(assets, tmp_path / "apiserver") as both:
        if not both.plane.modern:
            pytest.skip(
                f"answers are compared with a modern server, this is {both.plane.git_version}"
            )
        yield both


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_generated_requests_are_answered_alike(pair: Pair, request: pytest.FixtureRequest) -> None:
    admitted = known.read()
    occurred: Counter[str] = Counter()
    played: list[int] = []

    @seed(SEED)
    @settings(
        max_examples=SEQUENCES,
        database=None,
        phases=(Phase.generate,),  # shrinking takes longer than reading the report
        suppress_health_check=list(HealthCheck),
    )
    @given(sequences())
    def play(steps: tuple[Step, ...]) -> None:
        played.append(len(steps))
        unknown = []
        for found in pair.differences(steps):
            names = [row.id for row in admitted if row.covers(found)]
            occurred.update(names[:1])
            if not names:
                unknown.append(found)
        assert not unknown, report(steps, unknown)

    play()
    listed = ", ".join(f"{row.id} {occurred[row.id]} times" for row in admitted)
    result = f"{len(played)} sequences, {sum(played)} requests, seed {SEED}; listed: {listed}"
    request.node.user_properties.append((COMPARED, result))
    assert len(played) >= SEQUENCES and min(played) >= SHORTEST
    if SEQUENCES < EVERY_DIFFERENCE:
        return  # too few requests to say that a listed difference no longer occurs
    gone = [row.id for row in admitted if not occurred[row.id]]
    assert not gone, f"these listed differences no longer occur, take them off the page: {gone}"


def report(steps: tuple[Step, ...], unknown: list[Difference]) -> str:
    """The first answer that differs, and the requests about the same kind."""
    first = unknown[0].step
    plural = unknown[0].request.split()[-1].partition("/")[0]
    lines = [found.describe() for found in unknown if found.step == first]
    requests = [
        f"  {number}: {step}" for number, step in enumerate(steps) if step.kind.plural == plural
    ]
    return "\n".join(["the answers differ", *lines, "the requests were", *requests])


def test_the_list_of_known_differences_does_not_grow() -> None:
    rows = known.read()
    assert rows, "the table was not found"
    assert len(rows) <= known.MOST <= 10
    assert len({row.id for row in rows}) == len(rows)


def answer(**body: object) -> list[tuple[str, object]]:
    return [("get pods", {"code": 200, "body": body})]


@pytest.mark.parametrize(
    ("one", "other", "paths"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["body.a"]),
        ({"a": 1}, {}, ["body.a"]),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, ["body.a[].b"]),
        ({"a": [1, 2]}, {"a": [1]}, ["body.a"]),
    ],
)
def test_a_difference_is_found(
    one: dict[str, object], other: dict[str, object], paths: list[str]
) -> None:
    found = compare(normalised(answer(**one)), normalised(answer(**other)))
    assert [item.path for item in found] == paths


def test_versions_are_compared_by_their_order() -> None:
    def answers_with(*versions: str) -> list[tuple[str, object]]:
        items = [{"metadata": {"uid": "u", "resourceVersion": version}} for version in versions]
        return [("get pods", item) for item in items]

    assert not list(compare(normalised(answers_with("5", "9")), normalised(answers_with("1", "2"))))
    assert list(compare(normalised(answers_with("5", "9")), normalised(answers_with("2", "1"))))
    assert list(compare(normalised(answers_with("5", "5")), normalised(answers_with("1", "2"))))


def test_a_missing_event_is_found() -> None:
    both = [("watch pods", {"type": "ADDED"}), ("watch pods", {"type": "DELETED"})]
    assert list(compare(both, both[:1]))
