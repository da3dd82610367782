"""The identity of this machine: a name generated once, for a database that other machines can reach too."""

import random
import re

from runyard.db.owner import Owner
from runyard.embedded.up.layout import BadDirectory, Layout
from runyard.files import write_whole

_ID = re.compile(r"[0-9a-f]{32}")


def identity(layout: Layout, rng: random.Random) -> Owner:
    """This machine's identity; the first call generates it. `rng` must be the system's generator."""
    try:
        found = layout.machine_id.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        found = rng.randbytes(16).hex()
        write_whole(layout.machine_id, f"{found}\n")
    if not _ID.fullmatch(found):
        raise BadDirectory(
            f"{layout.machine_id} is damaged: it contains no machine id. Restore it from a backup, or"
            " remove it to generate another one; a database of DATABASE_URL then treats this as another machine"
        )
    return Owner(found, str(layout.root))
