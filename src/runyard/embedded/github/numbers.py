"""Chooses where the numbers of jobs, runs, runners and deliveries begin. Pure.

The server remembers every job that it has finished, and ignores further events of it. So a number is never given
twice, also if the store was lost, restored from a copy, or lacks its last writes after a power cut: each start begins
with numbers that no earlier start can have reached, unless it gave a thousand in every second of its life.
"""

_BEGAN = 1_735_689_600.0  # 2025
_PER_SECOND = 1000


def epoch_at(now: float) -> int:
    """The least number of a start at this time, to be added to the first one."""
    return max(0, int(now - _BEGAN)) * _PER_SECOND
