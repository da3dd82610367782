"""Decides which limits of a VM are enforced on this machine, and by what, from what the probe found.

Nothing here touches the machine: `cgroups.py` reads and writes it, this module decides.

    limit        control group        else
    cpu          cpu.max              not enforced
    memory       memory.max           not enforced: a limit on address space breaks ordinary programs
    processes    pids.max             counted per user, where the user belongs to this VM alone
    disk         –                    watched: measured, and the VM is ended when it is a quarter over
    one file, open files, core dumps  per process

The kernel's rule about control groups (version 2): a group that gives memory limits to groups below it may hold no
processes itself, unless it is the hierarchy's true root. Its processes must first be moved into a group below it,
which is allowed only if the group was delegated to us.
"""

import msgspec

CONTROLLERS = ("cpu", "memory", "pids")
_PERIOD = 100_000  # microseconds over which a VM's share of a processor is counted
_LEAST = 1_000  # the kernel's least share of it
BY_GROUP, BY_USER, BY_PROCESS, WATCHED = "by control group", "by user", "by process", "watched"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one VM may use; 0 means no limit. `Isolation.limits` says which of them are enforced."""

    cpu_milli: int = 0  # 0: what the VM's spec requests, where it can be enforced
    memory_mb: int = 0  # likewise
    pids: int = 2048
    disk_mb: int = 20_480
    open_files: int = 65_536
    disk_watch_seconds: float = 5.0


# ── splitting a control group ────────────────────────────────────────────────────────────────────


class CgroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was read about the control group in which VMs are to get theirs."""

    true_root: bool = (
        False  # of the whole hierarchy: the one group to which the rule does not apply
    )
    top: bool = False  # the highest one that is visible: a container's
    owned: bool = False  # by our user, which is not root: it was delegated to us
    delegated: bool = False  # marked so by the service manager
    processes: int = 0
    hidden: bool = False  # some of its processes are not visible to us
    offered: tuple[str, ...] = ()  # controllers
    enabled: tuple[str, ...] = ()  # those that groups below it already have


class SplitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to enable controllers for the groups below a control group."""

    enable: tuple[str, ...] = ()
    move_processes: bool = False  # all processes in it, into a group below
    why: str = ""  # why not more controllers


def split_plan(facts: CgroupFacts, wanted: tuple[str, ...] = CONTROLLERS) -> SplitPlan:
    """Plans how the groups below get as many of the wanted controllers as possible."""
    lacking = [name for name in wanted if name not in facts.offered]
    missing = tuple(name for name in wanted if name in facts.offered and name not in facts.enabled)
    why = f"this control group offers no {' nor '.join(lacking)} controller" if lacking else ""
    if not missing or facts.true_root or not facts.processes:
        return SplitPlan(enable=missing, why=why)
    if facts.hidden:
        return SplitPlan(why="this control group holds processes that are not visible to us")
    if not (facts.top or facts.owned or facts.delegated):
        return SplitPlan(why="this control group was not delegated to us")
    return SplitPlan(enable=missing, move_processes=True, why=why)


def leaf_limits(
    controllers: tuple[str, ...], *, cpu_milli: int, memory_mb: int, pids: int
) -> tuple[tuple[str, str], ...]:
    """The files of a VM's leaf and their values; 0 is no limit."""
    found: list[tuple[str, str]] = []
    if "cpu" in controllers and cpu_milli:
        quota = max(_LEAST, cpu_milli * _PERIOD // 1000)
        found.append(("cpu.max", f"{quota} {_PERIOD}"))
    if "memory" in controllers and memory_mb:
        found.append(("memory.max", str(memory_mb << 20)))
        found.append(("memory.swap.max", "0"))  # or the VM would swap instead of reaching its limit
    if "pids" in controllers and pids:
        found.append(("pids.max", str(pids)))
    return tuple(found)


# ── which limits are enforced ───────────────────────────────────────────────────────────────────────────


class Mechanisms(msgspec.Struct, frozen=True, kw_only=True):
    """What limits can be enforced with."""

    controllers: tuple[str, ...] = ()
    own_users: bool = False  # each VM has users of its own
    user_namespace: bool = False  # each VM is in one
    root: bool = False
    kernel: tuple[int, ...] = ()  # of Linux


class LimitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One limit and its mechanism; empty: not enforced."""

    limit: str
    by: str = ""


def process_limit_by(mechanisms: Mechanisms) -> str:
    """The mechanism that limits the number of this VM's processes alone; empty: there is none."""
    if "pids" in mechanisms.controllers:
        return BY_GROUP
    # In a user namespace they are counted per namespace, but those of root are not counted.
    counted = mechanisms.user_namespace and not mechanisms.root and mechanisms.kernel >= (5, 14)
    return BY_USER if mechanisms.own_users or counted else ""


def limit_statuses(mechanisms: Mechanisms) -> tuple[LimitStatus, ...]:
    """Every limit, with the mechanism that enforces it."""
    return (
        LimitStatus(limit="cpu", by=BY_GROUP if "cpu" in mechanisms.controllers else ""),
        LimitStatus(limit="memory", by=BY_GROUP if "memory" in mechanisms.controllers else ""),
        LimitStatus(limit="processes", by=process_limit_by(mechanisms)),
        LimitStatus(limit="disk", by=WATCHED),
        LimitStatus(limit="one file", by=BY_PROCESS),
        LimitStatus(limit="open files", by=BY_PROCESS),
    )


def describe(statuses: tuple[LimitStatus, ...], why: str = "") -> str:
    """Text for users: every limit, whether it is enforced, and why not."""
    words = ", ".join(f"{each.limit}: {_status(each.by)}" for each in statuses)
    return f"{words} ({why})" if why and unenforced(statuses) else words


def unenforced(statuses: tuple[LimitStatus, ...]) -> tuple[LimitStatus, ...]:
    """The limits that are not enforced."""
    return tuple(each for each in statuses if not each.by)


def _status(by: str) -> str:
    if not by:
        return "not enforced"
    return by if by == WATCHED else f"enforced {by}"
