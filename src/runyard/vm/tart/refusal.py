"""Recognises a `tart run` that was refused because too many VMs run: nothing of its VM ran then.

Imported by the shim, so it imports nothing but the standard library.
"""

NO_SLOT = "The number of VMs exceeds the system limit"
_PREFIX = "Error: "
_PREAMBLE = (
    4  # lines that `tart run` prints at most before that: about a MAC address that another VM has
)


def refuses_more_vms(output: str) -> bool:
    """Whether `tart run` has printed as its only output that too many VMs run: then it has not started this one.

    The output of a guest that ran may be there as well, and is not to be trusted.
    """
    lines = output.strip().splitlines()
    return 0 < len(lines) <= _PREAMBLE and lines[-1].removeprefix(_PREFIX).startswith(NO_SLOT)
