"""Tests that a console log that cannot be rotated harms nothing but itself."""

import os
from pathlib import Path

from runyard.vm.shim.console import CAPACITY, Console


def test_output_of_a_guest_goes_into_a_file_that_was_opened_after_a_rotation_failed(
    tmp_path: Path,
) -> None:
    console = Console(str(tmp_path))
    console.write(b"x" * (CAPACITY - 10))
    (tmp_path / "console.log.1" / "in-the-way").mkdir(parents=True)
    console.write(b"y" * 20)  # the rotation fails, after the file was closed
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)  # it gets the number of that file
    try:
        console.write(b"z" * 5)
        console.write(b"z" * 20)
        assert os.fstat(other).st_size == 0
    finally:
        os.close(other)


def test_a_log_is_written_again_when_it_can_be_rotated_again(tmp_path: Path) -> None:
    console = Console(str(tmp_path))
    console.write(b"x" * CAPACITY)
    away = tmp_path / "console.log.1"
    (away / "in-the-way").mkdir(parents=True)
    console.write(b"lost")
    (away / "in-the-way").rmdir()
    away.rmdir()
    console.write(b"kept")
    assert (tmp_path / "console.log").read_bytes() == b"kept"
