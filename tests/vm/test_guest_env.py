"""Tests that an environment arrives in a guest of either making: ours, and those made for tart-kubelet.

The guests of tart-kubelet are written here after their description: a loop of bash (runner images) or Python (processor
images) that skips comments, undoes the two escapes and quotes the value for a file that the guest's shell reads.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Absent

from runyard.vm.guest import envfile
from runyard.vm.guest.image import SCRIPTS

VALUES = {
    "EMPTY": "",
    "PLAIN": "a=b c",
    "SPACES": "  two  spaces  ",
    "QUOTES": """'single' "double" '' "" it's""",
    "DOLLAR": "$HOME ${HOME} $(id) $((1)) $'x'",
    "BACKTICKS": "`id` ``",
    "OPERATORS": "a;b&c|d>e<f(g){h}[i]*?~!#%^",
    "NEWLINES": "one\ntwo\n\nfour\n",
    "RETURNS": "one\r\ntwo\r",
    "CERTIFICATE": "-----BEGIN\nMII+/==\n-----END\n",
    "DIRECTORY": "C:\\dir\\file",
    "NEW_DIRECTORY": "C:\\new\\dir",
    "DOUBLED": "C:\\\\new\\\\dir",
    "SHARE": "\\\\server\\share",
    "RETURN_PATH": "\\root\\r\\n",
    "TRAILING": "ends in \\",
    "TRAILING_TWO": "ends in \\\\",
    "BACKSLASH_NEWLINE": "a\\\nb\\\r",
    "OCTAL": "\\134 \\012 \\x5c $'\\n'",
    "EVAL": "x;eval export EMPTY=$'\\n'",
    "TAB": "a\tb\t",
    "UNICODE": "größe 日本 🚀",
    "UNICODE_PATH": "größe\\neu it's",
    "SEPARATORS": "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029",
    "CONTROL": "\x01\x1b[0m\x7f",
    "COMMENT": "#not a comment",
}
# A backslash and an n, or an r: the file of tart-kubelet has the same letters for the end of a line.
AMBIGUOUS = {"NEW_DIRECTORY", "DOUBLED", "RETURN_PATH", "OCTAL", "EVAL", "UNICODE_PATH"}
RUNNER_GUEST = r"""
while IFS= read -r line || [ -n "$line" ]; do
    case $line in '' | '#'*) continue ;; *=*) ;; *) continue ;; esac
    value=${line#*=}
    value=${value//\\n/$'\n'}
    value=${value//\\r/$'\r'}
    printf 'export %s=%q\n' "${line%%=*}" "$value"
done
"""
PROCESSOR_GUEST = """
import shlex, sys
for line in sys.stdin.buffer.read().decode().splitlines():
    key, equals, value = line.partition("=")
    if equals and not line.startswith("#"):
        value = value.replace("\\\\n", "\\n").replace("\\\\r", "\\r")
        sys.stdout.buffer.write(f"export {key}={shlex.quote(value)}\\n".encode())
"""
DUMP = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(k + b'=' + v for k, v in os.environb.items()))"
Guest = Callable[[bytes, Path], dict[str, str]]


def of_kubelet(env: dict[str, str]) -> bytes:
    """The file as tart-kubelet writes it."""
    lines = (f"{key}={value}\n" for key, value in env.items())
    return "".join(
        line[:-1].replace("\n", "\\n").replace("\r", "\\r") + "\n" for line in lines
    ).encode()


def sourced(exports: Path, shell: str) -> dict[str, str]:
    """The environment of a program that a shell starts after it has read the exports."""
    argv = [
        shutil.which(shell) or shell,
        "-c",
        f'. "{exports}"; exec "{sys.executable}" -c "$DUMP"',
    ]
    output = subprocess.run(argv, env={"DUMP": DUMP}, capture_output=True, check=True).stdout
    found = dict(pair.split(b"=", 1) for pair in output.split(b"\0"))
    return {key: found.get(key.encode(), b"missing").decode() for key in VALUES}


def our_guest(shell: str) -> Guest:
    def run(staged: bytes, root: Path) -> dict[str, str]:
        (root / "tuist.env").write_bytes(staged)
        dirs = {"RUNYARD_ENV_DIR": str(root), "RUNYARD_RUN_DIR": str(root)}
        argv = [shell, str(SCRIPTS / "inject-env.sh")]
        subprocess.run(argv, env={"PATH": os.environ["PATH"], **dirs}, check=True)
        return sourced(root / "env.sh", shell)

    return run


def kubelet_guest(reader: list[str], shell: str) -> Guest:
    def run(staged: bytes, root: Path) -> dict[str, str]:
        done = subprocess.run(reader, input=staged, capture_output=True, check=True)
        (root / "exports").write_bytes(done.stdout)
        return sourced(root / "exports", shell)

    return run


OURS = {f"ours in {shell}": (shell, our_guest(shell)) for shell in ("sh", "dash", "bash")}
THEIRS = {
    "runner image in bash": ("bash", kubelet_guest(["bash", "-c", RUNNER_GUEST], "bash")),
    "runner image in zsh": ("zsh", kubelet_guest(["bash", "-c", RUNNER_GUEST], "zsh")),
    "processor image": ("bash", kubelet_guest([sys.executable, "-c", PROCESSOR_GUEST], "bash")),
}
GUESTS = {**OURS, **THEIRS}


@pytest.mark.parametrize(("shell", "guest"), GUESTS.values(), ids=list(GUESTS))
def test_every_value_arrives_unchanged_in_a_guest_of_either_making(
    shell: str, guest: Guest, tmp_path: Path, absent: Absent
) -> None:
    if shutil.which(shell) is None:
        absent(shell, "install it")
    assert guest(envfile.encode(VALUES.items()), tmp_path) == VALUES


@pytest.mark.parametrize("guest", [guest for _, guest in OURS.values()], ids=list(OURS))
def test_our_guest_reads_tart_kubelets_file_as_its_own_guest_does(
    guest: Guest, tmp_path: Path
) -> None:
    staged = of_kubelet(VALUES)
    found = guest(staged, tmp_path)
    assert found == THEIRS["runner image in bash"][1](staged, tmp_path) == envfile.decode(staged)
    assert {key for key in VALUES if found[key] != VALUES[key]} == AMBIGUOUS


def test_a_value_that_tart_kubelet_can_hold_is_written_as_it_writes_it() -> None:
    simple = {key: value for key, value in VALUES.items() if key not in {*AMBIGUOUS, "SEPARATORS"}}
    assert envfile.encode(simple.items()) == of_kubelet(simple)


@pytest.mark.parametrize(
    "line",
    [
        b"A;eval export B=$'x'",
        b"A;eval export A=x",
        b"A;eval export A=$'x'y",
        b"A;eval export A=$'x' B='y'",
        b"1;eval export 1=$'x'",
        b";eval export =$'x'",
        b"RUNYARD_VM;eval export RUNYARD_VM=$'x'",
        b"A;touch x;eval export A;touch x=$'x'",
    ],
)
def test_what_only_looks_like_an_exact_value_is_skipped(line: bytes, tmp_path: Path) -> None:
    our_guest("sh")(line, tmp_path)
    assert (tmp_path / "env.sh").read_text() == ""
    assert envfile.decode(line) in ({}, {"RUNYARD_VM": "x"})
