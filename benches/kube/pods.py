"""Builds Pods like those of a pool: about 3.5 KB each, as a server returns them."""

from typing import Any

NAMESPACE = "bench"
NODE = "bench-mac"
MARK = "bench/n"  # the label by which a watcher finds a Pod in the bytes of an event


def pod(number: int) -> dict[str, Any]:
    """Build a Pod as a client creates it."""
    name = f"runner-pool-{number % 20}-{number:06}"
    env = [{"name": f"RUNNER_SETTING_{at}", "value": f"value-{at}" * 3} for at in range(10)]
    amounts = {"cpu": "4", "memory": "8Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {
                MARK: f"{number:06}",
                "app.kubernetes.io/component": "runner",
                "tuist.dev/runner-pool": f"pool-{number % 20}",
                "tuist.dev/runner": "true",
            },
            "annotations": {"tuist.dev/image": "registry.example/macos@sha256:" + "ab" * 32},
            "finalizers": ["tuist.dev/vm"],
        },
        "spec": {
            "nodeName": NODE,
            "restartPolicy": "Never",
            "serviceAccountName": "default",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 30,
            "nodeSelector": {"kubernetes.io/os": "darwin", "tuist.dev/fleet": "default"},
            "tolerations": [
                {"key": "tuist.dev/macos", "operator": "Exists", "effect": "NoSchedule"}
            ],
            "containers": [
                {
                    "name": "runner",
                    "image": "registry.example/macos@sha256:" + "cd" * 32,
                    "env": env,
                    "resources": {"requests": amounts, "limits": amounts},
                }
            ],
        },
    }


def stored(number: int, *, version: int) -> dict[str, Any]:
    """Build the Pod as a server returns it while it runs."""
    at = "2027-01-15T08:00:00Z"
    obj = pod(number)
    obj["metadata"]["annotations"]["tuist.dev/said"] = (
        "y" * 420
    )  # stands for other annotations of a Pod
    obj["metadata"] |= {
        "uid": f"{number:08x}-0000-4000-8000-000000000000",
        "resourceVersion": str(version),
        "creationTimestamp": at,
        "managedFields": [
            {
                "manager": "runyard",
                "operation": "Apply",
                "apiVersion": "v1",
                "time": at,
                "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:metadata": {
                        "f:labels": {f"f:{key}": {} for key in obj["metadata"]["labels"]}
                    },
                    "f:spec": {f"f:{key}": {} for key in obj["spec"]},
                },
            }
        ],
    }
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    obj["status"] = {
        "phase": "Running",
        "hostIP": "10.0.0.7",
        "podIP": "192.168.64.9",
        "startTime": at,
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": at}
            for kind in kinds
        ],
        "containerStatuses": [
            {
                "name": "runner",
                "ready": True,
                "restartCount": 0,
                "image": "registry.example/macos@sha256:" + "cd" * 32,
                "imageID": "registry.example/macos@sha256:" + "cd" * 32,
                "state": {"running": {"startedAt": at}},
            }
        ],
    }
    return obj
