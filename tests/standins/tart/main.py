"""A stand-in for tart 2.32.1: a test tool, with tart's command line, files, locks, messages and exit codes.

It lets everything that drives tart be tested on a machine without a Mac. VMs are processes, their disks directories,
images come from a real OCI registry or from a directory. It is no virtualization and isolates nothing: a guest's
programs run on this machine as this user. docs/testing.md has its knobs; `helper.StandIn` installs it for tests.

It uses the standard library only and imports what a command needs, because programs call tart often: started with
`-I -S`, `tart list` takes about twice as long as the interpreter itself. So it uses `os.path`, not `pathlib`.

    main       command line, errors, journal         run, machine, agent    the foreground process and its guest
    local      list get clone set stop delete ip     execute, frames        exec
    pulling, pushing, pruning, registry, lz4         storage, locks         files and their locks

It follows the facts written down about tart 2.32.1, including what hurts: a clone replaces an existing VM, `push` loses
its lock, killed pulls are wiped, a closed stdout ends `run` by SIGPIPE.
"""

import os
import signal
import sys

if __name__ == "__main__":  # run by its path: find the other modules
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from tests.standins.tart import errors
from tests.standins.tart.arguments import Command, parse
from tests.standins.tart.context import Context
from tests.standins.tart.knobs import Knobs
from tests.standins.tart.storage import Home

VERSION = "2.32.1"
# Where each command is: module, its Command, its function.
COMMANDS = {
    "list": ("local", "LIST", "show_list"),
    "get": ("local", "GET", "show_one"),
    "clone": ("local", "CLONE", "clone"),
    "set": ("local", "SET", "change"),
    "stop": ("local", "STOP", "stop"),
    "suspend": ("local", "SUSPEND", "suspend"),
    "delete": ("local", "DELETE", "delete"),
    "rename": ("local", "RENAME", "rename"),
    "ip": ("local", "IP", "show_ip"),
    "run": ("run", "COMMAND", "run"),
    "exec": ("execute", "COMMAND", "execute"),
    "pull": ("pulling", "COMMAND", "pull_command"),
    "push": ("pushing", "COMMAND", "push_command"),
    "prune": ("pruning", "COMMAND", "prune_command"),
    "login": ("credentials", "LOGIN", "login"),
    "logout": ("credentials", "LOGOUT", "logout"),
    "import": ("archives", "IMPORT", "import_vm"),
    "export": ("archives", "EXPORT", "export_vm"),
    "create": ("archives", "CREATE", "create"),
    "fqn": ("pruning", "FQN", "show_fqn"),
}
KEEPS_TMP = frozenset({"pull", "clone"})
USAGE = 64


def main(argv: list[str]) -> int:
    """Run one command; returns the exit code."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if argv == ["--version"]:
        errors.say(VERSION)
        return 0
    if not argv or argv[0] in {"--help", "-h", "help"}:
        errors.say(_overview())
        return 0
    if argv[0] not in COMMANDS:
        kind = "Unknown option" if argv[0].startswith("-") else "Unexpected argument"
        errors.complain(f"Error: {kind} '{argv[0]}'\n{_overview()}")
        return USAGE
    return _command(argv)


def _overview() -> str:
    return "USAGE: tart <subcommand>\n\nSUBCOMMANDS:\n" + "\n".join(
        f"  {name}" for name in sorted(COMMANDS)
    )


def _command(argv: list[str]) -> int:
    module, declared, function = COMMANDS[argv[0]]
    package = __import__(f"tests.standins.tart.{module}", fromlist=[module])
    command: Command = getattr(package, declared)
    root = os.environ.get("TART_HOME") or os.path.join(os.path.expanduser("~"), ".tart")
    home = Home(root)
    knobs = Knobs(home.root)
    knobs.record(argv)
    context = Context(home, knobs)
    if argv[0] not in KEEPS_TMP:
        home.wipe()
    # A quick command of tart ends when it is done, whatever SIGINT asks for.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        if "--help" in argv[1:2]:
            errors.say(command.usage())
            return 0
        return int(getattr(package, function)(context, parse(command, argv[1:])))
    except errors.Usage as error:
        errors.complain(f"Error: {error}\n{command.usage()}")
        return USAGE
    except errors.Failure as failure:
        errors.complain(failure.text)
        return failure.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
