"""The stand-in tart answers as tart 2.32.1 does: messages, exit codes, JSON."""

import json
import stat
from pathlib import Path

import pytest
from tests.standins.tart import storage
from tests.standins.tart.helper import StandIn

MISSING = 'the specified VM "gone" does not exist\n'


@pytest.mark.parametrize(
    ("argv", "code", "err"),
    [
        (["get", "gone"], 2, MISSING),
        (["ip", "gone"], 2, MISSING),
        (["set", "gone", "--cpu", "8"], 2, MISSING),
        (["stop", "gone"], 2, MISSING),
        (["exec", "gone", "true"], 2, MISSING),
        (["delete", "gone"], 2, MISSING),
        (["clone", "gone", "new"], 2, MISSING),
        (["rename", "gone", "new"], 2, MISSING),
        (["run", "gone"], 1, f"Error: {MISSING}"),
        (["stop", "idle"], 2, 'VM "idle" is not running\n'),
        (["exec", "idle", "true"], 2, 'VM "idle" is not running\n'),
        (["ip", "idle"], 1, "no IP address found, is your VM running?\n"),
        (
            ["get", "half"],
            1,
            "VM is missing some of its files (config.json, disk.img or nvram.bin)\n",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_failure_has_another_text_or_code(
    tart: StandIn, argv: list[str], code: int, err: str
) -> None:
    tart.create("idle")
    Path(tart.create("half").file("nvram.bin")).unlink()
    done = tart.call(*argv)
    assert (done.code, done.out, done.err) == (code, "", err)


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["list", "--colour"], "Unknown option '--colour'"),
        (["list", "extra"], "Unexpected argument 'extra'"),
        (["list", "--format", "yaml"], "The value 'yaml' is invalid for '--format <format>'"),
        (["get"], "Missing expected argument '<name>'"),
        (["ip", "idle", "--wait"], "Missing value for '--wait <wait>'"),
        (["ip", "idle", "--wait", "soon"], "The value 'soon' is invalid for '--wait <wait>'"),
        (["clone", "idle", "a/b"], "<new-name> should be a local name"),
        (["exec", "-x", "idle", "true"], "Unknown option '-x'"),
        (
            ["run", "idle", "--vnc", "--vnc-experimental"],
            "--vnc and --vnc-experimental are mutually exclusive",
        ),
        (
            ["run", "idle", "--dir", "/a", "--dir", "/b"],
            "--dir: when using multiple directories, each must have a name",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_arguments_are_accepted(tart: StandIn, argv: list[str], problem: str) -> None:
    tart.create("idle")
    done = tart.call(*argv)
    assert done.code == 64
    assert done.err.startswith(f"Error: {problem}\nUsage: tart {argv[0]}")


def test_an_unknown_command_is_accepted(tart: StandIn) -> None:
    assert tart.call("explode").code == 64
    assert tart.call("--version").out == "2.32.1\n"


LIST_KEYS = {"Source", "Name", "Disk", "Size", "Accessed", "Running", "State"}


def rows(tart: StandIn, *options: str) -> dict[str, dict[str, object]]:
    done = tart.call("list", "--format", "json", *options)
    return {row["Name"]: row for row in json.loads(done.out)}


def test_the_list_has_other_keys_or_types_or_another_order(tart: StandIn) -> None:
    tart.create("b", disk_bytes=130 * 10**9)
    tart.create("a")
    by_digest = tart.image("registry.test:5000/acme/macos:one")
    found = rows(tart)
    assert list(found) == ["a", "b", "registry.test:5000/acme/macos:one", by_digest]
    assert set(found["b"]) == LIST_KEYS
    assert found["b"]["Disk"] == 130 and found["b"]["Size"] == 0
    assert (found["a"]["Source"], found[by_digest]["Source"]) == ("local", "OCI")
    assert (found["a"]["Running"], found["a"]["State"]) == (False, "stopped")
    assert list(rows(tart, "--source", "local")) == ["a", "b"]
    assert list(rows(tart, "--source", "oci")) == ["registry.test:5000/acme/macos:one", by_digest]
    assert tart.call("list", "-q", "--source", "local").out == "a\nb\n"


def test_json_is_not_printed_as_swift_prints_it(tart: StandIn) -> None:
    assert tart.call("list", "--format", "json").out == "[\n\n]\n"
    tart.image("registry.test/acme/macos:one")
    text = tart.call("list", "--format", "json").out
    assert '"Running" : false' in text
    assert "registry.test\\/acme\\/macos:one" in text


def test_a_size_of_get_is_a_number(tart: StandIn) -> None:
    tart.create("a", disk_bytes=10**9)
    found = tart.call("get", "a", "--format", "json").json()
    assert found == {
        "OS": "darwin",
        "CPU": 4,
        "Memory": 8192,
        "Disk": 1,
        "DiskFormat": "raw",
        "Size": found["Size"],
        "Display": "1024x768",
        "Running": False,
        "State": "stopped",
    }
    assert isinstance(found["Size"], str) and len(found["Size"].partition(".")[2]) == 3


def test_the_generation_before_2_31_cannot_be_had(tart: StandIn) -> None:
    tart.create("a")
    tart.set("old-json")
    (found,) = rows(tart).values()
    assert set(found) == (LIST_KEYS - {"Accessed"}) | {"SizeOnDisk"}


def test_a_directory_without_all_three_files_is_listed(tart: StandIn) -> None:
    Path(tart.create("half").file("nvram.bin")).unlink()
    assert rows(tart) == {}


def test_a_clone_keeps_an_existing_target(tart: StandIn) -> None:
    tart.create("golden", disk=b"new")
    tart.create("a", disk=b"old")
    assert tart.call("clone", "golden", "a").code == 0
    assert Path(tart.storage.local("a").file("disk.img")).read_bytes() == b"new"


def test_a_clone_takes_the_space_of_its_holes(tart: StandIn) -> None:
    tart.create("golden", disk_bytes=10**9)
    tart.call("clone", "golden", "a")
    assert tart.storage.local("a").logical() == 10**9
    assert tart.storage.local("a").allocated() < 10**6


def test_a_clone_shares_the_address_of_a_local_source_or_changes_that_of_an_image(
    tart: StandIn,
) -> None:
    tart.create("golden")
    by_digest = tart.image("registry.test/acme/macos:one")
    tart.call("clone", "golden", "a")
    tart.call("clone", by_digest, "b")
    tart.call("clone", by_digest, "c")
    macs = {name: tart.storage.local(name).mac for name in ("golden", "a", "b", "c")}
    assert len(set(macs.values())) == 4
    image = storage.remote(by_digest)
    assert image is not None
    assert tart.storage.image(image).mac == macs["b"]
    serials = {tart.storage.local(name).config()["ecid"] for name in ("b", "c")}
    assert len(serials) == 1


def test_set_keeps_what_it_was_asked_to_change(tart: StandIn) -> None:
    before = tart.create("a").config()
    options = ["--cpu", "6", "--memory", "9000", "--display", "800x600px", "--disk-size", "1"]
    assert tart.call("set", "a", *options, "--random-mac", "--random-serial").code == 0
    after = tart.storage.local("a").config()
    assert (after["cpuCount"], after["memorySize"]) == (6, 9000 << 20)
    assert after["display"] == {"width": 800, "height": 600, "unit": "px"}
    assert after["ecid"] != before["ecid"] and after["macAddress"] != before["macAddress"]
    assert tart.storage.local("a").logical() == 10**9


def test_set_goes_below_the_minimum(tart: StandIn) -> None:
    tart.create("a")
    done = tart.call("set", "a", "--cpu", "1")
    assert done.code == 1
    assert done.err == (
        "Error: LessThanMinimalResourcesError: VM should have 4 CPU cores at minimum"
        " (requested 1)\n"
    )


def test_a_deleted_tag_leaves_its_image_behind(tart: StandIn) -> None:
    by_digest = tart.image("registry.test/acme/macos:one")
    tag = storage.remote("registry.test/acme/macos:two")
    image = storage.remote(by_digest)
    assert tag is not None and image is not None
    tart.storage.link(tag, image)
    assert tart.call("delete", "registry.test/acme/macos:one").code == 0
    assert by_digest in rows(tart)
    assert tart.call("delete", "registry.test/acme/macos:two").code == 0
    assert rows(tart) == {}


def test_an_image_that_was_pulled_by_digest_is_collected(tart: StandIn) -> None:
    by_digest = tart.image("registry.test/acme/macos:one")
    image = storage.remote(by_digest)
    assert image is not None
    Path(tart.storage.image(image).file(storage.EXPLICIT)).touch()
    tart.call("delete", "registry.test/acme/macos:one")
    assert list(rows(tart)) == [by_digest]


@pytest.mark.parametrize("command", [["list"], ["get", "a"], ["ip", "a"], ["stop", "a"]])
def test_what_a_killed_pull_left_survives(tart: StandIn, command: list[str]) -> None:
    left = tart.home / "tmp" / "0123456789abcdef"
    left.mkdir()
    tart.call(*command)
    assert not left.exists()


def test_a_clone_wipes_what_a_pull_left(tart: StandIn) -> None:
    tart.create("a")
    left = tart.home / "tmp" / "0123456789abcdef"
    left.mkdir()
    tart.call("clone", "a", "b")
    assert left.exists()


def test_a_login_leaves_a_password_that_others_can_read(tart: StandIn) -> None:
    options = ["--username", "ci", "--password-stdin", "--no-validate"]
    assert tart.call("login", "registry.test", *options, stdin=b"made-up\n").code == 0
    keychain = tart.home / "keychain"
    assert stat.S_IMODE(keychain.stat().st_mode) == 0o600
    assert "made-up" not in (tart.home / "journal").read_text()
    assert tart.call("logout", "registry.test").code == 0
    assert keychain.read_text() == "{}"


def test_an_export_cannot_be_imported(tart: StandIn, tmp_path: Path) -> None:
    tart.create("a", disk=b"content")
    process = tart.popen("export", "a", cwd=tmp_path)
    process.communicate()
    assert tart.call("import", str(tmp_path / "a.tvm"), "b").code == 0
    assert Path(tart.storage.local("b").file("disk.img")).read_bytes() == b"content"
    assert tart.storage.local("a").mac != tart.storage.local("b").mac


def test_prune_deletes_what_was_used_lately(tart: StandIn) -> None:
    old, new = tart.image("registry.test/acme/a:one"), tart.image("registry.test/acme/b:one")
    image = storage.remote(old)
    assert image is not None
    tart.storage.image(image).touch(1_000_000_000)
    assert tart.call("prune").code == 64
    assert tart.call("prune", "--older-than", "7").code == 0
    assert list(rows(tart)) == ["registry.test/acme/b:one", new]
    assert tart.call("prune", "--space-budget", "0").code == 0
    assert rows(tart) == {}


def test_pruning_deletes_images_although_it_is_forbidden(tart: StandIn) -> None:
    tart.create("a", disk_bytes=10**9)
    tart.image("registry.test/acme/a:one")
    tart.set("free-bytes", 10**9 - 2 * 10**4)
    assert tart.call("clone", "a", "b", TART_NO_AUTO_PRUNE="").code == 0
    assert len(rows(tart, "--source", "oci")) == 2
