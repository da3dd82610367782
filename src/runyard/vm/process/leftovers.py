"""What VMs have left outside their own directories: for whoever counts leaks.

A VM that is processes touches three places beyond its directory: the register of this machine's users, the control
groups, and the home's hidden directories in which VMs, images and trials are made and removed. All of them are cleared
by the VM's end or by the next driver's start; what is named here belongs to nobody and is only waiting for that.
"""

from collections.abc import Iterable
from pathlib import Path

from runyard.vm.process import groups, users
from runyard.vm.process.folders import holding
from runyard.vm.process.isolation import REGISTRY


def leftovers(
    homes: Iterable[Path] = (), *, registry: str = REGISTRY, group: Path | None = None
) -> tuple[str, ...]:
    """What no VM owns any more, each as a path: empty on a machine at rest.

    - users that are noted as taken in `registry`, by VMs that have ended or whose directories are gone;
    - control groups in `group` (ours, if left out) of VMs whose directories are gone;
    - half-made and half-removed directories in the `homes` of drivers, which nobody is working on.

    It only looks. With `homes`, users and groups of VMs that lived elsewhere are not named: another machine on this
    computer, which may have ended a moment ago, leaves them to its own next start.
    """
    homes = tuple(homes)
    found = [*users.abandoned(registry, homes)]
    ours = group or groups.own()
    if ours is not None:
        found += groups.abandoned(ours, homes)
    for home in homes:
        found += _unheld(home)
    return tuple(str(path) for path in found)


def _unheld(home: Path) -> list[Path]:
    found = [path for folder in ("vms", "images") for path in _hidden(home / folder) if _free(path)]
    return found + (_hidden(home) if _free(home) else [])


def _hidden(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*"))


def _free(path: Path) -> bool:
    try:
        with holding(path) as held:
            return held
    except OSError:  # gone meanwhile, or not ours
        return False
