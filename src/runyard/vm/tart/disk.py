"""Reads how full a guest's disk is from the output of `df -k /`. Pure.

On macOS `/` is a sealed snapshot: the capacity that df prints compares what the snapshot uses with what the whole
container has left, and shows 30 % for a disk that is 80 % full. So the percentage is made of blocks and available
blocks.
"""

from runyard.vm.contract import DriverFailed


def percent_used(output: bytes) -> float:
    """Percent of the volume that is used; raises `DriverFailed` for everything that is not df's table."""
    lines = [line.split() for line in output.decode(errors="replace").splitlines() if line.strip()]
    if len(lines) < 2:
        raise DriverFailed("df in the guest printed no table")
    for row in reversed(lines[1:]):
        numbers = _numbers(row)
        if numbers is not None:
            blocks, available = numbers
            return min(100.0, max(0.0, 100.0 * (blocks - available) / blocks))
    raise DriverFailed(
        f"df in the guest printed a table without numbers: {' '.join(lines[-1])[:100]}"
    )


def _numbers(row: list[str]) -> tuple[int, int] | None:
    """Blocks and available blocks: the first and the third of the numbers before the first percentage."""
    first = next((number for number, word in enumerate(row) if word.endswith("%")), 0)
    words = row[max(0, first - 3) : first]
    if len(words) != 3 or not all(word.lstrip("-").isdecimal() for word in words):
        return None
    blocks, _, available = map(int, words)
    return (blocks, available) if blocks > 0 else None
