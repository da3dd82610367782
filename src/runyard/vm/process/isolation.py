"""How far VMs that are processes are kept apart from each other and from the host: as far as this machine allows.

It is not a security boundary. It keeps an ordinary job from seeing its neighbour's files and token, from
outliving its VM and from filling the machine; code that is out to break free needs a real VM around it.
What works here, `probe.py` finds out.
"""

import os
import platform
from typing import Literal

import msgspec

UID_BASE = 200_000
LOWEST_UID = 70_000
REGISTRY = "/var/lib/runyard/users"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one VM may use; 0 means: as much as there is. Which of them hold, `Isolation.limits` tells."""

    memory_mb: int = 0  # 0: what the VM asked for, where it can be held
    pids: int = 2048
    disk_mb: int = 20_480
    open_files: int = 65_536
    disk_watch_seconds: float = 5.0


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """How VMs are run on this host."""

    kind: Literal["bwrap", "none"] = "none"
    detail: str = "not probed"
    limits: str = ""  # which limits hold, in words
    # pair: poller and job are users of their own; one: one user for both; empty: everything runs as we do
    users: Literal["pair", "one", ""] = ""
    uid_base: int = UID_BASE
    registry: str = REGISTRY  # which users are taken, for all agents of this machine
    bwrap: str = ""
    user_namespace: bool = False  # bwrap makes one, because we are not root
    cgroup: str = ""  # the control group in which VMs get theirs
    controllers: tuple[str, ...] = ()
    guest_python: str = ""
    guest_prefix: str = ""  # where that Python lies, to be shown to a sandboxed guest

    def __post_init__(self) -> None:
        """Everything that runs as a VM's user is ended with the VM: that must not be a person, nor a service."""
        if self.uid_base < LOWEST_UID:
            raise ValueError(f"users of VMs begin at {LOWEST_UID} or above, not at {self.uid_base}")

    @property
    def counts_processes(self) -> bool:
        """Whether a limit on processes means this VM's own, and not all of somebody's."""
        if self.users or "pids" in self.controllers:
            return True
        # In a user namespace they are counted by namespace, but for root they do not count at all.
        return self.user_namespace and os.geteuid() != 0 and kernel() >= (5, 14)


def kernel() -> tuple[int, ...]:
    """The version of Linux."""
    if platform.system() != "Linux":
        return ()
    numbers = platform.release().split("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())
