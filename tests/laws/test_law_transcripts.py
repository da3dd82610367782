"""Law: a transcript in the documentation is produced by a test."""

from pathlib import Path

import pytest
from tests.transcripts import CHECKED, ROOT, Transcript, shape, transcripts

PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md"))
)


@pytest.mark.parametrize("page", PAGES)
def test_every_transcript_is_produced_by_a_test(page: str) -> None:
    count, file = CHECKED.get(page, (0, ""))
    assert len(transcripts(page)) == count, f"{page}: list it in CHECKED, or leave the output out"
    assert not file or Path(page).name in (ROOT / file).read_text(encoding="utf-8")


def test_a_transcript_is_found_fenced_and_indented(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```\n$ a\nb\n```\n\n```sh\nno output\n```\n\n```\n$ only commands\n```\n\n"
        "text\n\n    $ c\n    d\n\n    e\n\ntext\n"
    )
    fenced, indented = transcripts(str(page))
    assert [(step.command, step.output) for step in fenced.steps] == [("a", "b\n")]
    assert [(step.command, step.output) for step in indented.steps] == [("c", "d\n\ne\n")]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("mac-runner-0a1b2c3d  3s", "mac-runner-99999999 1m20s", True),
        ("job 40000000001", "job 40000000017", True),
        ("runyard-acme-818d", "runyard-acme-20ca", True),
        (f"127.0.0.1:1/{'8d' * 16}", f"127.0.0.1:22/{'a1' * 16}", True),
        ("   0.1 s  up", "  12.9 s  up", True),
        ("x, for 2 min 14 s", "x, for 3 s", True),
        ("Ready", "NotReady", False),
        ("REPLICAS   OBSERVED", "DESIRED   OBSERVED", False),
        ("4 4", "4 3", False),
    ],
)
def test_only_what_differs_from_run_to_run_is_ignored(one: str, other: str, same: bool) -> None:
    assert (shape(one) == shape(other)) is same


def test_a_block_without_output_has_no_steps_to_check() -> None:
    assert [step.output for step in Transcript(Path(), "$ a\n$ b\n", "").steps] == ["", ""]
