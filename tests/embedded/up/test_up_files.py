"""The files of a data directory: private, stable over restarts, and damage is reported with a fix."""

import base64
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runyard.embedded.up import ports, secrets
from runyard.embedded.up.hosts import host_names, wanted_isolation
from runyard.embedded.up.identity import identity
from runyard.embedded.up.layout import FORMAT, BadDirectory, Layout, default_root

RNG = random.SystemRandom()


def prepared(root: Path) -> Layout:
    layout = Layout(root)
    layout.prepare()
    return layout


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


# The directory


def test_a_data_directory_is_private_to_its_owner(tmp_path: Path) -> None:
    layout = prepared(tmp_path / "data")
    passable = 0o711 if os.geteuid() == 0 else 0o700  # for the VMs' own users
    assert mode(layout.root) == passable
    folders = {path.name: mode(path) for path in layout.root.iterdir() if path.is_dir()}
    assert folders == {"hosts": passable, "tokens": 0o700, "logs": 0o700, "images": 0o700}


def test_a_directory_that_others_could_enter_is_closed(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir(mode=0o755)
    root.chmod(0o755)
    assert not mode(prepared(root).root) & 0o066


def test_a_file_in_place_of_the_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(BadDirectory, match=r"data.*File exists.*--data DIR"):
        Layout(tmp_path / "data").prepare()


def test_a_directory_below_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadDirectory, match=r"Not a directory.*--data DIR"):
        Layout(tmp_path / "file" / "data").prepare()


_AS_A_PLAIN_USER = """
import os
from pathlib import Path
from runyard.embedded.up.layout import BadDirectory, Layout
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    Layout(Path("/not-for-plain-users")).prepare()
except BadDirectory as error:
    print(error)
"""


def test_a_directory_that_cannot_be_written_is_reported() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", _AS_A_PLAIN_USER],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "Permission denied" in printed.stdout or "Read-only file system" in printed.stdout
    assert "--data DIR" in printed.stdout


def test_a_directory_with_other_files_is_not_made_private(tmp_path: Path) -> None:
    root = tmp_path / "projects"
    root.mkdir()
    root.chmod(0o755)
    (root / "mine").write_text("")
    with pytest.raises(BadDirectory, match=r"holds other files.*--data DIR"):
        Layout(root).prepare()
    assert mode(root) == 0o755


def test_the_default_directory_follows_the_xdg_rule() -> None:
    assert default_root({"XDG_DATA_HOME": "/x/share"}) == Path("/x/share/runyard")
    assert default_root({"XDG_DATA_HOME": "relative"}) == default_root({})
    assert default_root({}) == Path.home() / ".local/share/runyard"


@pytest.mark.parametrize("found", [str(FORMAT + 1), "12345678901234567890"])
def test_a_directory_of_a_newer_version_is_not_touched(tmp_path: Path, found: str) -> None:
    layout = prepared(tmp_path / "data")
    layout.format.write_text(f"{found}\n")
    with pytest.raises(BadDirectory, match=rf"newer version .*format {found}.*--data DIR"):
        layout.prepare()
    assert layout.format.read_text() == f"{found}\n"


@pytest.mark.parametrize("text", ["", "x", "-1", "\udcff", "1.5"])
def test_a_damaged_format_is_reported_with_a_fix(tmp_path: Path, text: str) -> None:
    layout = prepared(tmp_path / "data")
    layout.format.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadDirectory, match=r"format is damaged.*Write 1 into it"):
        layout.prepare()


def test_a_directory_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    layout = prepared(tmp_path / "data")
    layout.format.unlink()
    layout.prepare()
    assert layout.format.read_text() == f"{FORMAT}\n"


def test_the_directory_of_another_user_is_refused_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = prepared(tmp_path / "data")
    layout.secrets.write_text("{}")
    monkeypatch.setattr(os, "geteuid", lambda: layout.root.stat().st_uid + 4242)
    with pytest.raises(BadDirectory, match=r"belongs to the user .* --data DIR"):
        layout.prepare()


def test_a_machine_id_is_generated_once_and_a_damaged_one_is_reported(tmp_path: Path) -> None:
    layout, other = prepared(tmp_path / "data"), prepared(tmp_path / "other")
    made = identity(layout, RNG)
    assert identity(layout, RNG) == made and made.place == str(layout.root)
    assert identity(other, RNG).id != made.id
    layout.machine_id.write_text("nobody")
    with pytest.raises(BadDirectory, match=r"machine-id is damaged.*[Rr]estore"):
        identity(layout, RNG)


# Secrets


def test_secrets_are_private_stay_the_same_and_are_not_shown(tmp_path: Path) -> None:
    layout = prepared(tmp_path / "data")
    made = secrets.load_or_make(layout, RNG)
    assert mode(layout.secrets) == 0o600
    assert secrets.load_or_make(layout, RNG) == made == secrets.load(layout)
    assert len(made.seal) == 32
    values = {getattr(made, name) for name in made.__struct_fields__}
    assert len(values) == len(made.__struct_fields__)
    assert not any(value in f"{made!r} {made} {[made]}" for value in values)


def test_two_machines_share_no_secret(tmp_path: Path) -> None:
    one, other = (secrets.load_or_make(prepared(tmp_path / name), RNG) for name in ("one", "other"))
    for name in one.__struct_fields__:
        assert getattr(one, name) != getattr(other, name), name


DAMAGE = {
    "no JSON": "{",
    "nothing": "",
    "not UTF-8": "\udcff",
    "another shape": "[]",
    "a value is missing": '{"admin_token": "x"}',
    "a value of another type": '{"admin_token": 1}',
    "a number that is none": "NaN",
}


@pytest.mark.parametrize("text", DAMAGE.values(), ids=DAMAGE)
def test_damaged_secrets_are_reported_with_a_fix(tmp_path: Path, text: str) -> None:
    layout = prepared(tmp_path / "data")
    layout.secrets.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadDirectory, match=r"secrets\.json .*[Bb]ackup"):
        secrets.load_or_make(layout, RNG)
    with pytest.raises(BadDirectory, match=r"secrets\.json"):
        secrets.load(layout)


@pytest.mark.parametrize("key", ["", "x", base64.b64encode(b"short").decode()])
def test_an_invalid_seal_key_is_reported_before_it_is_used(tmp_path: Path, key: str) -> None:
    layout = prepared(tmp_path / "data")
    made = secrets.load_or_make(layout, RNG)
    layout.secrets.write_text(layout.secrets.read_text().replace(made.seal_key, key))
    with pytest.raises(BadDirectory, match=r"secrets\.json .*backup"):
        secrets.load_or_make(layout, RNG)


def test_the_error_for_damaged_secrets_does_not_quote_them(tmp_path: Path) -> None:
    layout = prepared(tmp_path / "data")
    made = secrets.load_or_make(layout, RNG)
    layout.secrets.write_text(layout.secrets.read_text()[:-4])
    with pytest.raises(BadDirectory) as caught:
        secrets.load_or_make(layout, RNG)
    assert made.admin_token not in str(caught.value)


# Ports


def close(bound: dict[str, socket.socket]) -> dict[str, int]:
    numbers = {name: each.getsockname()[1] for name, each in bound.items()}
    for each in bound.values():
        each.close()
    return numbers


def test_ports_stay_the_same_from_start_to_start(tmp_path: Path) -> None:
    layout = prepared(tmp_path / "data")
    first = close(ports.bind(layout, host="127.0.0.1", wanted={"server": 0}))
    again = close(ports.bind(layout, host="127.0.0.1", wanted={"server": 0}))
    assert again == first
    assert set(first) == set(ports.NAMES)
    assert len(set(first.values())) == len(first)


def test_a_stored_port_that_is_in_use_is_replaced(tmp_path: Path) -> None:
    layout = prepared(tmp_path / "data")
    first = close(ports.bind(layout, host="127.0.0.1", wanted={}))
    with socket.create_server(("127.0.0.1", first["kube"])):
        other = close(ports.bind(layout, host="127.0.0.1", wanted={}))
    assert other["kube"] != first["kube"]
    assert other["server"] == first["server"]
    assert close(ports.bind(layout, host="127.0.0.1", wanted={})) == other


def test_a_requested_port_in_use_is_an_error_with_a_fix(tmp_path: Path) -> None:
    layout = prepared(tmp_path / "data")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ports.PortTaken, match=rf"127\.0\.0\.1:{port} \(server\).*--listen"):
            ports.bind(layout, host="127.0.0.1", wanted={"server": port})
    assert not layout.ports.exists()


def test_a_machine_that_could_not_start_holds_no_port(tmp_path: Path) -> None:
    layout = prepared(tmp_path / "data")
    first = close(ports.bind(layout, host="127.0.0.1", wanted={}))
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ports.PortTaken),
    ):
        ports.bind(layout, host="127.0.0.1", wanted={"github": taken.getsockname()[1]})
    with socket.create_server(("127.0.0.1", first["kube"])):
        pass


def test_each_probed_component_keeps_its_port(tmp_path: Path) -> None:
    layout, three = prepared(tmp_path / "data"), ("operator", "host-1", "host-2")
    first = ports.bind(layout, host="127.0.0.1", wanted={}, probed=three)
    assert all(each.getsockname()[0] == "127.0.0.1" for each in first.values())
    numbers = close(first)
    assert set(numbers) == {*ports.NAMES, *three} and len(set(numbers.values())) == 6
    fewer = close(ports.bind(layout, host="127.0.0.1", wanted={}, probed=three[:2]))
    assert "host-2" not in fewer
    again = close(ports.bind(layout, host="127.0.0.1", wanted={}, probed=three))
    assert again == numbers, "a host that was away for a while comes back on its port"


@pytest.mark.parametrize(
    "host", ["192.0.2.1", "no.such.host.invalid", "not an address", "::ffff:1:2:3:4:5:6:7"]
)
def test_an_address_of_another_machine_is_reported(tmp_path: Path, host: str) -> None:
    layout = prepared(tmp_path / "data")
    with pytest.raises(ports.PortTaken, match=r"cannot listen on .*--"):
        close(ports.bind(layout, host=host, wanted={}))


@pytest.mark.parametrize(
    "text", ["[]", '{"kube": "x"}', '{"kube": true}', '{"kube": 70000}', '{"kube": -1}', '"x"']
)
def test_invalid_stored_ports_are_replaced(tmp_path: Path, text: str) -> None:
    layout = prepared(tmp_path / "data")
    layout.ports.write_text(text)
    bound = close(ports.bind(layout, host="127.0.0.1", wanted={}))
    assert all(1024 <= number < 65536 for number in bound.values())


def test_a_damaged_file_of_ports_is_reported_with_a_fix(tmp_path: Path) -> None:
    layout = prepared(tmp_path / "data")
    layout.ports.write_text('{"kube": ')
    with pytest.raises(BadDirectory, match=r"ports\.json .*(Restore|Remove|remove)"):
        ports.bind(layout, host="127.0.0.1", wanted={})


# Hosts


def test_hosts_are_numbered_from_one() -> None:
    assert host_names(3) == ("host-1", "host-2", "host-3")


def test_an_unknown_isolation_is_reported() -> None:
    assert [wanted_isolation({}), wanted_isolation({"RUNYARD_ISOLATION": "none"})] == [
        "auto",
        "none",
    ]
    with pytest.raises(BadDirectory, match=r"'maximum'.*auto, host-network or none"):
        wanted_isolation({"RUNYARD_ISOLATION": "maximum"})


def test_missing_secrets_are_not_replaced_if_there_is_state_that_needs_them(
    tmp_path: Path,
) -> None:
    layout = prepared(tmp_path / "data")
    layout.kube.write_bytes(b"")
    with pytest.raises(BadDirectory, match=r"secrets.json is missing.*backup"):
        secrets.load_or_make(layout, random.Random(1))
    assert not layout.secrets.exists()
