"""Lets this process use a computer with stand-ins for launchd or systemd."""

import os
from pathlib import Path

import pytest
from tests.hosts.services.computer import Computer

import runyard.clock
from runyard.cli import servicehere


def use_computer(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Computer:
    """A computer whose home, programs and clock commands of this process use."""
    computer = Computer(folder, kind)
    for name in list(os.environ):
        ours = name.startswith(("RUNYARD_", "XDG_", "TART_", "SSL_")) or name == "DATABASE_URL"
        if ours and name != "RUNYARD_TRANSCRIPTS":
            monkeypatch.delenv(name)
    for name, value in computer.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(runyard.clock, "RealClock", lambda: computer.clock)
    monkeypatch.setattr(servicehere, "PLATFORM", computer.platform)
    monkeypatch.setattr(servicehere, "TEMPORARY", ())
    monkeypatch.setattr(os, "getuid", lambda: 501)
    monkeypatch.chdir(computer.home)
    return computer
