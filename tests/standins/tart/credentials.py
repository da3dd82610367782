"""The credentials for a registry, in tart's order: variables, `~/.docker/config.json`, the keychain.

The keychain of the stand-in is a private file in TART_HOME, written by `tart login`.
"""

import base64
import json
import os
import sys

from tests.standins.tart import errors
from tests.standins.tart.arguments import Command, Given
from tests.standins.tart.context import Context

LOGIN = Command(
    "login",
    "host",
    {"username": "str", "password-stdin": "flag", "insecure": "flag", "no-validate": "flag"},
)
LOGOUT = Command("logout", "host")
User = tuple[str, str]


def find(context: Context, host: str) -> User | None:
    """The user and password for a registry, if there are any."""
    env = os.environ
    given = "TART_REGISTRY_USERNAME" in env and "TART_REGISTRY_PASSWORD" in env
    if given and env.get("TART_REGISTRY_HOSTNAME", host) == host:
        return env["TART_REGISTRY_USERNAME"], env["TART_REGISTRY_PASSWORD"]
    return _docker(host) or _keychain(context).get(host)


def _docker(host: str) -> User | None:
    try:
        with open(os.path.expanduser("~/.docker/config.json"), encoding="utf-8") as file:
            settings = json.load(file)
    except FileNotFoundError:
        return None
    helper = settings.get("credHelpers", {}).get(host)
    if helper:
        import subprocess  # noqa: PLC0415 - seldom needed, slow to import

        done = subprocess.run(
            [f"docker-credential-{helper}", "get"], input=host.encode(), stdout=-1, check=False
        )
        if done.returncode == 0:
            answer = json.loads(done.stdout)
            return answer["Username"], answer["Secret"]
    auth = settings.get("auths", {}).get(host, {}).get("auth")
    if not auth:
        return None
    user, _, password = base64.b64decode(auth).decode().partition(":")
    return user, password


def _path(context: Context) -> str:
    return os.path.join(context.home.root, "keychain")


def _keychain(context: Context) -> dict[str, User]:
    try:
        with open(_path(context), encoding="utf-8") as file:
            return {host: (user[0], user[1]) for host, user in json.load(file).items()}
    except FileNotFoundError:
        return {}


def _save(context: Context, kept: dict[str, User]) -> None:
    descriptor = os.open(_path(context), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(kept, file)


def login(context: Context, given: Given) -> int:
    """`tart login`: the password by stdin, never as an argument."""
    host = given.name("host")
    context.knobs.before("login")
    if not (given.flag("username") and given.flag("password-stdin")):
        raise errors.Usage("both --username and --password-stdin are required without a terminal")
    user = (given.text("username"), sys.stdin.read().rstrip("\n"))
    if not given.flag("no-validate"):
        from tests.standins.tart import registry  # noqa: PLC0415 - not needed otherwise

        registry.connect(context, host, "", insecure=given.flag("insecure"), user=user).ping()
    _save(context, {**_keychain(context), host: user})
    return 0


def logout(context: Context, given: Given) -> int:
    """`tart logout`."""
    context.knobs.before("logout")
    kept = _keychain(context)
    kept.pop(given.name("host"), None)
    _save(context, kept)
    return 0
