"""The transcripts of the documentation: blocks with commands and what they print, produced by tests.

A transcript is a block of a page, fenced or indented, in which a line begins with `$ ` and another one does not. The
test of its page runs its commands and compares the output with `check`, except for what differs from run to run
(names, numbers of jobs, ages, ports). With `RUNYARD_TRANSCRIPTS=write` the same test writes the page instead.
`tests/laws` fails for a transcript on a page that is not in `CHECKED`.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
# Page → how many transcripts it has, and the file with the test that produces them.
CHECKED = {
    "docs/doctor.md": (1, "tests/hosts/doctor/test_doctor_command.py"),
    "docs/embedded-kubernetes.md": (1, "tests/embedded/kube_http/test_kubectl_transcript.py"),
    "docs/explain.md": (1, "tests/web/explain/test_explain_api.py"),
    "docs/first-mac.md": (6, "tests/embedded/up/test_up_first_mac.py"),
    "docs/images.md": (2, "tests/cli/test_cli_image.py"),
    "docs/install.md": (1, "tests/cli/test_cli_packages.py"),
    "docs/one-machine.md": (6, "tests/embedded/up/test_up_transcript.py"),
    "docs/pools.md": (4, "tests/embedded/up/test_up_pools.py"),
    "docs/proof.md": (1, "tests/cli/test_cli_prove.py"),
    "docs/second-mac.md": (6, "tests/hosts/joining/test_joining_transcript.py"),
    "docs/status.md": (1, "tests/embedded/up/test_up_pools.py"),
    "docs/testing.md": (1, "tests/embedded/up/test_up_tart.py"),
    "docs/xcresult.md": (3, "tests/cli/test_xcresult_real.py"),
}
_FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^ {4}.*\n(?: {4}.*\n|\n(?= {4}))*", re.MULTILINE)
# In this order: what may have letters and digits by chance comes before what they may look like, as 818d an age.
_VOLATILE = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"\b([a-z]+-runner)-[0-9a-f]{8}\b"), r"\1-NAME"),
    (re.compile(r"\b\d{11}\b"), "JOB"),
    (re.compile(r"\bcode=[0-9a-f]{32}\b"), "code=CODE"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\bADDRESS/[0-9a-f]{32}\b"), "ADDRESS/PAGE"),
    (re.compile(r"\b(runyard-[a-z]+)-[0-9a-f]{4}\b"), r"\1-XXXX"),
    (re.compile(r"^ *\d+\.\d s ", re.MULTILINE), "SECONDS "),
    (re.compile(r"\b(?:\d+[dhms])+\b"), "AGE"),
    (re.compile(r"\bfor (?:under )?(?:\d+ (?:s|min|h) ?)+"), "for AGE"),
    (re.compile(r"\b(?:\d+ (?:s|min|h) ago|now)\b(?=[,:]|$)", re.MULTILINE), "AGE ago"),
    (re.compile(r"\bage: (?:\d+ (?:s|min|h)|now)$", re.MULTILINE), "age: AGE"),
    (re.compile(r"isolation: .*"), "isolation: AS PROBED"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", re.MULTILINE), "TIME"),
    (re.compile(r"\b[\d.]+ of (\d+\.\d [GM]B) \(\d+ %\), .* left$", re.MULTILINE), r"PART of \1"),
    (re.compile(r"\b(has pulled \S+) in .*$", re.MULTILINE), r"\1"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" $", re.MULTILINE), ""),
    (re.compile(r"-{3,}"), "---"),
)


class Step(msgspec.Struct, frozen=True):
    """One command and what it prints."""

    command: str
    output: str


class Transcript(msgspec.Struct, frozen=True):
    """One block of a page."""

    page: Path
    text: str
    indent: str

    @property
    def steps(self) -> list[Step]:
        lines = [line.removeprefix(self.indent) for line in self.text.splitlines(keepends=True)]
        found: list[list[str]] = []
        for line in lines:
            if line.startswith("$ "):
                found.append([line[2:].rstrip("\n"), ""])
            elif found:
                found[-1][1] += line
        return [Step(command, output) for command, output in found]


def transcripts(page: str) -> list[Transcript]:
    """The transcripts of a page, in its order."""
    return list(_found(ROOT / page))


def _found(page: Path) -> Iterator[Transcript]:
    text = page.read_text(encoding="utf-8")
    blocks = [(found.start(), found[1], "") for found in _FENCED.finditer(text)]
    without = _FENCED.sub(lambda found: re.sub(r"[^\n]", "x", found[0]), text)
    blocks += [(found.start(), found[0], "    ") for found in _INDENTED.finditer(without)]
    for _, block, indent in sorted(blocks):
        one = Transcript(page, block, indent)
        if any(step.output.strip() for step in one.steps):
            yield one


def shape(text: str) -> str:
    """The text without what differs from run to run."""
    for volatile, placeholder in _VOLATILE:
        text = volatile.sub(placeholder, text)
    return text.strip()


def check(transcript: Transcript, outputs: Sequence[str]) -> None:
    """Compare what the commands printed with the page, or write the page."""
    steps = transcript.steps
    assert len(outputs) == len(steps)
    if os.environ.get("RUNYARD_TRANSCRIPTS") == "write":
        _write(transcript, outputs)
        return
    for step, output in zip(steps, outputs, strict=True):
        assert shape(output) == shape(step.output), f"{transcript.page.name}: {step.command}"


def _write(transcript: Transcript, outputs: Sequence[str]) -> None:
    lines = "".join(
        f"$ {step.command}\n{output.rstrip()}\n" if output.strip() else f"$ {step.command}\n"
        for step, output in zip(transcript.steps, outputs, strict=True)
    )
    indented = "".join(
        transcript.indent + line if line.strip() else line
        for line in lines.splitlines(keepends=True)
    )
    page = transcript.page.read_text(encoding="utf-8")
    assert page.count(transcript.text) == 1
    transcript.page.write_text(page.replace(transcript.text, indented), encoding="utf-8")
