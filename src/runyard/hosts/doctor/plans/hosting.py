"""What is known of the agent on this machine: whether it runs, as which service, and what the main machine says.

An agent belongs to a host that joined another machine (`runyard agent --joined`), or has a kubeconfig of its own
(`runyard agent`, `tart-kubelet`). Nothing here holds a credential.
"""

from enum import StrEnum

import msgspec


class Reach(StrEnum):
    """What came of a request to the main machine."""

    REACHED = "reached"
    AWAY = "away"  # nothing answers there
    UNDATED = "undated"  # its certificate is not valid by the clock of this machine
    OTHER = "other"  # what answers has no certificate of the authority that was joined


class Login(StrEnum):
    """What the main machine says of the credential."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNASKED = "unasked"  # it was not reached, or there is no credential


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's service, as launchd or systemd sees it."""

    name: str  # the manager's own
    installed: bool = False
    pid: int = 0
    last_exit: str = ""
    log: str = ""
    start: str = ""  # the command that starts it again
    boot: str = ""  # the command without which it does not start at boot


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """The membership of a host that joined, and what the main machine says now."""

    url: str
    name: str
    start: str = ""  # the command that runs the agent without a service
    reach: Reach = Reach.AWAY
    login: Login = Login.UNASKED
    skew: float | None = (
        None  # seconds that this machine's clock is ahead of it; None: it does not say
    )
    drained: bool = False  # the main machine gives it no jobs
    stored: bool = True  # the credential is there and readable
    age: float = 0.0  # seconds since the credential was written
    expires: float | None = None  # seconds since the epoch; None: it does not say


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """The agent whose data directory this is."""

    data: str
    running: bool = False
    damaged: str = ""  # why its directory cannot be read
    left: bool = False  # it has records of Pods
    joined: Joined | None = None
    service: Service | None = None  # None: not asked
    unmanaged: str = ""  # why the service manager cannot be asked

    @property
    def used(self) -> bool:
        """Whether this machine is a host: it joined, or an agent runs, or has Pods to take over."""
        return self.joined is not None or self.running or self.left
