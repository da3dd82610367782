"""The settings of the tart driver: where tart is, how long each of its commands may take, how many VMs may run."""

from pathlib import Path

import msgspec

from runyard.vm.shim.orders import Pace

VM_LIMIT = 2  # macOS guests that Apple allows to run at once on one Mac


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds for one attempt of each command; a pull is bounded by its progress instead."""

    version: float = 10.0
    list: float = 15.0
    get: float = 15.0
    clone: float = 600.0  # a copy on another file system than the image's copies every byte
    set: float = 60.0
    ip: float = 10.0
    exec: float = 15.0  # of commands that the driver itself runs in a guest
    delete: float = 90.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How the driver uses tart."""

    binary: str = "tart"
    home: Path | None = None  # TART_HOME; None: the environment's, else ~/.tart
    insecure: frozenset[str] = frozenset()  # `host:port` of registries that speak plain HTTP
    deadlines: Deadlines = Deadlines()
    attempts: int = 3  # of an idempotent command that hangs
    backoff: float = 1.0  # seconds before the second attempt; doubles with each
    pull_stall: float = 300.0  # seconds without progress after which a pull is ended
    pull_ending: float = 20.0  # seconds that tart gets for ending a pull after INT
    slots: int = VM_LIMIT  # running VMs, strangers' included; 0: no limit
    start_window: float = 1.0  # seconds in which a start notices that tart refuses to run the VM
    ask_again: float = (
        1.0  # seconds between attempts to ask a guest whose agent does not answer for its shutdown
    )
    power_off: float = (
        10.0  # seconds that `tart run` gets for ending after INT, before it is killed
    )
    pace: Pace = Pace()  # of polling for guests
    dial: float = 5.0  # seconds for a connection to a guest
    address_again: float = 60.0  # seconds after which a known address is looked up again
    address_retry: float = 1.0  # seconds between lookups while there is none
