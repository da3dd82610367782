"""Sends one poll where there is no curl: `python -I -S post.py URL HEADERS ANSWER SECONDS [SOCKET]`.

The headers come from a file, because other users can read arguments. The status is written to standard
output (000 if there was no answer) and the body, at most a mebibyte of it, to a file. Redirects are not
followed: the token is for one address. With SOCKET the connection is made to that Unix socket. It runs on any
recent Python 3 with its standard library alone.
"""

import http.client
import os
import socket
import sys
import threading
import urllib.parse

_LIMIT = 1 << 20


def post(
    url: str, headers: dict[str, str], answer: str, *, timeout: float, through: str = ""
) -> str:
    """Sends the request; returns the status as three digits."""
    parts = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=timeout)
    if through:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(timeout)
        connection.sock.connect(through)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", path, body=b"{}", headers=headers)
        response = connection.getresponse()
        body = response.read(_LIMIT + 1)
    finally:
        connection.close()
    if len(body) > _LIMIT:
        return "000"
    _write(answer, body)
    return f"{response.status:03d}"


def _write(path: str, body: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(body)


def _headers(path: str) -> dict[str, str]:
    found = {"Content-Type": "application/json", "Prefer": "wait=25"}
    with open(path, encoding="ascii") as file:  # noqa: PTH123 pathlib is slow to import
        for line in file:
            name, _, value = line.rstrip("\n").partition(": ")
            found[name] = value
    return found


def main(url: str, headers: str, answer: str, seconds: str, through: str = "") -> int:
    """Sends the request and prints the status."""
    # A socket's timeout is per read; this one is for the whole poll, however slowly the response arrives.
    watchdog = threading.Timer(float(seconds), os._exit, (28,))
    watchdog.daemon = True
    watchdog.start()
    try:
        status = post(url, _headers(headers), answer, timeout=float(seconds), through=through)
    except (OSError, ValueError, http.client.HTTPException):
        status = "000"
    sys.stdout.write(status)
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:6]))
