"""The snapshot that a plan reads: one pool, its runners, their accounts and nodes.

The views hold instants as numbers and states as words, so that decisions need no parsing and a test can
describe a pool in a line. `projection.py` makes them out of Kubernetes objects.

Invariants:
- A view describes one version of an object: every action carries its `uid` and `resource_version`, so an action
  on an outdated view is refused by the API and changes nothing.
- `readable` is False when a field is invalid. Such a runner counts as busy and is not deleted.
- A node that is absent from `nodes` is *unknown*, not gone. `gone` is proven by a read.
"""

from typing import Literal

import msgspec

from runyard.wire.runnerpool import PoolSpec, PoolStatus

Phase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]
Poller = Literal["", "running", "terminated"]


class RunnerView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One runner Pod. Instants are seconds since the epoch; None is "did not happen"."""

    name: str
    uid: str
    resource_version: str
    image: str
    phase: Phase = "Pending"
    owner: str = ""
    node: str = ""
    readable: bool = True
    poller: Poller = ""
    runtime_revision: str = ""
    marked: bool = False
    marked_at: float | None = None
    created_at: float | None = None
    bound_at: float | None = None
    progress_at: float | None = None
    unschedulable_since: float | None = None
    finished_at: float | None = None
    deleting_at: float | None = None
    grace_seconds: int = 30
    reported: bool = False
    """The stop of this runner was reported to the server."""


class AccountView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One runner's ServiceAccount."""

    name: str
    uid: str
    resource_version: str
    created_at: float | None = None
    deleting: bool = False


class NodeView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One host: leaving (cordoned, being deleted), or proven gone."""

    name: str
    leaving: bool = False
    gone: bool = False


class FleetView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The hosts that sibling pools share, for the pools whose starts are limited."""

    ceiling: int
    provisioning: int
    """Runners that start, over all siblings, including creations that are not visible yet."""
    provisioning_here: int
    healthy_nodes: int
    starved_siblings: int = 0
    """Other pools with missing runners and none starting."""


class PoolView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The RunnerPool itself."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    spec: PoolSpec
    status: PoolStatus = PoolStatus()
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    runtime_revision: str = ""
    poller: str = ""  # who polls for its Pods, if the pool says it
    dispatch_url: str = ""  # where its guests reach the server, if not where all do


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The input of one plan."""

    pool: PoolView
    runners: tuple[RunnerView, ...] = ()
    accounts: tuple[AccountView, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    expected: tuple[str, ...] = ()
    """Names of runners that were created, or may have been, and are not visible yet."""
    fleet: FleetView | None = None
    held_for: float = 0.0
    """Seconds for which creations pause, because the last ones failed or their runners failed at once."""
