"""Asks a guest of the process driver for a command or a connection: `session STATE ANSWERS REQUEST`.

It is a program of its own, because the socket of a guest is reached by a short path in its directory alone, and
because the host's poller starts commands like any other. It connects to `guest_init.py`, passes its own input and
outputs on, and stays until the command has ended: its exit code is the command's, and its end ends the command.

`session STATE -- WORD...` is the short form of a command without a terminal, whose answers nothing else reads.

ANSWERS is the number of an open socket on which the guest's answers are passed on and whose end ends the
program. REQUEST is described in `guest_init.py`. It imports nothing but the standard library.
"""

import fcntl
import json
import os
import select
import signal
import socket
import sys
import termios

SOCKET = "exec"  # in the VM's state directory
UNREACHABLE = 255  # the exit code if the guest does not answer


def main(argv: list[str]) -> int:
    """Sends the request and waits for the end."""
    state, answers, *words = argv
    request = json.dumps({"argv": words}) if answers == "--" else words[0]
    asker = None if answers == "--" else socket.socket(fileno=int(answers))
    link = socket.socket(socket.AF_UNIX)
    try:
        os.chdir(state)
        link.connect(SOCKET)
        _leave_terminal()
        socket.send_fds(link, [request.encode() + b"\n"], [0, 1, 2])
    except OSError as error:
        return _failed(asker, f"the guest does not answer: {error}")
    _let_go()
    return _serve(link, asker)


def _serve(link: socket.socket, asker: socket.socket | None) -> int:
    code = UNREACHABLE
    inputs = [link] if asker is None else [link, asker]
    while True:
        ready = select.select(inputs, [], [])[0]
        if asker is not None and asker in ready:  # the asker has nothing to say: this is its end
            return code
        data, handles, _, _ = socket.recv_fds(link, 65536, 1)
        if not data:
            return code
        for line in data.splitlines():
            answer = json.loads(line)
            code = int(answer.get("code", code))
            if asker is None and "error" in answer:
                return _failed(None, answer["error"])
        if asker is not None:
            socket.send_fds(asker, [data], handles)
        for handle in handles:
            os.close(handle)


def _failed(asker: socket.socket | None, why: str) -> int:
    if asker is None:
        sys.stderr.write(f"runyard: {why}\n")
    else:
        asker.sendall(json.dumps({"error": why}).encode() + b"\n")
    return UNREACHABLE


def _leave_terminal() -> None:
    """Gives up our terminal, so that it can become the command's."""
    if os.isatty(0):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # leaving it hangs up
        fcntl.ioctl(0, termios.TIOCNOTTY)


def _let_go() -> None:
    """Closes our input and outputs: only the command has them now, and their ends are its own."""
    empty = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(empty, number)
