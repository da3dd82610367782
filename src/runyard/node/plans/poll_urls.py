"""Chooses the URL at which a runner of this host is asked for a job: by the host itself, or by the guest.

The Pod's environment has the URL that the operator gives to all. A host may reach the server elsewhere: one that joined
another machine does so through a port of its own on loopback. A pool may say where its guests reach the server.

    host polls     the host's own URL, else the Pod's
    guest polls    the pool's URL, else the first that the guest can reach of the host's own and the Pod's

Loopback in a VM is the VM itself, so no guest in a VM gets it; a process reaches the host's loopback.
"""

from collections.abc import Callable

import msgspec


class PollUrls(msgspec.Struct, frozen=True, kw_only=True):
    """The URLs by their origin; empty: not given."""

    pod: str
    pool: str = ""
    host: str = ""


def url_for_host(urls: PollUrls) -> str:
    """Return the URL that the host polls."""
    return urls.host or urls.pod


def url_for_guest(urls: PollUrls, *, reaches: Callable[[str], bool]) -> str | None:
    """Return the URL that the guest polls; None if it reaches none. Another than the pool's never replaces it."""
    given = (urls.pool,) if urls.pool else (urls.host, urls.pod)
    return next((url for url in given if url and reaches(url)), None)
