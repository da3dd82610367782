"""Checks the messages of the commits since the last release: `python tools/commits.py`.

A message is `package: imperative subject` of at most 72 characters, a blank line, and a body that says why. A release
is a tag `v*`. Before the first one, the commit in `tools/commits-since` is the start: older messages had other rules.
Merges are not checked. Without that history (a tarball, a shallow clone) nothing is checked, and the output says so.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START = "tools/commits-since"
LONGEST = 72
SUBJECT = re.compile(r"[a-z0-9_./-]+(, [a-z0-9_./-]+)*: \S")


class NoHistory(Exception):
    """The commits since the last release are not all here."""


def complaints(message: str) -> list[str]:
    """What is wrong with a commit's message."""
    subject, *rest = message.rstrip("\n").split("\n")
    found = []
    if not SUBJECT.match(subject):
        found.append("the subject is not `package: imperative subject`")
    if len(subject) > LONGEST:
        found.append(f"the subject has {len(subject)} characters; at most {LONGEST} are allowed")
    if subject.endswith("."):
        found.append("the subject ends in a period")
    if not any(line.strip() for line in rest):
        found.append("there is no body; it says why")
    elif rest[0] or not rest[1].strip():
        found.append("subject and body are not separated by one blank line")
    return found


def messages(root: Path = ROOT) -> list[tuple[str, str]]:
    """The commits since the last release, newest first, as id and message; raises `NoHistory`."""
    if not (root / ".git").exists():
        raise NoHistory("there is no git repository")
    start = _start(root)
    listed = _git(root, "log", "--no-merges", "--format=%H%n%B%x00", f"{start}..HEAD")
    entries = [entry.lstrip("\n") for entry in listed.split("\0") if entry.strip()]
    return [(entry[:40], entry[41:]) for entry in entries]


def _start(root: Path) -> str:
    try:
        return _git(root, "describe", "--tags", "--abbrev=0", "--match", "v*").strip()
    except NoHistory:
        start = (root / START).read_text(encoding="ascii").strip()
    _git(root, "merge-base", "--is-ancestor", start, "HEAD")
    return start


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-c", "safe.directory=*", *arguments]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, check=False)
    except OSError as error:
        raise NoHistory(f"git cannot be run: {error}") from error
    if done.returncode:
        why = " ".join(done.stderr.decode(errors="replace").split())
        raise NoHistory(f"git {arguments[0]}: {why or f'exit code {done.returncode}'}")
    return done.stdout.decode(errors="replace")


def main(root: Path = ROOT) -> int:
    """Print what is wrong; the exit code is 1 if anything is."""
    try:
        commits = messages(root)
    except NoHistory as missing:
        print(
            f"commits: skipped, because the history since the last release is not here ({missing})"
        )
        return 0
    wrong = [
        f"{commit[:12]} {message.partition(chr(10))[0]!r}: {complaint}"
        for commit, message in commits
        for complaint in complaints(message)
    ]
    print("\n".join([*wrong, f"commits: {len(commits)} checked, {len(wrong)} complaints"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
