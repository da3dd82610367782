"""Every file of the data directory, missing, empty or cut: a start refuses it with the fix, or loses nothing by it.

The table has a row for each path of the layout. `test_up_damage` shows the same with the whole program.
"""

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from runyard.clock import RealClock
from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.store import RecordStore, StoreError
from runyard.embedded.kube.storage.journal import Journal, JournalError, Row
from runyard.embedded.up import ports, stores
from runyard.embedded.up.identity import identity
from runyard.embedded.up.layout import BadDirectory, Layout
from runyard.embedded.up.restarts import RestartRecord
from runyard.embedded.up.secrets import Secrets, load_or_make
from runyard.embedded.up.token_files import ensure_token
from runyard.embedded.up.trust import authority, has_authority
from runyard.files import write_whole
from runyard.http.tls import TlsError
from runyard.telemetry.log import get_logger

NOW = 1.8e9
ALL = stores.in_use(practice=True, database=True)
REFUSALS = (BadDirectory, TlsError, JournalError, StoreError)


def begin(layout: Layout) -> Secrets:
    """What a start reads before and while its components start, in its order."""
    rng = random.Random(1)
    layout.prepare()
    secrets = load_or_make(layout, rng)
    stores.check(layout, ALL)
    ensure_token(layout.dashboard_token, rng, first=secrets.dashboard_token)
    ensure_token(layout.metrics_token, rng)
    RestartRecord(layout.restarts, clock=RealClock(), log=get_logger("test"))
    for sock in ports.bind(layout, host="127.0.0.1", wanted={}).values():
        sock.close()
    identity(layout, rng)
    authority(layout, now=NOW)
    journal = Journal(layout.kube)
    try:
        journal.load()
        journal.commit(40, [Row("pools", "", f"p{n}", n, b"x" * 900) for n in range(40)])
    finally:
        journal.close()
    _practice(layout, secrets)
    return secrets


def _practice(layout: Layout, secrets: Secrets) -> None:
    async def main() -> None:
        store = RecordStore(layout.github)
        try:
            app = PracticeApp(app_id=1, public_key=secrets.app_public_key, webhook_secret="s")
            core = GithubCore(clock=RealClock(), rng=random.Random(1), app=app, store=store)
            if not core.jobs():
                core.install("acme")
                core.add_repo("acme/app")
                for _ in range(40):
                    core.queue_job("acme/app", ("linux",))
            await core.settle()
        finally:
            store.close()

    asyncio.run(main())


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as a machine leaves it, without processes."""
    layout = Layout(tmp_path_factory.mktemp("machine") / "data")
    begin(layout)
    paths = (layout.kubeconfig, layout.urls, layout.token("server"), layout.log("server"))
    for path in (*paths, layout.restarts):
        write_whole(path, "text\n")
    for folder in (layout.postgres, layout.blobs, layout.scratch, layout.host("host-1")):
        folder.mkdir(parents=True)
        (folder / "content").write_text("text\n")
    (layout.images / "image").mkdir()
    stores.record(layout, ALL)
    return layout.root


@pytest.fixture
def layout(sound: Path, tmp_path: Path) -> Layout:
    copy = tmp_path / "data"
    shutil.copytree(sound, copy)
    return Layout(copy)


def missing(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def empty(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
        path.mkdir()
    else:
        path.write_bytes(b"")


def cut(path: Path) -> None:
    if path.is_file():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGES: dict[str, Callable[[Path], None]] = {"missing": missing, "empty": empty, "cut": cut}
NEVER = ""
# Property of the layout → the damages that a start refuses. The other damages cost nothing that cannot be made again.
TABLE = {
    "kubeconfig": NEVER,  # written at each start
    "secrets": "missing empty cut",
    "tls": NEVER,  # a new authority, which is reported; its files are below
    "ports": "empty cut",
    "urls": NEVER,  # written at each start
    "format": "empty",
    "machine_id": "empty cut",
    "stores": "empty cut",
    "dashboard_token": "empty",  # cut, it is another token
    "metrics_token": "empty",
    "restarts": NEVER,  # only what the dashboard shows of the past
    "kube": "missing empty cut",
    "github": "missing empty cut",
    "postgres": "missing empty",
    "images": NEVER,  # built at each start
    "blobs": NEVER,  # uploads are gone, and nothing else depends on them
    "scratch": NEVER,
    "hosts": NEVER,  # the agents report what they no longer have
}
CASES = [(name, damage) for name in TABLE for damage in DAMAGES]


def test_the_table_has_every_path_of_the_layout() -> None:
    paths = {name for name, each in vars(Layout).items() if isinstance(each, property)}
    assert set(TABLE) == paths


@pytest.mark.parametrize(("name", "damage"), CASES, ids=[f"{n}-{d}" for n, d in CASES])
def test_a_lost_file_is_refused_or_made_again(layout: Layout, name: str, damage: str) -> None:
    path: Path = getattr(layout, name)
    before = layout.secrets.read_bytes()
    DAMAGES[damage](path)
    if damage in TABLE[name].split():
        with pytest.raises(REFUSALS) as error:
            begin(layout)
        assert path.name in str(error.value)
    else:
        begin(layout)
        assert layout.secrets.read_bytes() == before


AUTHORITY = {
    ("ca.crt", "missing"): False,  # issued again by the same key
    ("ca.crt", "empty"): True,
    ("ca.crt", "cut"): True,
    ("ca.key", "missing"): True,
    ("ca.key", "empty"): True,
    ("ca.key", "cut"): True,
}


@pytest.mark.parametrize(("case", "refused"), AUTHORITY.items(), ids=map("-".join, AUTHORITY))
def test_half_an_authority_is_not_replaced(
    layout: Layout, case: tuple[str, str], refused: bool
) -> None:
    name, damage = case
    key = (layout.tls / "ca.key").read_bytes()
    DAMAGES[damage](layout.tls / name)
    if refused:
        with pytest.raises(TlsError):
            begin(layout)
    else:
        begin(layout)
        assert (layout.tls / "ca.key").read_bytes() == key
    assert has_authority(layout)


LOGS = {"no log": None, "an empty log": b"", "a torn log": b"torn" * 999}
COPIES = [(name, log) for name in (stores.KUBE, stores.GITHUB) for log in LOGS]


def copy_while_in_use(layout: Layout, name: str) -> Path:
    """A new store, copied with its log while it is open, as a kill or a backup leaves it."""
    path = layout.root / name
    path.unlink()
    opened = Journal(path) if name == stores.KUBE else RecordStore(path)
    for each in (path, log_of(path)):
        shutil.copy(each, f"{each}.copy")
    opened.close()
    for each in (path, log_of(path)):
        Path(f"{each}.copy").replace(each)
    return path


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


@pytest.mark.parametrize(("name", "log"), COPIES)
def test_a_file_whose_content_was_in_its_log_is_not_taken_for_a_new_store(
    layout: Layout, name: str, log: str
) -> None:
    path, left = copy_while_in_use(layout, name), LOGS[log]
    log_of(path).unlink() if left is None else log_of(path).write_bytes(left)
    before = content(layout.root)
    assert before[name]
    with pytest.raises(BadDirectory, match=rf"{name} is empty.*{name}-wal.*Restore") as error:
        stores.check(layout, ALL)
    assert f'remove "{name}" from' in str(error.value)
    assert content(layout.root) == before


@pytest.mark.parametrize("name", [stores.KUBE, stores.GITHUB])
def test_a_store_whose_machine_was_killed_is_used(layout: Layout, name: str) -> None:
    copy_while_in_use(layout, name)
    before = content(layout.root)
    stores.check(layout, ALL)
    assert content(layout.root) == before
    begin(layout)


def content(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


@pytest.mark.parametrize("name", [stores.KUBE, stores.GITHUB])
def test_an_empty_copy_of_a_store_can_be_given_up_on_purpose(layout: Layout, name: str) -> None:
    log_of(copy_while_in_use(layout, name)).unlink()
    give_up(layout, name)
    begin(layout)


def give_up(layout: Layout, name: str) -> None:
    used = msgspec.json.decode(layout.stores.read_bytes(), type=list[str])
    layout.stores.write_bytes(msgspec.json.encode([each for each in used if each != name]))


def test_a_store_can_be_given_up_on_purpose(layout: Layout) -> None:
    layout.kube.unlink()
    give_up(layout, stores.KUBE)
    begin(layout)
    stores.record(layout, ALL)
    assert stores.known(layout) == frozenset(ALL)


def test_a_directory_of_an_earlier_version_loses_no_pools_either(layout: Layout) -> None:
    layout.stores.unlink()
    layout.kube.unlink()
    with pytest.raises(BadDirectory, match=r"kube\.db"):
        begin(layout)


def test_a_store_that_this_start_does_not_use_may_be_missing(layout: Layout) -> None:
    layout.github.unlink()
    missing(layout.postgres)
    stores.check(layout, stores.in_use(practice=False, database=False))


def test_an_interrupted_first_start_can_be_repeated(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "data")
    layout.prepare()
    load_or_make(layout, random.Random(1))
    layout.postgres.mkdir()
    stores.check(layout, ALL)
