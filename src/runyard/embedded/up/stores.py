"""Records which stores this machine has used, so that a store that was lost is not replaced by an empty one.

Each component creates its store if there is none, which is right at the first start only. Later it would hide a loss:
a fleet without its pools, without its jobs, or without its limits. So a start refuses to continue without a store that
an earlier start has used.

Invariant: a store is recorded only after a start with it has succeeded; an interrupted first start can be repeated.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from runyard.embedded.up.layout import BadDirectory, Layout, read_json
from runyard.files import write_whole

KUBE, GITHUB, POSTGRES = "kube.db", "github.db", "postgres"
_LOST = {
    KUBE: "pools that you created must be created again",
    GITHUB: "practice jobs and their logs are lost",
    POSTGRES: "jobs, tenants, their limits and test results are lost",
}


def in_use(*, practice: bool, database: bool) -> tuple[str, ...]:
    """The stores of this start: the practice GitHub and the embedded database are optional."""
    return (KUBE, *((GITHUB,) if practice else ()), *((POSTGRES,) if database else ()))


def check(layout: Layout, names: Iterable[str]) -> None:
    """Refuses a start without the content of one of these stores, if it was used before."""
    used = known(layout)
    for name in names:
        path = layout.root / name
        state = _state(path)
        if name in used and state:
            raise BadDirectory(
                f"{path} is {state}, but this machine has used it. Restore it from a backup, or remove"
                f' "{name}" from {layout.stores} to start with an empty one: {_LOST[name]}'
            )


def record(layout: Layout, names: Iterable[str]) -> None:
    """Records that these stores are used."""
    used = known(layout)
    if layout.stores.exists() and used.issuperset(names):
        return
    write_whole(layout.stores, msgspec.json.encode(sorted({*used, *names})))


def known(layout: Layout) -> frozenset[str]:
    """The stores that were used; of a directory without the record, what its other files show."""
    fix = "Restore it from a backup, or remove it: missing stores are then created"
    found = read_json(layout.stores, fix=fix)
    if found is None:  # the kubeconfig is written once the API is ready
        return frozenset((KUBE,) if layout.kubeconfig.exists() else ())
    try:
        return frozenset(msgspec.convert(found, list[str]))
    except msgspec.ValidationError:
        raise BadDirectory(f"{layout.stores} is damaged: it contains no list. {fix}") from None


def _state(path: Path) -> str:
    """What is wrong with a store: an empty text if it has content."""
    try:
        content = any(path.iterdir()) if path.is_dir() else path.stat().st_size > 0
    except FileNotFoundError:
        return "missing"
    return "" if content else "empty"
