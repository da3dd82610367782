"""Replays the log of transitions, commit by commit, and checks each tenant's claims against its budget.

No code under test is used: the tenant of a claim is that of its job at that moment, its size is that of the pool. The
last row of a slot would not be enough, because a slot may be offered to several tenants in turn.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

CLAIMS = ("offered", "armed", "executing", "draining")
LOG = """
SELECT t.pod_uid, t.target, j.tenant, pg_xact_commit_timestamp(t.xmin) AS at
FROM transitions t LEFT JOIN jobs j USING (job_id)
WHERE t.subject = 'slot' ORDER BY pg_xact_commit_timestamp(t.xmin), t.id
"""
LIMITS = "SELECT tenant, vcpus, memory_gb FROM tenant_limits WHERE platform = 'macos'"


class Size(msgspec.Struct, frozen=True):
    """The size of a runner or of a budget."""

    vcpus: int
    memory_gb: int


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay."""

    commits: int
    most: dict[str, int]  # virtual processors that a tenant's claims held at a commit, at most
    failures: tuple[str, ...]


def replay(rows: Sequence[Mapping[str, Any]], limits: Mapping[str, Size], runner: Size) -> Replayed:
    """Replay the rows and check the budgets after each commit."""
    holder: dict[str, str] = {}  # the Pod of a claim → its tenant
    claims: Counter[str] = Counter()
    most: Counter[str] = Counter()
    commits, failures = 0, []
    for number, row in enumerate(rows):
        before = holder.pop(row["pod_uid"], "")
        claims[before] -= 1
        if row["target"] in CLAIMS:
            # A claim keeps its tenant when its job has ended or runs elsewhere.
            tenant = holder[row["pod_uid"]] = row["tenant"] or before
            claims[tenant] += 1
            if not tenant:
                failures.append(f"a claim of {row['pod_uid']} at {row['at']} is nobody's")
        if number + 1 < len(rows) and rows[number + 1]["at"] == row["at"]:
            continue  # the same commit
        commits += 1
        for tenant, limit in limits.items():
            held = Size(claims[tenant] * runner.vcpus, claims[tenant] * runner.memory_gb)
            most[tenant] = max(most[tenant], held.vcpus)
            if held.vcpus > limit.vcpus or held.memory_gb > limit.memory_gb:
                failures.append(f"{tenant} held {held} of {limit} at {row['at']}")
    return Replayed(commits=commits, most=dict(most), failures=tuple(failures))
