"""Reason codes that Kubernetes objects carry: a slug inside, CamelCase in conditions and events.

    class Why(KubeCode):
        NO_HEALTHY_HOST = "no-healthy-host", "no healthy host in {selector}"

    Why.NO_HEALTHY_HOST.camel   "NoHealthyHost"

Kubernetes requires CamelCase reasons; metrics, logs and queries use slugs. One member carries both.
"""

from runyard.wire.reasons import Code


class KubeCode(Code):
    """A reason whose CamelCase form is published in conditions or events."""

    @property
    def camel(self) -> str:
        """The reason as Kubernetes objects carry it."""
        return "".join(word[:1].upper() + word[1:] for word in self.value.split("-"))
