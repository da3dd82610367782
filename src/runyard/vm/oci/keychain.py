"""Reads the entry of the macOS Keychain that `tart login` makes, through Apple's `security`.

Tart keeps an internet password for the protocol HTTPS, labelled "Tart Credentials", whose server is the registry.
The entry belongs to tart: macOS may ask the person at the screen whether `security` may read it, and refuses where
no user is logged in. So a refusal is expected, is reported with the ways around it, and is not repeated
for a while: a dialog each minute would teach people to click it away.

Invariants:
- The password is read from the program's output and is in no argument. Nothing of that output is shown.
- It is bounded by a deadline, however long the dialog stays.
"""

import re

from runyard import proc
from runyard.clock import Clock
from runyard.vm.oci.credentials import (
    DEADLINE,
    Credentials,
    OnlyForTart,
    Source,
    Unavailable,
    checked,
)

SECURITY = "/usr/bin/security"
LABEL = "Tart Credentials"
REST = 600.0  # seconds after a refusal in which it is not asked again

_HTTPS = "htps"
_NOT_FOUND = 44  # errSecItemNotFound, as an exit code
_ACCOUNT = re.compile(rb'^\s*"acct"<blob>=((?:0x|").*)$', re.MULTILINE)
_PASSWORD = re.compile(rb'^password: ((?:0x|").*)$', re.MULTILINE)
_HEX = re.compile(rb'0x([0-9A-Fa-f]*)(?:\s+".*")?\s*')


class Keychain:
    """The Keychain of the user whom this process runs as."""

    def __init__(
        self,
        clock: Clock,
        *,
        program: str = SECURITY,
        deadline: float = DEADLINE,
        rest: float = REST,
    ) -> None:
        self._clock = clock
        self._program = program
        self._deadline = deadline
        self._rest = rest
        self._refused: dict[str, float] = {}  # registry → when it may be asked for again

    async def find(self, host: str) -> Credentials | None:
        """The entry for this registry."""
        if self._clock.monotonic() < self._refused.get(host, float("-inf")):
            raise self._unavailable(host, "was refused a while ago")
        try:
            return await self._ask(host)
        except Unavailable:
            self._refused[host] = self._clock.monotonic() + self._rest
            raise

    async def _ask(self, host: str) -> Credentials | None:
        query = ("-s", host, "-r", _HTTPS, "-l", LABEL)
        try:
            done = await proc.run(
                (self._program, "find-internet-password", "-g", *query), timeout=self._deadline
            )
        except proc.DeadlineExceeded:
            cause = f"was not given within {self._deadline:g} s: a dialog may wait on the screen"
            raise self._unavailable(host, cause) from None
        except proc.ProcError as error:
            raise Unavailable(f"the Keychain cannot be asked: {error}") from None
        if done.code == _NOT_FOUND:
            return None
        account, password = _ACCOUNT.search(done.stdout), _PASSWORD.search(done.stderr)
        if done.code != 0 or account is None or password is None:
            raise self._unavailable(host, f"was refused (exit code {done.code})")
        try:
            return checked(
                _value(account[1]), _value(password[1]), source=Source.KEYCHAIN, detail=LABEL
            )
        except UnicodeDecodeError:
            raise self._unavailable(host, "is not text") from None

    def _unavailable(self, host: str, cause: str) -> Unavailable:
        return OnlyForTart(
            f"the Keychain's entry for {host} {cause}: allow {self._program} to read it, or put the credentials"
            " into ~/.docker/config.json"
        )


def _value(printed: bytes) -> str:
    """A value as `security` prints it: quoted as it is, or in hex if it is not all printable ASCII."""
    if found := _HEX.fullmatch(printed):
        return bytes.fromhex(found[1].decode()).decode()
    return printed.strip().removeprefix(b'"').removesuffix(b'"').decode()
