"""Describes how far process VMs are isolated from each other and from the host on this machine.

It is not a security boundary. It keeps an ordinary job from reading another VM's files and token, from outliving its
VM and from filling the machine; hostile code needs a real VM. `probe.py` finds out what works here, `limits.py`
decides which limits are enforced.
"""

import os
import platform
from typing import Literal

import msgspec

from runyard.vm.process.limits import Mechanisms, process_limit_by

UID_BASE = 200_000
LOWEST_UID = 70_000
REGISTRY = "/var/lib/runyard/users"


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """How VMs are isolated on this host."""

    kind: Literal["bwrap", "none"] = "none"
    detail: str = "not probed"
    limits: str = ""  # which limits are enforced and which are not, as text
    # pair: poller and job have a user each; one: one user for both; empty: all run as the agent's user
    users: Literal["pair", "one", ""] = ""
    uid_base: int = UID_BASE
    registry: str = REGISTRY  # records which users are taken, for all agents of this machine
    bwrap: str = ""
    network: Literal["own", "host"] = (
        "host"  # own: a way out, and no way to this machine or to another VM
    )
    slirp: str = ""  # the program that connects networks of their own
    user_namespace: bool = False  # bwrap makes one, because we are not root
    closed: bool = False  # a guest cannot create user namespaces, in which it would be root
    cgroup: str = ""  # the control group in which VMs get theirs
    controllers: tuple[str, ...] = ()  # those whose limits are enforced there
    guest_python: str = ""
    guest_prefix: str = ""  # where that Python is installed, to be mounted for a sandboxed guest

    def __post_init__(self) -> None:
        """Refuses low uids: a VM's end kills everything of its users, so they must not be real users."""
        if self.uid_base < LOWEST_UID:
            raise ValueError(
                f"the first uid of VMs is {self.uid_base}; it must be at least {LOWEST_UID}"
            )

    @property
    def line(self) -> str:
        """The kind and its description, as printed."""
        return f"{self.kind} ({self.detail.removeprefix(f'{self.kind}, ')})"

    @property
    def mechanisms(self) -> Mechanisms:
        """What limits can be enforced with."""
        return Mechanisms(
            controllers=self.controllers,
            own_users=bool(self.users),
            user_namespace=self.user_namespace,
            root=os.geteuid() == 0,
            kernel=kernel(),
        )

    @property
    def counts_processes(self) -> bool:
        """Whether a limit on processes counts only this VM's."""
        return bool(process_limit_by(self.mechanisms))


def kernel() -> tuple[int, ...]:
    """The version of the Linux kernel."""
    if platform.system() != "Linux":
        return ()
    numbers = platform.release().split("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())
