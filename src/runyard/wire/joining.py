"""How a second machine joins: paths, bodies, and the text of a join token.

A join token is `ID.SECRET.PIN`: an identifier that may be shown, a secret, and the SHA-256 of the public key of the
certificate authority of the machine to join. The joining machine compares the pin with the authority that it is
offered before it sends anything, so no other machine that answers at the URL can take a token. The authority may be
renewed with the same key; the pin stays valid.

A certificate of the listener for hosts is valid for `TLS_NAME`, whatever address was dialled: a machine that gets
another address by DHCP, or is reached through a tunnel, needs no other certificate.
"""

import re

import msgspec

from runyard.wire import names

AUTHORITY = "/hosts/authority"  # its certificate, PEM; open, and trusted only if it matches the pin
TERMS = "/hosts/terms"  # what a machine must have to join; open
JOIN = "/hosts/join"
RENEW = "/hosts/renew"
HEALTH = "/healthz"
TLS_NAME = "hosts.runyard.internal"

# A stored join token is a Secret in the components' namespace.
TOKEN_LABEL = "runyard.dev/join-token"
TOKEN_PREFIX = "runyard-join-"
MACHINE_ID = "runyard.dev/machine-id"  # on a host's account: the machine that joined under its name

_ID, _SECRET, _PIN = r"[0-9a-f]{10}", r"[0-9a-f]{40}", r"[0-9a-f]{64}"
_TOKEN = re.compile(rf"({_ID})\.({_SECRET})\.({_PIN})")
_HOST = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_MACHINE = re.compile(r"[0-9a-f]{32}")
_OF_MAIN = re.compile(r"host-[0-9]+")
TOKEN_ID = re.compile(_ID)


class JoinToken(msgspec.Struct, frozen=True):
    """A join token."""

    id: str
    secret: str
    pin: str

    @property
    def text(self) -> str:
        """What `runyard host token` prints, and `runyard host join` takes."""
        return f"{self.id}.{self.secret}.{self.pin}"

    def __repr__(self) -> str:
        return f"JoinToken({self.id}, …)"  # its secret must not end up in a log


def parse_token(text: str) -> JoinToken | None:
    """The token of this text; None if it is not one, for instance because a part was not copied."""
    found = _TOKEN.fullmatch(text.strip())
    return None if found is None else JoinToken(found[1], found[2], found[3])


def is_host_name(name: str) -> bool:
    """Whether a host may have this name: it becomes part of the names of its Node and its account."""
    return _HOST.fullmatch(name) is not None


def is_reserved_name(name: str) -> bool:
    """Whether the main machine gives this name to hosts of its own (`runyard up --hosts`), now or some day."""
    return _OF_MAIN.fullmatch(name) is not None


def is_machine_id(text: str) -> bool:
    """Whether this is the identifier of a machine, as `MembershipFiles.machine` makes it."""
    return _MACHINE.fullmatch(text) is not None


class Terms(msgspec.Struct, frozen=True):
    """What a machine must know before it sends its token: hosts of a real GitHub need an Actions runner."""

    practice: bool


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a request to join."""

    id: str
    secret: str
    name: str
    machine: str  # an identifier that the joining machine made once: it may take its name again

    def __repr__(self) -> str:
        return f"JoinRequest({self.id}, {self.name})"


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A host's credential, and what it needs to run jobs of this machine."""

    name: str
    token: str
    expires: float  # seconds since the epoch
    fleet: str = ""
    practice_url: str = ""  # as runners know the practice GitHub, if there is one
    namespace: str = names.RUNNERS_NAMESPACE

    def __repr__(self) -> str:
        return f"Credential({self.name}, …)"
