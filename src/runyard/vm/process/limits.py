"""Which limits of a VM hold on this machine, and by what: decided from what the probe found, told in words.

Nothing here touches the machine: `groups.py` looks and acts, this says what follows.

    limit        control group        else
    cpu          cpu.max              not held
    memory       memory.max           not held: a limit on address space breaks honest programs
    processes    pids.max             counted by user, where the user is this VM's own
    disk         –                    watched: measured, and ended when it is a quarter over
    one file, open files, core dumps  by each process

The kernel's rule about control groups (version 2): a group that hands out memory to groups below it may hold no
processes itself, unless it is the hierarchy's true root. Whoever lives in ours has to step aside into a group below
it first, and may be asked to only if the group is ours to divide.
"""

import msgspec

CONTROLLERS = ("cpu", "memory", "pids")
_PERIOD = 100_000  # microseconds over which a VM's share of a processor is counted
_LEAST = 1_000  # the kernel's least share of it
BY_GROUP, BY_USER, BY_PROCESS, WATCHED = "by control group", "by user", "by process", "watched"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one VM may use; 0 means: as much as there is. Which of them hold, `Isolation.limits` tells."""

    cpu_milli: int = 0  # 0: what the VM asked for, where it can be held
    memory_mb: int = 0  # the same
    pids: int = 2048
    disk_mb: int = 20_480
    open_files: int = 65_536
    disk_watch_seconds: float = 5.0


# ── dividing a control group ────────────────────────────────────────────────────────────────────


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of the control group in which VMs are to get theirs."""

    true_root: bool = (
        False  # of the whole hierarchy: the one group to which the rule does not apply
    )
    top: bool = False  # the highest that we can see: a container's own
    owned: bool = False  # by the user that we are, who is not root: somebody gave it to us
    delegated: bool = False  # marked so by the service manager
    inhabitants: int = 0
    hidden: bool = False  # some of them cannot be seen from here
    offered: tuple[str, ...] = ()  # controllers
    enabled: tuple[str, ...] = ()  # those that groups below it already have


class Division(msgspec.Struct, frozen=True, kw_only=True):
    """How to divide it."""

    enable: tuple[str, ...] = ()
    step_aside: bool = False  # everybody in it, into a group below
    why: str = ""  # there is not more


def division(ground: Ground, wanted: tuple[str, ...] = CONTROLLERS) -> Division:
    """What to do so that groups below this one have as many of the wanted controllers as can be."""
    lacking = [name for name in wanted if name not in ground.offered]
    missing = tuple(
        name for name in wanted if name in ground.offered and name not in ground.enabled
    )
    why = f"this control group offers no {' nor '.join(lacking)} controller" if lacking else ""
    if not missing or ground.true_root or not ground.inhabitants:
        return Division(enable=missing, why=why)
    if ground.hidden:
        return Division(why="processes that cannot be seen from here live in this control group")
    if not (ground.top or ground.owned or ground.delegated):
        return Division(why="this control group was not delegated to us")
    return Division(enable=missing, step_aside=True, why=why)


def leaf_limits(
    controllers: tuple[str, ...], *, cpu_milli: int, memory_mb: int, pids: int
) -> tuple[tuple[str, str], ...]:
    """The files of a VM's own group, and what to write into them; 0 is no limit."""
    found: list[tuple[str, str]] = []
    if "cpu" in controllers and cpu_milli:
        quota = max(_LEAST, cpu_milli * _PERIOD // 1000)
        found.append(("cpu.max", f"{quota} {_PERIOD}"))
    if "memory" in controllers and memory_mb:
        found.append(("memory.max", str(memory_mb << 20)))
        found.append(("memory.swap.max", "0"))  # or the limit would be one on speed
    if "pids" in controllers and pids:
        found.append(("pids.max", str(pids)))
    return tuple(found)


# ── which limits hold ───────────────────────────────────────────────────────────────────────────


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to hold limits with."""

    controllers: tuple[str, ...] = ()
    own_users: bool = False  # each VM has users that nobody else has
    user_namespace: bool = False  # each VM is in one
    root: bool = False
    kernel: tuple[int, ...] = ()  # of Linux


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """One limit, and by what it is held; empty: not held."""

    limit: str
    by: str = ""


def processes_by(means: Means) -> str:
    """By what the number of a VM's processes is limited, so that it means this VM's own and not all of somebody's."""
    if "pids" in means.controllers:
        return BY_GROUP
    # In a user namespace they are counted by namespace, but for root they do not count at all.
    counted = means.user_namespace and not means.root and means.kernel >= (5, 14)
    return BY_USER if means.own_users or counted else ""


def holds(means: Means) -> tuple[Hold, ...]:
    """Every limit that there is, and by what it is held."""
    return (
        Hold(limit="cpu", by=BY_GROUP if "cpu" in means.controllers else ""),
        Hold(limit="memory", by=BY_GROUP if "memory" in means.controllers else ""),
        Hold(limit="processes", by=processes_by(means)),
        Hold(limit="disk", by=WATCHED),
        Hold(limit="one file", by=BY_PROCESS),
        Hold(limit="open files", by=BY_PROCESS),
    )


def in_words(held: tuple[Hold, ...], why: str = "") -> str:
    """For people: what is not held is said as plainly as what is, and why."""
    words = ", ".join(f"{each.limit}: {_held(each.by)}" for each in held)
    return f"{words} ({why})" if why and missing(held) else words


def missing(held: tuple[Hold, ...]) -> tuple[Hold, ...]:
    """Those that are not held."""
    return tuple(each for each in held if not each.by)


def _held(by: str) -> str:
    if not by:
        return "not held"
    return by if by == WATCHED else f"held {by}"
