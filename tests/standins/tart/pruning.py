"""`tart prune`, the pruning that happens by itself, and `fqn`."""

import os

from tests.standins.tart import errors, formatting, storage
from tests.standins.tart.arguments import Command, Given
from tests.standins.tart.context import Context
from tests.standins.tart.errors import say
from tests.standins.tart.storage import Vm

COMMAND = Command("prune", "", {"entries": "str", "older-than": "int", "space-budget": "int"})
FQN = Command("fqn", "name")


def _prunable(context: Context) -> list[Vm]:
    """Every image once, the one used longest ago first."""
    found = [vm for vm in context.home.images() if not os.path.islink(vm.path)]
    return sorted(found, key=lambda vm: vm.accessed())


def make_space(context: Context, needed: int, *, keep: str) -> None:
    """Delete images used longest ago, if that makes enough space; never the one that asks."""
    if "TART_NO_AUTO_PRUNE" in os.environ or needed <= 0:
        return
    stat = os.statvfs(context.home.root)
    free = int(context.knobs.number("free-bytes", stat.f_bavail * stat.f_frsize))
    missing = needed - free
    images = [
        vm for vm in _prunable(context) if os.path.realpath(vm.path) != os.path.realpath(keep)
    ]
    if missing <= 0 or sum(vm.allocated() for vm in images) < missing:
        return
    for vm in images:
        if missing <= 0:
            break
        missing -= vm.allocated()
        storage.remove(vm.path)
    context.home.collect()


def prune_command(context: Context, given: Given) -> int:
    """`tart prune`: by age, by a budget of space, or both."""
    entries = given.text("entries", "caches")
    if entries not in {"caches", "vms"}:
        raise errors.Usage(f"The value '{entries}' is invalid for '--entries <entries>'")
    if not given.flag("older-than") and not given.flag("space-budget"):
        raise errors.Usage("at least one pruning criteria must be specified")
    context.knobs.before("prune")
    if entries == "caches":
        found = _prunable(context)
    else:
        stopped = [vm for vm in context.home.locals() if not vm.pid]
        found = sorted(stopped, key=lambda vm: vm.accessed())
    if given.flag("older-than"):
        limit = context.now() - given.number("older-than", 0) * 86400
        for vm in found:
            if vm.accessed() <= limit:
                storage.remove(vm.path)
        found = [vm for vm in found if vm.initialized]
    if given.flag("space-budget"):
        budget = given.number("space-budget", 0) * formatting.GB
        for vm in reversed(found):  # what was used last may stay
            budget -= vm.allocated()
            if budget < 0:
                storage.remove(vm.path)
    context.home.collect()
    return 0


def show_fqn(context: Context, given: Given) -> int:
    """`tart fqn`: the name of an image by its digest."""
    name = given.name("name")
    remote = storage.remote(name)
    if remote is None:
        say(name)
        return 0
    image = context.home.open_image(remote, context.now())
    say(str(remote.at(os.path.basename(os.path.realpath(image.path)))))
    return 0
