"""Tests what the tart driver reads: tart's lists, messages and progress, df's tables, ifconfig's interfaces."""

import json
import time
from pathlib import Path

import pytest

from runyard.vm import contract
from runyard.vm.contract import DriverFailed, VmError
from runyard.vm.tart.dialing import interface_to
from runyard.vm.tart.disk import percent_used
from runyard.vm.tart.errors import (
    DoesNotExist,
    Incomplete,
    NotRunning,
    StillRunning,
    failure,
    is_unreachable_agent,
)
from runyard.vm.tart.guest import TartGuest
from runyard.vm.tart.listing import GB, Entry, parse_list
from runyard.vm.tart.pulling import percent_of
from runyard.vm.tart.refusal import refuses_more_vms

NEW = {
    "Source": "local",
    "Name": "web-1",
    "Disk": 130,
    "Size": 72,
    "Accessed": "2026-06-26T08:00:00Z",
    "Running": True,
    "State": "running",
}
READ = Entry(name="web-1", local=True, running=True, bytes=72 * GB, accessed=1782460800.0)


NO_AGENT = "Failed to connect to the VM using its control socket"


def without(*keys: str, **more: object) -> dict[str, object]:
    return {**{key: value for key, value in NEW.items() if key not in keys}, **more}


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        pytest.param(NEW, READ, id="2.32"),
        pytest.param(
            without("Accessed", SizeOnDisk=71),
            Entry(name="web-1", local=True, running=True, bytes=71 * GB),
            id="before 2.31",
        ),
        pytest.param(without(Size="72.000"), READ, id="the size is a text"),
        pytest.param(
            without("Accessed", Size=None, More=[1]),
            Entry(name="web-1", local=True, running=True),
            id="no size, a new key",
        ),
        pytest.param(without("Running"), READ, id="only the state"),
        pytest.param(without("State"), READ, id="only Running"),
        pytest.param(
            without(Source="OCI", Running=False, State="stopped", Accessed="yesterday"),
            Entry(name="web-1", local=False, bytes=72 * GB),
            id="an image, with a date that cannot be read",
        ),
    ],
)  # fmt: skip
def test_both_generations_of_the_list_are_read(element: dict[str, object], expected: Entry) -> None:
    assert parse_list(json.dumps([element]).encode()) == (expected,)


def test_swifts_way_of_printing_is_read() -> None:
    assert parse_list(b"[\n\n]\n") == ()
    text = b'[\n  {\n    "Name" : "ghcr.io\\/a\\/b@sha256:1",\n    "Source" : "OCI",\n    "Running" : false\n  }\n]'
    assert parse_list(text)[0].name == "ghcr.io/a/b@sha256:1"


@pytest.mark.parametrize(
    "output",
    [b"", b"[", b"{}", b"Source Name\n", b'[{"Name": "a"}]', b'[{"Name": "a", "Source": "local"}]',
     json.dumps([without(Running="yes")]).encode()],
)  # fmt: skip
def test_an_output_that_is_no_list_is_an_error_and_not_an_empty_host(output: bytes) -> None:
    with pytest.raises(DriverFailed, match="tart list"):
        parse_list(output)


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (2, 'the specified VM "a" does not exist', DoesNotExist),
        (1, 'Error: the specified VM "a" does not exist', DoesNotExist),
        (2, 'VM "a" is not running', NotRunning),
        (2, 'VM "a" is already running!', StillRunning),
        (1, 'VM "a" is running', StillRunning),
        (1, "VM is missing some of its files (config.json, disk.img or nvram.bin)", Incomplete),
        (1, "no IP address found, is your VM running?", contract.Unreachable),
        (1, "The number of VMs exceeds the system limit (other running VMs: a, b)", contract.SlotsFull),
        (1, f"{NO_AGENT}: x, is the Tart Guest Agent running?", contract.Unreachable),
        (1, "Error: The file “disk.img” couldn’t be saved because there isn’t enough space.", contract.NoSpace),
        (1, "Error: The file couldn't be saved because there isn't enough space.", contract.NoSpace),
        (1, "Error: write: No space left on device", contract.NoSpace),
        (1, "Error: database or disk is full", contract.NoSpace),
        (1, "You can’t save the file “disk.img” because the volume “Macintosh HD” is out of space.", contract.NoSpace),
        (1, "Error: there isn’t enough free disk space", contract.NoSpace),
        (1, 'Error: UnexpectedHTTPStatusCode(when: "x", code: 404, details: "does not exist")', contract.ImageMissing),
        (1, 'Error: UnexpectedHTTPStatusCode(when: "x", code: 503, details: "code: 404")', contract.Unreachable),
        (1, 'Error: UnexpectedHTTPStatusCode(when: "pulling", code: 404, details: "{}")', contract.ImageMissing),
        (1, 'Error: UnexpectedHTTPStatusCode(when: "pulling manifest", code: 401, details: "")', contract.Unauthorized),
        (1, 'Error: CredentialsNotFound(host: "ghcr.io")', contract.Unauthorized),
        (1, 'Error: UnexpectedHTTPStatusCode(when: "pulling blob", code: 503, details: "")', contract.Unreachable),
        (1, 'Error: UnexpectedHTTPStatusCode(when: "pulling blob", code: 429, details: "")', contract.Unreachable),
        (1, "Error: A server with the specified hostname could not be found.", contract.Unreachable),
        (1, "Error: Could not connect to the server.", contract.Unreachable),
        (1, "Error: The file “nvram.bin” couldn’t be opened because there is no such file.", DriverFailed),
        (64, "Error: Unknown option '--frob'", DriverFailed),
        (1, "", DriverFailed),
    ],
)  # fmt: skip
def test_a_message_of_tart_becomes_a_typed_error(
    code: int, message: str, kind: type[VmError]
) -> None:
    found = failure("clone of a", code, message)
    assert type(found) is kind
    assert "clone of a" in str(found) and message[:30] in str(found)


def test_a_registrys_long_answer_hides_why_it_refused() -> None:
    page = "\n".join(["<p>down for maintenance</p>"] * 100)
    error = f'pulling manifest...\nError: UnexpectedHTTPStatusCode(when: "x", code: 503, details: "{page}")'
    found = failure("pull of a", 1, error)
    assert type(found) is contract.Unreachable
    assert "pull of a: Error: UnexpectedHTTPStatusCode" in str(found) and len(str(found)) < 1000


def test_a_registrys_answer_holds_the_agent_up_while_it_is_read() -> None:
    status = "UnexpectedHTTPStatusCode("
    began = time.process_time()
    found = failure("pull of a", 1, f'{status}when: "x", code: 418, details: "{status * 10_000}"')
    assert time.process_time() - began < 2.0
    assert type(found) is DriverFailed


def test_a_guest_that_prints_tarts_refusal_was_not_refused() -> None:
    refusal = "The number of VMs exceeds the system limit (other running VMs: a, b)\n"
    assert refuses_more_vms(refusal)
    assert refuses_more_vms(f"There is already a running VM with the same MAC address!\n{refusal}")
    assert not refuses_more_vms("line\n" * 10 + refusal)
    assert not refuses_more_vms(f"a job says: {refusal}")
    assert not refuses_more_vms("")


ADDRESS = b"VNC server is running at vnc://:apple-pear@127.0.0.1:5999\nnext vn"


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_password_is_hidden_however_its_line_arrives(tmp_path: Path, size: int) -> None:
    guest = TartGuest(str(tmp_path / "vm" / "state"), {})
    pieces = [ADDRESS[start : start + size] for start in range(0, len(ADDRESS), size)]
    shown = b"".join(guest.visible(piece) for piece in pieces) + guest.visible(b"")
    assert shown == ADDRESS.replace(b"apple-pear", b"REDACTED")


def test_output_without_a_password_is_not_held_back(tmp_path: Path) -> None:
    guest = TartGuest(str(tmp_path / "vm" / "state"), {})
    for text in (b"login: ", b"vnc://" + b"x" * 300, b"see vnc://host for more\n"):
        assert guest.visible(text) == text


def test_only_tarts_own_complaint_means_that_the_agent_is_away() -> None:
    complaint = f"{NO_AGENT}: x"
    assert is_unreachable_agent(complaint)
    assert is_unreachable_agent(f"Error: {complaint}")
    assert not is_unreachable_agent(f"my job says: {complaint}")


@pytest.mark.parametrize(
    ("line", "percent"),
    [
        ("0%", 0),
        ("42%", 42),
        (" 99.5 % ", 99.5),
        ("100%", 100),
        ("disk: 37%", 37),
        ("50% of the disk", 50),
        ("\x1b[1A\x1b[2K60%\x1b[0m", 60),
        ("pulling…", None),
        ("layer 3 of 7: 12%", None),  # whose percentage it is cannot be known
        ("Error: the volume is 100% full", None),
    ],
)
def test_only_a_percentage_is_progress(line: str, percent: float | None) -> None:
    assert percent_of(line) == percent


MACOS = """Filesystem     1024-blocks      Used Available Capacity iused      ifree %iused  Mounted on
/dev/disk3s1s1   100000  11000 20000    37%  404167 1024000    0%   /
"""
LINUX = """Filesystem     1K-blocks     Used Available Use% Mounted on
overlay        200 50 50  50% /
"""


@pytest.mark.parametrize(
    ("table", "percent"),
    [
        pytest.param(MACOS, 80.0, id="a sealed volume shows less than is used"),
        pytest.param(LINUX, 75.0, id="linux"),
        pytest.param("Filesystem\n/dev/a disk with spaces 10 9 -1 110% /\n", 100.0, id="overfull"),
    ],
)
def test_the_used_part_of_a_volume_is_what_is_not_available(table: str, percent: float) -> None:
    assert percent_used(table.encode()) == percent


@pytest.mark.parametrize(
    "output",
    ["", "Filesystem 1024-blocks\n", "\n\n", "x\ny\n", "Filesystem\n/dev/a 0 0 0 0% /\n", "F\n/dev/a x y z 5% /\n"],
)  # fmt: skip
def test_an_unreadable_table_is_an_error_and_never_zero(output: str) -> None:
    with pytest.raises(DriverFailed, match="df"):
        percent_used(output.encode())


IFCONFIG = """lo0: flags=8049<UP,LOOPBACK,RUNNING,MULTICAST> mtu 16384
\tinet 127.0.0.1 netmask 0xff000000
\tinet6 ::1 prefixlen 128
en0: flags=8863<UP,BROADCAST,SMART,RUNNING> mtu 1500
\tinet 192.168.0.20 netmask 0xffff0000 broadcast 192.168.255.255
\tinet6 fe80::1c%en0 prefixlen 64 secured scopeid 0xb
bridge100: flags=8a63<UP,BROADCAST,SMART,RUNNING> mtu 1500
\tinet 192.168.64.1 netmask 0xffffff00 broadcast 192.168.64.255
\tinet6 fd00:1::1 prefixlen 64
bridge101: flags=8822<BROADCAST,SMART> mtu 1500
\tinet 192.168.65.1 netmask 0xffffff00 broadcast 192.168.65.255
utun3: flags=8051<UP,POINTOPOINT> mtu 1280
\tinet 100.90.1.2 --> 100.90.1.2 netmask 0xffffffff
"""


@pytest.mark.parametrize(
    ("address", "interface"),
    [
        pytest.param("192.168.64.7", "bridge100", id="the smallest network wins"),
        pytest.param("192.168.65.7", "en0", id="an interface that is down is left out"),
        pytest.param("fd00:1::7", "bridge100", id="IPv6"),
        pytest.param("100.90.1.2", "utun3", id="a tunnel"),
        pytest.param("10.0.0.1", "", id="none"),
    ],
)
def test_the_interface_is_the_one_whose_network_has_the_address(
    address: str, interface: str
) -> None:
    assert interface_to(address, IFCONFIG) == interface
