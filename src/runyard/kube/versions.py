"""Compares resourceVersions.

Officially a resourceVersion is opaque: two are equal or they are not. In every server that exists it
is a growing number, and with that an event that arrives twice, or late, can be distinguished from a new
one. So numbers are compared as numbers, anything else only for equality, and "unknown" counts as new.
"""


def is_stale(candidate: str, known: str) -> bool:
    """Whether `candidate` brings nothing over `known`: it is the same version or a provably older one."""
    if not candidate or not known:
        return False
    if candidate == known:
        return True
    return candidate.isdecimal() and known.isdecimal() and int(candidate) < int(known)


def latest(one: str, other: str) -> str:
    """The later of two versions; if they cannot be compared, the second one unless it is empty."""
    return one if not other or is_stale(other, one) else other
