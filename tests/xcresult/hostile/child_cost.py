"""Measures the processor's child process on one upload.

    python -m tests.xcresult.hostile.child_cost UPLOAD [MEMORY] [CPU]       prints the cost as JSON

The process that starts the child is small on purpose: Linux counts the memory of a process before `exec` to the peak of
the program after it.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHILD = "runyard.xcresult.processor.child"


def request(workdir: Path, memory: int, cpu: int) -> dict[str, object]:
    return {
        "workdir": str(workdir),
        "run_id": "11111111-1111-1111-1111-111111111111",
        "shard": 0,
        "account": "acme",
        "project": "app",
        "memory": memory,
        "cpu": cpu,
        "reserve": 0,
        "limits": {},
        "parent": os.getpid(),
    }


def measure(upload: Path, memory: int, cpu: int, home: Path) -> dict[str, object]:
    workdir = home / "11111111-1111-1111-1111-111111111111-0-1-abcd"
    (workdir / "tmp").mkdir(parents=True)
    (home / f"{workdir.name}.lock").touch()
    shutil.copyfile(upload, workdir / "upload")
    done = subprocess.run(
        [sys.executable, "-P", "-m", CHILD],
        input=json.dumps(request(workdir, memory, cpu)).encode(),
        capture_output=True,
        check=False,
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = json.loads(done.stdout) if done.stdout else {}
    answer["summary"] = bool(answer.get("summary"))
    return {
        "upload": upload.stat().st_size,
        "code": done.returncode,
        "cpu": used.ru_utime + used.ru_stime,
        "peak": used.ru_maxrss * 1024,
        "answer": answer,
        "stderr": done.stderr.decode(errors="replace")[-1000:],
    }


def main() -> None:
    upload, *rest = sys.argv[1:]
    memory, cpu = (int(each) for each in (*rest, 1 << 34, 130)[:2])
    with tempfile.TemporaryDirectory() as home:
        sys.stdout.write(json.dumps(measure(Path(upload), memory, cpu, Path(home))))


if __name__ == "__main__":
    main()
