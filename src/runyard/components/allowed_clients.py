"""Admits requests by the address that they come from.

An agent that existing fleets scrape has no token for its metrics, so the network decides who may read them.
"""

import ipaddress

from runyard.http.messages import Request, Response
from runyard.http.problems import problem
from runyard.http.routes import Guard
from runyard.wire.problem_codes import ProblemCode

# Networks of private addresses, of tailnets and of this machine.
PRIVATE = (
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"),
    *("127.0.0.0/8", "fc00::/7", "fe80::/10", "::1/128"),
)


def allow(networks: tuple[str, ...]) -> Guard:
    """A guard that admits clients in these networks; one whose address is not known is refused."""
    allowed = tuple(ipaddress.ip_network(network) for network in networks)

    async def guard(request: Request) -> Response | None:
        try:
            address = ipaddress.ip_address(request.client.partition("%")[0])
        except ValueError:
            return problem(403, ProblemCode.CLIENT_NOT_ALLOWED)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in allowed):
            return None
        return problem(
            403,
            ProblemCode.CLIENT_NOT_ALLOWED,
            fix="scrape from an allowed network, or add it with --scrape-allowed-cidr",
        )

    return guard
