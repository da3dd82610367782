"""The errors of a lookup: each names the image, the cause and the fix.

Invariant: no message contains a password, a token, or text that a registry wrote.
"""

from runyard.vm.contract import (
    Busy,
    DriverFailed,
    ImageMissing,
    Unauthorized,
    Unreachable,
    VmError,
)
from runyard.vm.oci.fetching import Session
from runyard.vm.oci.reference import Reference


class Hidden(Unauthorized):
    """The registry refuses access without credentials, and those that there may be are for tart only."""


class WithoutTls(Unreachable):
    """The connection failed because of TLS: the registry may speak plain HTTP."""


class Explaining:
    """Makes the errors of one lookup. `status` is the HTTP status with the registry's error code."""

    def __init__(self, reference: Reference, session: Session) -> None:
        self.reference = reference
        self._session = session

    def missing(self, status: str) -> VmError:
        """The registry does not know it."""
        return ImageMissing(
            f"{self._image}: {self._host} has no such image ({status}); check its name and tag"
        )

    def no_image(self, cause: str) -> VmError:
        """The reference means something else than a VM image."""
        return ImageMissing(f"{self._image}: {cause}; name an image that 'tart push' has pushed")

    def unauthorized(self, status: str) -> VmError:
        """The registry refuses access."""
        found = self._session.found
        if (used := found.credentials) is not None:
            return Unauthorized(
                f"{self._image}: {self._host} refuses the credentials from {used.source.value} ({used.detail}):"
                f" {status}; renew them, or give them the right to read {self.reference.namespace}"
            )
        notes = "".join(f"; {note}" for note in found.notes)
        kind = Hidden if found.only_for_tart else Unauthorized
        return kind(
            f"{self._image}: {self._host} refuses access without credentials ({status}), and none were found; run"
            f" 'tart login {self._host}' or set TART_REGISTRY_USERNAME and TART_REGISTRY_PASSWORD. If the image is"
            f" public, check its name{notes}"
        )

    def busy(self, status: str, wait: float) -> VmError:
        """The registry cannot answer now."""
        when = f"in {wait:.0f} s" if wait else "later"
        kind = Busy if wait else Unreachable
        return kind(f"{self._image}: {self._host} is busy or broken ({status}); retry {when}")

    def silent(self, cause: str, *, plain: bool = False) -> VmError:
        """There was no answer; `plain`: perhaps because the registry has no TLS."""
        hint = f"; if {self._host} speaks plain HTTP, declare it insecure" if plain else ""
        kind = WithoutTls if plain else Unreachable
        return kind(
            f"{self._image}: {self._host} cannot be reached: {cause}; check the network and retry{hint}"
        )

    def unusable(self, cause: str) -> VmError:
        """What answers is no registry that can be used."""
        return DriverFailed(
            f"{self._image}: {self._host} cannot be used: {cause}; check that it is a registry"
        )

    @property
    def _image(self) -> str:
        return f"image {self.reference}"

    @property
    def _host(self) -> str:
        return self.reference.host
