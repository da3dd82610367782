"""How far VMs that are processes are kept apart from each other and from the host: as far as this machine allows.

It is not a security boundary. It keeps an ordinary job from seeing its neighbour's files and token, from
outliving its VM and from filling the machine; code that is out to break free needs a real VM around it.
What works here, `probe.py` finds out; which limits hold, `limits.py` decides.
"""

import os
import platform
from typing import Literal

import msgspec

from runyard.vm.process.limits import Means, processes_by

UID_BASE = 200_000
LOWEST_UID = 70_000
REGISTRY = "/var/lib/runyard/users"


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """How VMs are run on this host."""

    kind: Literal["bwrap", "none"] = "none"
    detail: str = "not probed"
    limits: str = ""  # which limits hold and which do not, in words
    # pair: poller and job are users of their own; one: one user for both; empty: everything runs as we do
    users: Literal["pair", "one", ""] = ""
    uid_base: int = UID_BASE
    registry: str = REGISTRY  # which users are taken, for all agents of this machine
    bwrap: str = ""
    user_namespace: bool = False  # bwrap makes one, because we are not root
    closed: bool = (
        False  # a guest cannot make user namespaces, and with them play root before the kernel
    )
    cgroup: str = ""  # the control group in which VMs get theirs
    controllers: tuple[str, ...] = ()  # whose limits hold there
    guest_python: str = ""
    guest_prefix: str = ""  # where that Python lies, to be shown to a sandboxed guest

    def __post_init__(self) -> None:
        """Everything that runs as a VM's user is ended with the VM: that must not be a person, nor a service."""
        if self.uid_base < LOWEST_UID:
            raise ValueError(f"users of VMs begin at {LOWEST_UID} or above, not at {self.uid_base}")

    @property
    def means(self) -> Means:
        """What there is to hold limits with."""
        return Means(
            controllers=self.controllers,
            own_users=bool(self.users),
            user_namespace=self.user_namespace,
            root=os.geteuid() == 0,
            kernel=kernel(),
        )

    @property
    def counts_processes(self) -> bool:
        """Whether a limit on processes means this VM's own, and not all of somebody's."""
        return bool(processes_by(self.means))


def kernel() -> tuple[int, ...]:
    """The version of Linux."""
    if platform.system() != "Linux":
        return ()
    numbers = platform.release().split("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())
