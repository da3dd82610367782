"""The commands that show and change VMs on this host."""

import os
import signal

from tests.standins.tart import errors, formatting, knobs, leases, locks, pruning, storage
from tests.standins.tart.arguments import Command, Given
from tests.standins.tart.context import Context
from tests.standins.tart.storage import Vm

LIST = Command(
    "list", options={"source": "str", "format": "str", "quiet": "flag"}, short={"q": "quiet"}
)
GET = Command("get", "name", {"format": "str"})
CLONE = Command(
    "clone",
    "source-name new-name",
    {"insecure": "flag", "concurrency": "int", "prune-limit": "int", "deduplicate": "flag"},
)
SET = Command(
    "set",
    "name",
    {
        **dict.fromkeys(("cpu", "memory", "disk-size"), "int"),
        **dict.fromkeys(("display", "disk"), "str"),
        **dict.fromkeys(("random-mac", "random-serial", "display-refit"), "flag"),
    },
)
STOP = Command("stop", "name", {"timeout": "int"}, short={"t": "timeout"})
SUSPEND = Command("suspend", "name")
DELETE = Command("delete", "name...")
RENAME = Command("rename", "name new-name")
IP = Command("ip", "name", {"wait": "int", "resolver": "str"})


def choice(given: Given, option: str, allowed: tuple[str, ...]) -> str:
    """An option's value, one of these; the first is the default."""
    value = given.text(option, allowed[0])
    if value not in allowed:
        raise errors.Usage(f"The value '{value}' is invalid for '--{option} <{option}>'")
    return value


def show_list(context: Context, given: Given) -> int:
    """`tart list`."""
    source = choice(given, "source", ("", "local", "oci"))
    style = choice(given, "format", ("text", "json"))
    context.knobs.before("list")
    rows = []
    if source != "oci":
        rows += [formatting.listed(vm, "local") for vm in context.home.locals()]
    if source != "local":
        rows += [formatting.listed(vm, "OCI") for vm in context.home.images()]
    if given.flag("quiet"):
        for row in rows:
            errors.say(str(row["Name"]))
    elif style == "json":
        formatting.print_json(context.knobs, rows)
    else:
        columns = ["Source", "Name", "Disk", "Size", "Accessed", "State"]
        formatting.print_table(rows, columns)
    return 0


def show_one(context: Context, given: Given) -> int:
    """`tart get`."""
    style = choice(given, "format", ("text", "json"))
    context.knobs.before("get", given.name("name"))
    row = formatting.described(context.home.open_local(given.name("name"), context.now()))
    if style == "json":
        formatting.print_json(context.knobs, row)
    else:
        formatting.print_table([row], ["OS", "CPU", "Memory", "Disk", "Size", "Display", "State"])
    return 0


def clone(context: Context, given: Given) -> int:
    """`tart clone`: pulls an absent source first, and replaces a VM of the new name without a word."""
    name, new = given.name("source-name"), given.name("new-name")
    if "/" in new:
        raise errors.Usage("<new-name> should be a local name")
    context.knobs.before("clone", new)
    source = source_vm(context, given, name)
    made = context.home.temporary(f"clone-{os.urandom(8).hex()}")
    held = locks.try_flock(made.path)
    try:
        with locks.flocked(context.home.lock()):
            for part in storage.PARTS:
                storage.copy_sparse(source.file(part), made.file(part))
            if context.knobs.take("no-space-clone", new) is not None:
                raise errors.no_space()
            _copy_guest_disk(source, made)
            if source.mac in {vm.mac for vm in context.home.locals()}:
                made.save({**made.config(), "macAddress": storage.random_mac()})
            storage.move(made.path, context.home.local(new).path)
    finally:
        storage.remove(made.path)
        if held is not None:
            os.close(held)
    limit = given.number("prune-limit", 100) * formatting.GB
    unallocated = max(0, source.logical() - source.allocated())
    pruning.make_space(context, min(unallocated, limit), keep=source.path)
    return 0


def source_vm(context: Context, given: Given, name: str) -> Vm:
    """The VM to clone: a local one, or an image, which is pulled if it is absent."""
    remote = storage.remote(name)
    if remote is None:
        return context.home.open_local(name, context.now())
    if not context.home.image(remote).initialized:
        from tests.standins.tart import pulling  # noqa: PLC0415 - slow to import

        pulling.pull(context, remote, insecure=given.flag("insecure"))
    return context.home.open_image(remote, context.now())


def _copy_guest_disk(source: Vm, made: Vm) -> None:
    """What a guest of the source has written to its disk is in the copy."""
    if os.path.isdir(source.file(storage.GUEST_DISK)):
        import shutil  # noqa: PLC0415 - seldom needed, slow to import

        shutil.copytree(
            source.file(storage.GUEST_DISK), made.file(storage.GUEST_DISK), symlinks=True
        )


def change(context: Context, given: Given) -> int:
    """`tart set`: always rewrites the settings, whether the VM runs or not."""
    name = given.name("name")
    context.knobs.before("set", name)
    vm = context.home.open_local(name, context.now())
    config = vm.config()
    config.pop("displayRefit", None)
    if given.flag("display-refit"):
        config["displayRefit"] = True
    _resize(given, config)
    if given.flag("display"):
        config["display"] = _display(given.text("display"))
    if given.flag("random-mac"):
        config["macAddress"] = storage.random_mac()
    if given.flag("random-serial"):
        config["ecid"] = storage.random_serial()
    vm.save(config)
    if given.flag("disk"):
        storage.copy_sparse(given.text("disk"), vm.file("disk.img"))
    if given.flag("disk-size"):
        wanted = given.number("disk-size", 0) * formatting.GB
        if wanted < vm.logical():
            raise errors.other("The new disk size should be larger than the current one.")
        os.truncate(vm.file("disk.img"), wanted)
    return 0


def _resize(given: Given, config: dict[str, object]) -> None:
    for option, key, what, factor in (
        ("cpu", "cpuCount", "CPU cores", 1),
        ("memory", "memorySize", "bytes", 1 << 20),
    ):
        if not given.flag(option):
            continue
        wanted, least = given.number(option, 0) * factor, int(str(config[f"{key}Min"]))
        if wanted < least:
            raise errors.other(
                f"LessThanMinimalResourcesError: VM should have {least} {what} at minimum"
                f" (requested {wanted})"
            )
        config[key] = wanted


def _display(text: str) -> dict[str, object]:
    unit = next((unit for unit in ("px", "pt") if text.endswith(unit)), "")
    width, _, height = text.removesuffix(unit).partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        raise errors.Usage(f"The value '{text}' is invalid for '--display <display>'")
    display: dict[str, object] = {"width": int(width), "height": int(height)}
    return {**display, "unit": unit} if unit else display


def stop(context: Context, given: Given) -> int:
    """`tart stop`: SIGINT to the process that holds the lock, SIGKILL after the timeout."""
    name = given.name("name")
    context.knobs.before("stop", name)
    vm = context.home.open_local(name, context.now())
    if vm.state == "suspended":
        os.unlink(vm.file("state.vzvmsave"))
        return 0
    pid = vm.pid
    if not pid:
        raise errors.not_running(name)
    os.kill(pid, signal.SIGINT)
    until = knobs.monotonic() + given.number("timeout", 30)
    while knobs.monotonic() < until:
        if not vm.pid:
            return 0
        knobs.pause(0.1)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    while vm.pid:
        knobs.pause(0.01)
    return 0


def suspend(context: Context, given: Given) -> int:
    """`tart suspend`: SIGUSR1 to the process that holds the lock."""
    name = given.name("name")
    context.knobs.before("suspend", name)
    vm = context.home.open_local(name, context.now())
    pid = vm.pid
    if not pid:
        raise errors.not_running(name)
    os.kill(pid, signal.SIGUSR1)
    return 0


def delete(context: Context, given: Given) -> int:
    """`tart delete`, of VMs and images."""
    for name in given.names["name"]:
        context.knobs.before("delete", name)
        remote = storage.remote(name)
        if remote is None:
            _delete_local(context, name)
            continue
        image = context.home.image(remote)
        if not os.path.lexists(image.path):
            raise errors.missing(name)
        storage.remove(image.path)
        context.home.collect()
    return 0


def _delete_local(context: Context, name: str) -> None:
    vm = context.home.local(name)
    if "/" in name or not os.path.isdir(vm.path):
        raise errors.missing(name)
    if os.path.exists(vm.file("config.json")):
        lock = locks.try_lock(vm.file("config.json"))
        if lock is None:
            raise errors.locked(name)
        storage.remove(vm.path)
        os.close(lock)
    else:
        storage.remove(vm.path)


def rename(context: Context, given: Given) -> int:
    """`tart rename`."""
    name, new = given.name("name"), given.name("new-name")
    if "/" in new:
        raise errors.Usage("<new-name> should be a local name")
    context.knobs.before("rename", name)
    vm = context.home.open_local(name, context.now())
    if os.path.isdir(context.home.local(new).path):
        raise errors.other("failed to rename a local VM: a VM with the new name already exists!")
    storage.move(vm.path, context.home.local(new).path)
    return 0


def show_ip(context: Context, given: Given) -> int:
    """`tart ip`: one try, and one each second while `--wait` lasts."""
    name = given.name("name")
    resolver = choice(given, "resolver", ("dhcp", "arp", "agent"))
    context.knobs.before("ip", name)
    vm = context.home.open_local(name, context.now())
    until = knobs.monotonic() + given.number("wait", 0)
    while True:
        found = _resolve(context, vm, resolver)
        if found is not None:
            errors.say(found)
            return 0
        if knobs.monotonic() >= until:
            break
        knobs.pause(min(1.0, until - knobs.monotonic()))
    hint = "" if vm.pid else ", is your VM running?"
    if resolver == "arp" and vm.config()["os"] == "linux":
        hint += " (not all Linux distributions are compatible with the ARP resolver)"
    raise errors.Failure(f"no IP address found{hint}")


def _resolve(context: Context, vm: Vm, resolver: str) -> str | None:
    """The lease outlives the VM; the other two resolvers need it to run."""
    if resolver != "dhcp" and not vm.pid:
        return None
    if resolver == "agent" and not _agent_answers(vm):
        return None
    return leases.address(context.knobs, vm.mac, context.now())


def _agent_answers(vm: Vm) -> bool:
    from tests.standins.tart import execute  # noqa: PLC0415 - slow to import: it brings sockets

    try:
        with execute.connect(vm) as link:
            link.sendall(execute.frames.frame(b"H", b'{"ask": "address"}'))
            return bool(link.recv(1))
    except (OSError, errors.Failure):
        return False
