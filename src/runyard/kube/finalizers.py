"""Adding and removing one finalizer without touching those of others.

The list of finalizers belongs to many. A merge patch replaces a list as a whole, so each write carries
the resourceVersion that it was computed from, and a conflict is answered by reading again.
"""

from runyard.kube.client import Kube
from runyard.kube.errors import Conflict, NotFound
from runyard.kube.kinds import Kind
from runyard.kube.objects import Bare, Meta

ATTEMPTS = 8


async def add_finalizer(
    kube: Kube, kind: Kind, name: str, finalizer: str, *, namespace: str = "", uid: str = ""
) -> bool:
    """Make sure that the object has the finalizer; False if it is too late for that.

    Too late: the object is gone, is another one than `uid`, or is being deleted (the API takes no new
    finalizers then). Raises `Conflict` if the object changes faster than it can be patched.
    """
    for _ in range(ATTEMPTS):
        meta = await _read(kube, kind, name, namespace=namespace, uid=uid)
        if meta is None:
            return False
        if finalizer in meta.finalizers:
            return True
        if meta.deletion_timestamp:
            return False
        wanted = (*meta.finalizers, finalizer)
        if await _write(kube, kind, meta, wanted, namespace=namespace):
            return True
    raise _busy(kind, name)


async def remove_finalizer(
    kube: Kube, kind: Kind, name: str, finalizer: str, *, namespace: str = "", uid: str = ""
) -> bool:
    """Make sure that the object does not have the finalizer; True if this call removed it.

    An object that is gone, or is another one than `uid`, has nothing to remove. Raises `Conflict` if the
    object changes faster than it can be patched.
    """
    for _ in range(ATTEMPTS):
        meta = await _read(kube, kind, name, namespace=namespace, uid=uid)
        if meta is None or finalizer not in meta.finalizers:
            return False
        wanted = tuple(other for other in meta.finalizers if other != finalizer)
        if await _write(kube, kind, meta, wanted, namespace=namespace):
            return True
    raise _busy(kind, name)


async def _read(kube: Kube, kind: Kind, name: str, *, namespace: str, uid: str) -> Meta | None:
    try:
        meta = (await kube.get_as(kind, name, Bare, namespace=namespace)).metadata
    except NotFound:
        return None
    return None if uid and meta.uid != uid else meta


async def _write(
    kube: Kube, kind: Kind, meta: Meta, wanted: tuple[str, ...], *, namespace: str
) -> bool:
    try:
        await kube.patch(
            kind,
            meta.name,
            {"metadata": {"finalizers": list(wanted)}},
            namespace=namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )
    except (Conflict, NotFound):
        return False  # the next read tells which of the two it was, and what to do about it
    return True


def _busy(kind: Kind, name: str) -> Conflict:
    return Conflict(409, "Conflict", f"{kind.kind} {name!r} changed {ATTEMPTS} times in a row")
