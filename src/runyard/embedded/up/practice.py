"""The names of the practice fleet: one account, one repository, one pool, two images.

They are for trying things out. With a real GitHub, account and repository are the user's.
"""

import sys
from typing import Any

from runyard.embedded.up.hosts import FLEET, SLOT_CPU_MILLI, SLOT_MEMORY_MB
from runyard.wire import names

ACCOUNT = "practice"
REPOSITORY = "practice/playground"
POOL = "practice"
LABEL = "runyard"
IMAGES = ("runyard.local/practice-runner:1", "runyard.local/practice-runner:2")


def pool(*, replicas: int, runtime: str) -> dict[str, Any]:
    """The RunnerPool of the practice fleet."""
    return {
        "metadata": {"name": POOL},
        "spec": {
            "image": IMAGES[0],
            "fleetSelector": FLEET,
            "dispatchLabel": LABEL,
            "runnerLabels": ["self-hosted", "macOS" if sys.platform == "darwin" else "Linux"],
            "replicas": replicas,
            "os": "darwin" if sys.platform == "darwin" else "linux",
            "runtimeClass": names.RUNTIME_CLASS_PREFIX + runtime,
            "podCPUMilli": SLOT_CPU_MILLI,
            "podMemoryMB": SLOT_MEMORY_MB,
            "rollout": {"maxConcurrentPercent": 50},
        },
    }
