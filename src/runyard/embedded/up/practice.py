"""The names of the practice fleet: one account, one repository, one pool, two images.

They are for trying things out. With a real GitHub, account and repository are the user's.
"""

import sys
from typing import Any

from runyard.embedded.up.hosts import FLEET, PODS, size
from runyard.vm.registry import RUNTIMES, DriverName
from runyard.wire import names

ACCOUNT = "practice"
REPOSITORY = "practice/playground"
POOL = "practice"
LABEL = "runyard"
STOCK_IMAGE = "ghcr.io/cirruslabs/macos-runner:sequoia"  # macOS with the Actions runner
IMAGES = ("runyard.local/practice-runner:1", "runyard.local/practice-runner:2")


def pool(
    *, replicas: int, driver: DriverName = "process", image: str = "", slots: int = PODS
) -> dict[str, Any]:
    """The first RunnerPool of a machine; without an image VMs have a stock one, processes the practice fleet's."""
    darwin = driver == "tart" or sys.platform == "darwin"
    each = size(driver=driver, slots=slots)
    spec: dict[str, Any] = {
        "image": image or (STOCK_IMAGE if driver == "tart" else IMAGES[0]),
        "fleetSelector": FLEET,
        "dispatchLabel": LABEL,
        "runnerLabels": ["self-hosted", "macOS" if darwin else "Linux"],
        "replicas": replicas,
        "os": "darwin" if darwin else "linux",
        "podCPUMilli": each.cpu_milli,
        "podMemoryMB": each.memory_mb,
        "rollout": {"maxConcurrentPercent": 50},
    }
    if driver != "tart":  # whose Pods select their hosts without a RuntimeClass
        spec["runtimeClass"] = names.RUNTIME_CLASS_PREFIX + RUNTIMES[driver]
    return {"metadata": {"name": POOL}, "spec": spec}
