"""Builds the Pod and the ServiceAccount of one runner, as they are sent to the API.

The two share one name: the server derives the Pod's name from the account that authenticates, so the
equality is part of the protocol. Both are owned by the pool; deleting the Pod does not delete its account.

The runtimes differ in where the poll loop runs. Under our node agent it is inside of the VM, to which the agent
passes the token. Under a stock kubelet on linux it is an init container, the only one that can read the token; the
container that runs customer code starts after it and cannot read it. Sidecars (docker, metrics, shell) would
be further init containers in `_linux_spec`.
"""

from typing import Any

from runyard.pools.plans.views import PoolView
from runyard.pools.settings import Settings
from runyard.wire import names

Manifest = dict[str, Any]

JIT_DIR = "/var/lib/tuist-runner"
TOKEN_DIR = "/var/run/secrets/tuist-runner"
WORK_DIR = "/home/runner/actions-runner/_work"
TOKEN_SECONDS = 3600
POLLER = "poller"
RUNNER = "runner"


def service_account(pool: PoolView, name: str) -> Manifest:
    """The account that the runner polls with."""
    return {
        "metadata": _metadata(pool, name, component=names.COMPONENT_RUNNER_SA),
        "automountServiceAccountToken": False,
    }


def pod(pool: PoolView, name: str, settings: Settings) -> Manifest:
    """The runner's Pod."""
    metadata = _metadata(pool, name, component=names.COMPONENT_RUNNER)
    metadata["labels"][names.RUNNER] = "true"
    copied = {
        names.RUNTIME_REVISION: pool.runtime_revision,
        names.POLLER: pool.poller,
        names.GUEST_DISPATCH_URL: pool.dispatch_url,
    }
    if annotations := {name: value for name, value in copied.items() if value}:
        metadata["annotations"] = annotations
    by_agent = bool(pool.spec.agent_runtime)
    spec = _agent_spec(pool, settings) if by_agent else _linux_spec(pool, settings)
    common: Manifest = {"restartPolicy": "Never", "serviceAccountName": name}
    if pool.spec.runtime_class:
        common["runtimeClassName"] = pool.spec.runtime_class
    return {"metadata": metadata, "spec": {**common, **spec}}


def _metadata(pool: PoolView, name: str, *, component: str) -> Manifest:
    return {
        "name": name,
        "namespace": pool.namespace,
        "labels": {
            names.RUNNER_POOL: pool.name,
            names.APP_NAME: names.APP_NAME_VALUE,
            names.APP_COMPONENT: component,
        },
        "ownerReferences": [
            {
                "apiVersion": f"{names.GROUP}/{names.VERSION}",
                "kind": names.POOL_KIND,
                "name": pool.name,
                "uid": pool.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def _agent_spec(pool: PoolView, settings: Settings) -> Manifest:
    env = [*_runner_env(pool), *_poll_env(pool, pool.dispatch_url or settings.dispatch_url)]
    if settings.cluster_dns_ip:
        env.append(_env(names.ENV_CLUSTER_DNS_IP, settings.cluster_dns_ip))
        env.append(_env(names.ENV_CLUSTER_DOMAIN, settings.cluster_domain))
    term = {
        "matchExpressions": [{"key": names.golden_label(pool.spec.image), "operator": "Exists"}]
    }
    preferred = [{"weight": 100, "preference": term}]
    return {
        # The node agent itself carries a token with the right audience into the VM.
        "automountServiceAccountToken": True,
        "nodeSelector": {
            names.NODE_OS: pool.spec.os,
            names.NODE_RUNTIME: pool.spec.agent_runtime,
            names.NODE_FLEET: pool.spec.fleet_selector,
        },
        "tolerations": [{"key": names.NODE_TAINT, "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
        },
        "containers": [_container(pool, RUNNER, env)],
    }


def _linux_spec(pool: PoolView, settings: Settings) -> Manifest:
    url = pool.dispatch_url or settings.dispatch_internal_url or settings.dispatch_url
    jit = _env(names.ENV_JIT_PATH, f"{JIT_DIR}/jit")
    poller = {
        "name": POLLER,
        "image": pool.spec.image,
        "command": ["/opt/tuist/dispatch-poll.sh"],
        "env": [*_poll_env(pool, url), jit],
        "volumeMounts": [
            {"name": "tuist-runner-jit", "mountPath": JIT_DIR},
            {"name": "tuist-runner-token", "mountPath": TOKEN_DIR, "readOnly": True},
        ],
    }
    runner = {
        **_container(pool, RUNNER, [*_runner_env(pool), jit]),
        "command": ["/opt/tuist/run-job.sh"],
        "volumeMounts": [
            {"name": "tuist-runner-jit", "mountPath": JIT_DIR, "readOnly": True},
            {"name": "work", "mountPath": WORK_DIR},
        ],
    }
    return {
        "automountServiceAccountToken": False,
        "nodeSelector": {
            names.NODE_OS: "linux",
            names.NODE_ARCH: "amd64",
            names.NODE_LINUX_POOL: pool.spec.fleet_selector,
        },
        "tolerations": [
            {
                "key": names.NODE_TAINT_LINUX,
                "operator": "Equal",
                "value": names.NODE_TAINT_LINUX_VALUE,
                "effect": "NoSchedule",
            }
        ],
        "initContainers": [poller],
        "containers": [runner],
        "volumes": _linux_volumes(),
    }


def _linux_volumes() -> list[Manifest]:
    token = {
        "audience": names.DISPATCH_AUDIENCE,
        "expirationSeconds": TOKEN_SECONDS,
        "path": "token",
    }
    projected = {"defaultMode": 0o400, "sources": [{"serviceAccountToken": token}]}
    return [
        {"name": "tuist-runner-jit", "emptyDir": {}},
        {"name": "tuist-runner-token", "projected": projected},
        {"name": "work", "emptyDir": {}},
    ]


def _container(pool: PoolView, name: str, env: list[Manifest]) -> Manifest:
    # Requests equal limits: the VM is sized from the limits, the host's slots from the requests.
    size = {"cpu": f"{pool.spec.pod_cpu_milli}m", "memory": f"{pool.spec.pod_memory_mb}Mi"}
    return {
        "name": name,
        "image": pool.spec.image,
        "env": env,
        "resources": {"requests": size, "limits": size},
    }


def _runner_env(pool: PoolView) -> list[Manifest]:
    env = [_env(names.ENV_PRINT_LOG, "1")]
    if pool.spec.idle_timeout_seconds > 0:
        env.append(_env(names.ENV_IDLE_TIMEOUT, str(pool.spec.idle_timeout_seconds)))
    return env


def _poll_env(pool: PoolView, url: str) -> list[Manifest]:
    return [
        _env(names.ENV_DISPATCH_URL, url),
        _env(names.ENV_POOL, pool.name),
        _field(names.ENV_POD_NAME, "metadata.name"),
        _field(names.ENV_POD_UID, "metadata.uid"),
    ]


def _env(name: str, value: str) -> Manifest:
    return {"name": name, "value": value}


def _field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
