"""Builds pools, runners and snapshots for tests."""

from typing import Any

import msgspec

from runyard.pools.plans.views import AccountView, NodeView, PoolView, RunnerView, Snapshot
from runyard.wire import names
from runyard.wire.runnerpool import PoolSpec, PoolStatus, Provisioning, Rollout

NEW, OLD = "registry.test/runner@sha256:new", "registry.test/runner@sha256:old"
NOW = 1_000_000.0


def make_spec(replicas: int = 3, *, percent: int = 5, start: int = 300, **more: Any) -> PoolSpec:
    values: dict[str, Any] = {
        "image": NEW,
        "fleet_selector": "minis",
        "dispatch_label": "shape-macos",
        "runner_labels": ("self-hosted", "macOS", "ARM64"),
        "replicas": replicas,
        "rollout": Rollout(max_concurrent_percent=percent),
        "provisioning": Provisioning(start_timeout_seconds=start),
        **more,
    }
    return PoolSpec(**values)


def make_pool(replicas: int = 3, *, percent: int = 5, start: int = 300, **more: Any) -> PoolView:
    known = PoolView.__struct_fields__
    spec = {key: value for key, value in more.items() if key not in known}
    view: dict[str, Any] = {
        "name": "mac",
        "namespace": "tuist-runners",
        "uid": "pool-uid",
        "resource_version": "1",
        "finalizers": (names.POOL_DRAIN_FINALIZER,),
        "status": PoolStatus(observed_image=NEW),
        **{key: value for key, value in more.items() if key in known},
    }
    return PoolView(spec=make_spec(replicas, percent=percent, start=start, **spec), **view)


def make_runner(number: int, **more: Any) -> RunnerView:
    values: dict[str, Any] = {
        "name": f"mac-runner-{number:08x}",
        "uid": f"uid-{number}",
        "resource_version": str(100 + number),
        "image": NEW,
        "phase": "Running",
        "node": f"host-{number}",
        "created_at": NOW - 3600,
        "bound_at": NOW - 3600,
        **more,
    }
    return RunnerView(**values)


def make_account(runner: RunnerView, **more: Any) -> AccountView:
    values: dict[str, Any] = {
        "name": runner.name,
        "uid": f"account-of-{runner.uid}",
        "resource_version": "7",
        "created_at": NOW - 3600,
        **more,
    }
    return AccountView(**values)


def make_snapshot(pool: PoolView, *runners: RunnerView, **more: Any) -> Snapshot:
    hosts = dict.fromkeys(runner.node for runner in runners if runner.node)
    nodes = tuple(NodeView(name=name) for name in hosts)
    return Snapshot(pool=pool, runners=runners, **{"nodes": nodes, **more})


def change(value: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(value, **changes)
