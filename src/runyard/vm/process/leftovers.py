"""Lists what VMs have left outside their directories, for leak checks.

A process VM uses three places beyond its directory: the registry of VM users, the control groups, and the home's
hidden directories in which VMs, images and trials are created and removed. All of them are cleared when the VM ends
or when the next driver starts; what is listed here has no owner and waits for that.
"""

from collections.abc import Iterable
from pathlib import Path

from runyard.vm.process import cgroups, users
from runyard.vm.process.folders import holding
from runyard.vm.process.isolation import REGISTRY


def leftovers(
    homes: Iterable[Path] = (), *, registry: str = REGISTRY, group: Path | None = None
) -> tuple[str, ...]:
    """What no VM owns any more, each as a path: empty on an idle machine.

    - users that `registry` records as taken, by VMs that have ended or whose directories are gone;
    - control groups in `group` (ours, if left out) of VMs whose directories are gone;
    - incomplete directories in the `homes` of drivers that no process is working on.

    It only reads. With `homes`, users and groups of VMs elsewhere are not listed: another fleet on this machine, which
    may have ended a moment ago, clears them at its own next start.
    """
    homes = tuple(homes)
    found = [*users.abandoned(registry, homes)]
    ours = group or cgroups.own()
    if ours is not None:
        found += cgroups.abandoned(ours, homes)
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
    except OSError:  # removed meanwhile, or not ours
        return False
