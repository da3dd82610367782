"""The settings of the embedded server.

Passed on its command line and not in its configuration file, so that an upgrade of runyard changes them
and a user's lines in `postgresql.conf` still work for everything else.
"""

from pathlib import Path

_COMMON = {
    "listen_addresses": "",  # a unix socket only: no network access
    "unix_socket_permissions": "0700",
    "port": "5432",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "password_encryption": "scram-sha-256",
    "log_min_messages": "warning",
    "jit": "off",  # short statements only; compiling them costs more than running them
}

_DURABLE = {"shared_buffers": "64MB"}

# Nothing has to survive: no waiting for disks, few processes, little memory.
_FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "256MB",
    "shared_buffers": "32MB",
    "max_logical_replication_workers": "0",
}


def arguments(
    *, version: str, durable: bool, max_connections: int, socket: Path, extra: dict[str, str]
) -> list[str]:
    """`-c name=value` for every setting; `extra` wins."""
    chosen = _COMMON | (_DURABLE if durable else _FAST)
    chosen["max_connections"] = str(max_connections)
    chosen["unix_socket_directories"] = _list_item(str(socket))
    if _major(version) >= 16:
        # The password is 24 random bytes: hashing it 4,096 times, as for a weak one, only slows every connection.
        chosen["scram_iterations"] = "1"
    if not durable and _major(version) >= 18:
        chosen["io_method"] = "sync"
    return [word for name, value in (chosen | extra).items() for word in ("-c", f"{name}={value}")]


def _list_item(text: str) -> str:
    """One element of a list setting: quoted, because a path may hold a space or a comma."""
    return '"' + text.replace('"', '""') + '"'


def _major(version: str) -> int:
    head = version.partition(".")[0]
    return int(head) if head.isdigit() else 0
