"""The metrics of the node agent, under the names that its loops use."""

from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL as ACTIONS
from runyard.telemetry.catalogue import RUNYARD_GUEST_DISK_AGE_SECONDS as GUEST_DISK_AGE
from runyard.telemetry.catalogue import RUNYARD_LOOP_FAILURES_TOTAL as FAILURES
from runyard.telemetry.catalogue import TART_KUBELET_GUEST_DISK_USAGE_PERCENT as GUEST_DISK
from runyard.telemetry.catalogue import (
    TART_KUBELET_POD_PROVISION_DELAY_SECONDS as PROVISION_DELAY,
)
from runyard.telemetry.catalogue import TART_KUBELET_UNOWNED_VMS as UNOWNED_VMS
from runyard.telemetry.catalogue import TART_KUBELET_VM_BOOT_DURATION_SECONDS as BOOT_DURATION
from runyard.telemetry.meter import Meter
from runyard.telemetry.names import Component, slug_of

__all__ = [
    "ACTIONS",
    "BOOT_DURATION",
    "FAILURES",
    "GUEST_DISK",
    "GUEST_DISK_AGE",
    "PROVISION_DELAY",
    "UNOWNED_VMS",
    "count_action",
]


def count_action(meter: Meter, action: object, outcome: str) -> None:
    """Count one action of a plan that was applied, by outcome."""
    name = slug_of(type(action).__name__)
    meter.inc(ACTIONS, component=Component.AGENT, action=name, outcome=outcome)
