"""Commit messages obey their law, and each part of it can be broken."""

import os
import subprocess
from pathlib import Path

import commits
import pytest

BODY = "\n\nBecause the old way failed.\n"
GOOD = [
    "dispatch: requeue the intended job" + BODY,
    "dispatch, embedded/kube: remove a cycle" + BODY,
    ".ci: cache mypy" + BODY,
    "x: " + "a" * (commits.LONGEST - 3) + BODY,
    "wire: name the codes\n\nFirst paragraph.\n\nSecond paragraph.\n",
]
BAD = {
    "Requeue the intended job" + BODY: "is not `package:",
    "Dispatch: requeue the job" + BODY: "is not `package:",
    "dispatch:requeue the job" + BODY: "is not `package:",
    "dispatch,web: requeue the job" + BODY: "is not `package:",
    "dispatch: " + BODY: "is not `package:",
    "x: " + "a" * (commits.LONGEST - 2) + BODY: "73 characters",
    "dispatch: requeue the job." + BODY: "ends in a period",
    "dispatch: requeue the job\n": "no body",
    "dispatch: requeue the job\n\n \n": "no body",
    "dispatch: requeue the job\nBecause.\n": "one blank line",
    "dispatch: requeue the job\n\n\nBecause.\n": "one blank line",
}


@pytest.mark.parametrize("message", GOOD)
def test_a_good_message_is_accepted(message: str) -> None:
    assert commits.complaints(message) == []


@pytest.mark.parametrize(("message", "complaint"), BAD.items())
def test_a_bad_message_is_found(message: str, complaint: str) -> None:
    (found,) = commits.complaints(message)
    assert complaint in found


class Repository:
    """A repository of its own, untouched by the user's settings."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.git("init", "--quiet")
        (path / "tools").mkdir()

    def git(self, *arguments: str) -> str:
        mine = {
            f"GIT_{who}_{what}": "a"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        nowhere = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env={"PATH": os.environ["PATH"], **mine, **nowhere},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        self.git("commit", "--quiet", "--allow-empty", "--cleanup=verbatim", "-m", message)
        return self.git("rev-parse", "HEAD")

    def start(self, commit: str) -> None:
        (self.path / commits.START).write_text(f"{commit}\n", encoding="ascii")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_commits_are_checked_from_the_start_and_no_older_ones(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.start(repository.commit("Older rules"))
    repository.commit("web: show the queue" + BODY)
    assert commits.main(repository.path) == 0
    assert "1 checked, 0 complaints" in capsys.readouterr().out
    bad = repository.commit("web: show the queue." + BODY)
    assert commits.main(repository.path) == 1
    assert f"{bad[:12]} 'web: show the queue.': the subject ends" in capsys.readouterr().out


def test_a_release_is_a_new_start(repository: Repository) -> None:
    repository.start(repository.commit("Older rules"))
    repository.commit("No package" + BODY)
    repository.git("tag", "v1.0.0")
    assert commits.messages(repository.path) == []
    repository.commit("web: show the queue" + BODY)
    assert [message for _, message in commits.messages(repository.path)] == [
        "web: show the queue" + BODY
    ]


def test_without_the_history_it_says_that_nothing_was_checked(
    repository: Repository,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    repository.commit("web: show the queue." + BODY)
    repository.start("0" * 40)  # as in a shallow clone: the start is not here
    assert commits.main(repository.path) == 0
    assert commits.main(tmp_path_factory.mktemp("tarball")) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 and all("commits: skipped" in line for line in said)
