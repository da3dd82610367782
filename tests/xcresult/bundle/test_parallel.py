"""Tests that several processes give the same result as one, and that none outlives the reading."""

import os
import select
import signal
import subprocess
import sys
from multiprocessing import active_children
from pathlib import Path

import pytest
from tests.xcresult.writer.plan import Plan
from tests.xcresult.writer.writing import write_bundle

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.bundle import parallel
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.errors import TooLarge
from runyard.xcresult.reader.decode import decode
from runyard.xcresult.reader.model import Wanted

PLAN = Plan(
    cases=80,
    targets=2,
    suites=4,
    nesting=2,
    named=True,
    top_level=3,
    configurations=2,
    devices=2,
    failures=9,
    skips=3,
    expected_failures=3,
    retries=4,
    arguments=9,
    tags=9,
    bugs=9,
    documented=9,
    metrics=5,
    activities=4,
    attachments=30,
    runner_errors=1,
    sessionless=2,
    lost_payloads=2,
)
PARENT = """
import sys
from multiprocessing import active_children
from pathlib import Path
from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.bundle import parallel

if __name__ == "__main__":
    with parallel.processes(Path(sys.argv[1]), limits=Limits(), count=1) as pool:
        pool.submit(parallel._log, "").result()
        print(*(child.pid for child in active_children()), flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the thresholds, so that a small bundle is read in parallel with few runs in a batch."""
    monkeypatch.setattr(parallel, "LARGE", 10)
    monkeypatch.setattr(parallel, "PORTION", 17)


def damaged(bundle: Path, root_id: str) -> None:
    """Truncate some long forms and delete the log of an action."""
    objects = Directory(bundle)
    action = decode(objects.read(root_id))["actions"][0]["actionResult"]
    (bundle / "Data" / f"data.{action['logRef']['id']}").unlink()
    for summary_id in objects.refs(action["testsRef"]["id"])[5:150:30]:
        path = bundle / "Data" / f"data.{summary_id}"
        path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("wanted", [Wanted(), Wanted(activities=True, logs=False)])
def test_several_processes_read_what_one_reads(tmp_path: Path, wanted: Wanted) -> None:
    bundle = tmp_path / "x.xcresult"
    damaged(bundle, write_bundle(bundle, PLAN).root_id)
    alone = read_bundle(bundle, wanted=wanted)
    assert len(alone.warnings) == 5
    assert read_bundle(bundle, wanted=wanted, processes=2) == alone
    assert active_children() == []


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_the_limits_hold_in_all_processes_together(tmp_path: Path) -> None:
    bundle = tmp_path / "x.xcresult"
    write_bundle(bundle, PLAN)
    decoded = sum(len(Directory(bundle).read(each)) for each in Directory(bundle).ids())
    limits = Limits(decoded_bytes=decoded // 3)
    with pytest.raises(TooLarge, match="decoded_bytes"):
        read_bundle(bundle, limits=limits)
    with pytest.raises(TooLarge, match="decoded_bytes"):
        read_bundle(bundle, limits=limits, processes=2)
    assert active_children() == []


@pytest.mark.usefixtures("eager")
def test_a_process_that_dies_is_not_an_error_of_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "x.xcresult"
    write_bundle(bundle, PLAN)
    finish = parallel.PoolReaders.finish

    def killed(self: parallel.PoolReaders) -> None:
        for child in active_children():
            child.kill()
            child.join()
        finish(self)

    monkeypatch.setattr(parallel.PoolReaders, "finish", killed)
    monkeypatch.setattr(
        parallel, "PORTION", 10_000
    )  # so that the last batch is requested after that
    with pytest.raises(ChildProcessError, match="died"):
        read_bundle(bundle, processes=2)


def test_a_small_bundle_is_read_without_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "x.xcresult"
    write_bundle(bundle, Plan())
    monkeypatch.delattr(parallel, "processes")
    assert read_bundle(bundle, processes=8) == read_bundle(bundle)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="descriptors of other processes are Linux's")
def test_no_process_outlives_its_parent(tmp_path: Path) -> None:
    bundle = tmp_path / "x.xcresult"
    write_bundle(bundle, Plan(cases=1))
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen(
        [sys.executable, str(script), str(bundle)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as parent:
        assert parent.stdout is not None
        (child,) = map(int, parent.stdout.readline().split())
        watched = os.pidfd_open(child)
        parent.send_signal(signal.SIGKILL)
        assert select.select([watched], [], [], 60)[0], "the process is still alive"
        os.close(watched)
