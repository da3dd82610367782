"""`tart export`, `import` and `create`.

An export is a tar archive here, not an Apple Archive: only the stand-in reads it. `create` makes an empty Linux VM;
there is no Mac whose installer could make a macOS one.
"""

import os
import tarfile

from tests.standins.tart import errors, formatting, locks, storage
from tests.standins.tart.arguments import Command, Given
from tests.standins.tart.context import Context

EXPORT = Command("export", "name")
IMPORT = Command("import", "path name")
CREATE = Command("create", "name", {"linux": "flag", "from-ipsw": "str", "disk-size": "int"})


def export_vm(context: Context, given: Given) -> int:
    """Write `<name>.tvm` to the current directory."""
    name = given.name("name")
    context.knobs.before("export", name)
    vm = context.home.open_local(name, context.now())
    errors.say("exporting...")
    with tarfile.open(f"{name}.tvm", "w") as archive:
        for part in storage.PARTS:
            archive.add(vm.file(part), part)
    return 0


def import_vm(context: Context, given: Given) -> int:
    """Make a local VM of an export, with a new network address if its own is taken."""
    name = given.name("name")
    context.knobs.before("import", name)
    if not os.path.exists(given.name("path")):
        raise errors.no_file(os.path.basename(given.name("path")))
    errors.say("importing...")
    made = context.home.temporary(f"import-{os.urandom(8).hex()}")
    with locks.flocked(made.path), locks.flocked(context.home.lock()):
        with tarfile.open(given.name("path")) as archive:
            archive.extractall(made.path, filter="data")
        if not made.initialized:
            storage.remove(made.path)
            raise errors.other("ImportFailed: the archive holds no VM")
        if made.mac in {vm.mac for vm in context.home.locals()}:
            made.save({**made.config(), "macAddress": storage.random_mac()})
        storage.move(made.path, context.home.local(name).path)
    return 0


def create(context: Context, given: Given) -> int:
    """Make an empty Linux VM."""
    name = given.name("name")
    context.knobs.before("create", name)
    if given.flag("linux") == given.flag("from-ipsw"):
        raise errors.Usage("Please specify either a --from-ipsw or --linux option!")
    if given.flag("from-ipsw"):
        raise errors.other("the stand-in cannot install macOS; clone an image instead")
    made = context.home.temporary(f"create-{os.urandom(8).hex()}")
    with locks.flocked(made.path):
        with open(made.file("config.json"), "wb") as file:
            file.write(storage.encoded(storage.new_config(system="linux")))
        with open(made.file("disk.img"), "wb") as file:
            file.truncate(given.number("disk-size", 50) * formatting.GB)
        with open(made.file("nvram.bin"), "wb") as file:
            file.write(os.urandom(64))
        storage.move(made.path, context.home.local(name).path)
    return 0
