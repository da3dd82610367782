"""Servers of this machine that guests with a network of their own may use."""

import msgspec


class Relay(msgspec.Struct, frozen=True, kw_only=True):
    """What guests may request from one server on this machine, and the socket by which they do."""

    name: str  # of the socket in the VM's folder `net`
    variable: str  # of the environment, by which the guest finds the socket
    url: str  # of the server
    allow: tuple[tuple[str, str], ...]  # method and path
    for_job: bool  # whether the job may use it; else only the poller
