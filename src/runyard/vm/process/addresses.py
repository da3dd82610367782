"""Decides a VM's addresses from the host's: its own subnet, its name server, and which of the host's it must not reach.

Nothing here touches the machine: the caller reads `/proc/net/fib_trie`, `/proc/net/route`, `/proc/net/ipv6_route` and
`/etc/resolv.conf` and passes their text.
"""

import ipaddress
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping

# The first that no route of the host overlaps. The host's own network keeps its addresses: a VM must reach it.
_SUBNETS = ("10.0.2.0/24", "10.213.2.0/24", "172.29.213.0/24", "192.168.213.0/24", "100.119.2.0/24")
_NAME_SERVER = 3  # of the subnet: slirp4netns answers names there
_REJECT = 0x200  # of a route's flags
# Variables by which a poller connects otherwise than by default; curl reads them.
_OWN_WAY = frozenset(
    ("http_proxy", "https_proxy", "all_proxy", "curl_ca_bundle", "ssl_cert_file", "ssl_cert_dir")
)


def own_addresses(fib_trie: str) -> tuple[str, ...]:
    """The host's IPv4 addresses other than loopback, from the text of /proc/net/fib_trie; networks as `192.0.2.0/24`.

    A local route makes every address of its network the host's, also without an interface that has one of them.
    Raises ValueError if there is none at all: the text is not complete, because every host has loopback.
    """
    found = tuple(dict.fromkeys(_local_routes(fib_trie)))
    if not found:
        raise ValueError("it has no address")
    return tuple(str(each).removesuffix("/32") for each in found if not each.is_loopback)


def _local_routes(fib_trie: str) -> Iterator[ipaddress.IPv4Network]:
    """Yields the destinations of local routes, in all tables.

    A local default route of another table than the usual is a transparent proxy's, for packets that are marked. Without
    all that it leads to, a VM would have no way out.
    """
    table = address = ""
    for line in fib_trie.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            address = words[1]
        elif words[2:3] == ["LOCAL"]:
            network = ipaddress.IPv4Network(f"{address}{words[0]}")
            if network.prefixlen or table != "Id":
                yield network
        elif not line[:1].isspace():
            table = "".join(words[:1])  # `Main:`, `Local:`, or `Id` with a number


def one_of_each(own: Iterable[str]) -> tuple[str, ...]:
    """One address of each of these; of a network not its first, which could also be an address."""
    networks = [ipaddress.IPv4Network(each) for each in own]
    return tuple(str(each[each.num_addresses // 2]) for each in networks)


def free_subnet(route: str, own: Iterable[str] = ()) -> str:
    """A subnet that no route of the host overlaps, from the text of /proc/net/route, and none of its own networks."""
    taken = [_network(line.split()) for line in route.splitlines()[1:]]
    used = [network for network in taken if network is not None and network.prefixlen]
    used += [ipaddress.IPv4Network(each) for each in own]
    for text in _SUBNETS:
        if not any(ipaddress.IPv4Network(text).overlaps(network) for network in used):
            return text
    return _SUBNETS[-1]


def name_server(subnet: str) -> str:
    """The address in a VM's subnet at which names are resolved."""
    return str(ipaddress.IPv4Network(subnet)[_NAME_SERVER])


def resolv_conf(host: str, subnet: str) -> str:
    """The host's /etc/resolv.conf for a VM: the same search list, the VM's name server."""
    kept = [line for line in host.splitlines() if line.split()[:1] in (["search"], ["options"])]
    return "\n".join([f"nameserver {name_server(subnet)}", *kept, ""])


def ipv4_lack(*, names: str, route: str, ipv6_route: str) -> str:
    """Why a VM, whose own network is IPv4 only, could do less than the host: what the host has by IPv6 alone.

    `names` is the text of /etc/resolv.conf. A host without any name server or way out lacks nothing.
    """
    servers = [
        line.split()[1:2] for line in names.splitlines() if line.split()[:1] == ["nameserver"]
    ]
    if servers and all(":" in "".join(each) for each in servers):
        return "all name servers of this machine are IPv6, and a VM's own network is IPv4"
    ways = [line.split() for line in ipv6_route.splitlines()]
    if any(map(_is_way_out_by_ipv6, ways)) and not _has_way_out(route):
        return "this machine's default route is IPv6, and a VM's own network is IPv4"
    return ""


def _has_way_out(route: str) -> bool:
    """Whether there is a default route, or a half of one as VPNs add."""
    lines = [line.split() for line in route.splitlines()[1:]]
    usable = [each for each in lines if len(each) >= 8 and not int(each[3], 16) & _REJECT]
    found = [_network(each) for each in usable]
    return any(network is not None and network.prefixlen <= 1 for network in found)


def _is_way_out_by_ipv6(fields: list[str]) -> bool:
    """Whether this line of /proc/net/ipv6_route is such a route; the kernel's own last one rejects."""
    if len(fields) < 10 or int(fields[8], 16) & _REJECT or fields[9] == "lo":
        return False
    return int(fields[1], 16) <= 1 and fields[0][:1] in "08"


def is_http(url: str) -> bool:
    """Whether this is a complete URL of an HTTP server."""
    try:
        parts = urllib.parse.urlsplit(url)
        return (parts.scheme in ("http", "https") and bool(parts.hostname)) and parts.port != 0
    except ValueError:
        return False


def is_local(url: str, *, own: tuple[str, ...], host_name: str) -> bool:
    """Whether a URL names this machine, so that a VM with a network of its own cannot reach it.

    Names are compared and not resolved: of all names, only `localhost` and the machine's own are this machine.
    """
    host = (urllib.parse.urlsplit(url).hostname or "").rstrip(".")
    if host in ("localhost", host_name.lower()) or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified:
        return True
    return any(address in ipaddress.IPv4Network(each) for each in own)


def connects_its_own_way(env: Mapping[str, str]) -> bool:
    """Whether a Pod's environment gives its poller a proxy or certificates."""
    return any(value and name.lower() in _OWN_WAY for name, value in env.items())


def _network(fields: list[str]) -> ipaddress.IPv4Network | None:
    """One line of /proc/net/route; its numbers are in the machine's byte order, which is little-endian."""
    if len(fields) < 8:
        return None
    address, mask = (bytes.fromhex(fields[index])[::-1] for index in (1, 7))
    return ipaddress.IPv4Network((address, str(ipaddress.IPv4Address(mask))), strict=False)
