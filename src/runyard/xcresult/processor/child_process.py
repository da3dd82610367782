"""Runs the child process that reads a bundle and returns its answer.

A parser of untrusted files may hang, use all memory or crash. So it runs in a child, which is ended at its limit with
everything that it started; its answer, or the way it died, becomes the outcome.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

import runyard
from runyard import proc
from runyard.telemetry.log import Logger
from runyard.wire.reasons_results import Unprocessed
from runyard.xcresult.plans.attempts import Outcome
from runyard.xcresult.processor.child_protocol import ReadAnswer, ReadRequest
from runyard.xcresult.processor.rows_file import clean
from runyard.xcresult.processor.scratch import Workdir

MODULE = "runyard.xcresult.processor.child"
_OURS = str(Path(runyard.__file__).parents[1])
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH")
_STDERR_KEPT = 2000
_ANSWER = 32 * 1024 * 1024


async def read(
    request: ReadRequest, workdir: Workdir, *, limit: float, grace: float, log: Logger
) -> ReadAnswer | Outcome:
    """Read the bundle; returns the answer, or the outcome of the attempt. If cancelled, the child is ended first."""
    try:
        done = await proc.run(
            [sys.executable, "-P", "-m", MODULE],  # -P: import nothing from the workdir
            input=msgspec.json.encode(request),
            timeout=limit,
            grace=grace,
            env=environment(workdir, os.environ),
            cwd=workdir.path,
            limit=_ANSWER,
        )
    except proc.DeadlineExceeded:
        return Outcome(end="late", reason=Unprocessed.READ_TIMEOUT.because(limit=limit))
    if done.code == 0:
        return msgspec.json.decode(done.stdout, type=ReadAnswer)
    stderr = done.stderr.decode(errors="replace")[-_STDERR_KEPT:]
    log.warning("child process died", code=done.code, stderr=stderr)
    return _died(done.code, stderr)


def environment(workdir: Workdir, ours: Mapping[str, str]) -> dict[str, str]:
    """The child's environment: no credential, and no directory for files except its workdir."""
    return {
        **{name: ours[name] for name in _PASSED_ON if name in ours},
        "PYTHONPATH": _OURS,
        "HOME": str(workdir.temporary),
        "TMPDIR": str(workdir.temporary),
        "SQLITE_TMPDIR": str(workdir.temporary),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _died(code: int, stderr: str) -> Outcome:
    if code == -signal.SIGXCPU:
        return Outcome(end="exhausted", reason=Unprocessed.CPU_TIME_EXCEEDED.because())
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return Outcome(end="failed", reason=Unprocessed.READER_CRASHED.because(signal=name))
    last = clean(stderr.strip().rsplit("\n", 1)[-1][:200])
    exited = Unprocessed.READER_EXITED.because(status=code, message=last)
    return Outcome(end="failed", reason=exited)
