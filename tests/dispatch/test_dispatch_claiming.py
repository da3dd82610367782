"""Claims in one transaction: outdated proposals are refused and do not affect the others."""

from typing import Any

import msgspec
import psycopg
import pytest
from psycopg.rows import dict_row

from runyard.clock import RealClock
from runyard.db.inline import InlineDatabase
from runyard.dispatch.claiming import Claimed, Claims
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.events import Adopt, Offer
from runyard.dispatch.matching.values import Proposal
from runyard.sim.loop import run_virtual
from runyard.wire.reasons import Code
from runyard.wire.reasons_dispatch import Proposed, Refused

HEADROOM = 8  # runners of one vCPU that acme may have; mona has as many


def harness(url: str) -> "psycopg.Connection[dict[str, Any]]":
    link = psycopg.connect(url, autocommit=True, row_factory=dict_row)
    for tenant in ("acme", "mona"):
        link.execute("INSERT INTO tenants (tenant, installation_id) VALUES (%s, 1)", [tenant])
        link.execute("INSERT INTO tenant_limits VALUES (%s, 'macos', %s, 100)", [tenant, HEADROOM])
        for app in ("app", "lib"):
            link.execute(
                "INSERT INTO repositories (tenant, repository) VALUES (%s, %s)",
                [tenant, f"{tenant}/{app}"],
            )
    link.execute(
        "INSERT INTO jobs (job_id, tenant, repository, labels, state, verified, enqueued_at, look_at)"
        " SELECT n, CASE WHEN n < 100 THEN 'acme' ELSE 'mona' END,"
        " CASE WHEN n < 100 THEN 'acme/app' ELSE 'mona/app' END, '{x}', 'queued', true, now(), now()"
        " FROM generate_series(1, 199) n"
    )
    link.execute(
        "INSERT INTO slots (pod_uid, pod_name, pool, generation, state, deadline, last_beat, opened_at)"
        " SELECT 'u' || n, 'p' || n, 'mac', n, 'idle', now(), now(), now() FROM generate_series(1, 40) n"
    )
    return link


def proposal(slot: int, job: int, **changes: Any) -> Proposal:
    tenant = "acme" if job < 100 else "mona"
    event = Offer(
        generation=slot,
        job_id=job,
        tenant=tenant,
        scope=f"orgs/{tenant}",
        installation_id=1,
        vcpus=1,
        memory_gb=1,
        platform="macos",
        runner_name=f"p{slot}",
    )
    whole = Proposal(
        pod_uid=f"u{slot}",
        event=event,
        tenant=tenant,
        repository=f"{tenant}/app",
        pool="mac",
        cost=2.0,
        reason=Proposed.NEXT_IN_TURN.because(tenant=tenant, vtime=0.0),
        platform="macos",
    )
    return msgspec.structs.replace(whole, **changes)


def claim(url: str, *proposals: Proposal) -> list[Code | None]:
    """Why each was refused, or None."""

    async def main() -> Claimed:
        claims = Claims(ctx=Context(), actor="test")
        with InlineDatabase(url, clock=RealClock()) as database:
            return await database.transact(
                lambda tx: claims.claim(tx, proposals, trial_within=8.0), name="claim"
            )

    decisions = run_virtual(main()).decisions
    return [each.refused and each.refused.code for each in decisions]


def test_claims_of_one_transaction_never_exceed_a_budget_together(database_url: str) -> None:
    with harness(database_url) as link:
        # The snapshot of these proposals had the wrong headroom: it is checked again for each.
        refusals = claim(database_url, *(proposal(n, n) for n in range(1, 13)), proposal(20, 150))
        assert refusals == [None] * HEADROOM + [Refused.BUDGET_USED_UP] * 4 + [None]
        held = link.execute("SELECT tenant, sum(vcpus)::int AS n FROM runner_claims GROUP BY 1")
        assert {row["tenant"]: row["n"] for row in held} == {"acme": HEADROOM, "mona": 1}
        # Refused proposals changed nothing.
        rows = link.execute(
            "SELECT job_id FROM jobs WHERE state = 'queued' AND job_id < 13 ORDER BY 1"
        )
        assert [row["job_id"] for row in rows] == [9, 10, 11, 12]
        assert claim(database_url, proposal(30, 30)) == [Refused.BUDGET_USED_UP]


@pytest.mark.parametrize(
    ("spoilt", "code"),
    [
        (proposal(1, 2), Refused.JOB_NOT_OFFERABLE),  # another tenant's by now
        (proposal(1, 9999), Refused.JOB_NOT_OFFERABLE),  # there is no such job
        (proposal(2, 1), Refused.SLOT_NOT_IDLE),
        (proposal(1, 1, pod_uid="u3"), Refused.SLOT_NOT_IDLE),  # an earlier generation
        (proposal(1, 1, pod_uid="nobody"), Refused.SLOT_NOT_IDLE),
    ],
)
def test_an_outdated_proposal_does_not_affect_the_others(
    database_url: str, spoilt: Proposal, code: Code
) -> None:
    with harness(database_url) as link:
        assert claim(database_url, proposal(2, 2)) == [None]
        assert claim(database_url, proposal(5, 5), spoilt, proposal(6, 6)) == [None, code, None]
        bound = link.execute("SELECT job_id FROM jobs WHERE state = 'bound' ORDER BY 1")
        assert [row["job_id"] for row in bound] == [2, 5, 6]


def test_two_proposals_for_one_job_or_one_runner_are_one_claim(database_url: str) -> None:
    with harness(database_url) as link:
        refusals = claim(database_url, proposal(1, 1), proposal(2, 1), proposal(1, 2))
        assert refusals == [None, Refused.JOB_NOT_OFFERABLE, Refused.SLOT_NOT_IDLE]
        assert link.execute("SELECT count(*) AS n FROM runner_claims").fetchone() == {"n": 1}


def test_only_successful_claims_are_charged_and_the_last_sets_the_floor(
    database_url: str,
) -> None:
    with harness(database_url) as link:
        link.execute("UPDATE tenants SET weight = 2 WHERE tenant = 'acme'")
        link.execute("INSERT INTO virtual_times VALUES ('acme', '', 'macos', 5, 0)")
        lib = {"repository": "acme/lib", "own_floor": 1.0}
        claim(
            database_url,
            proposal(1, 1, floor=7.0),
            proposal(2, 2, floor=7.0, **lib),
            proposal(3, 2, floor=7.0),  # refused
            proposal(4, 4, floor=7.0),
            proposal(5, 150, floor=7.0),
            proposal(6, 6, platform="linux"),
        )
        rows = link.execute(
            "SELECT tenant, repository, platform, vtime, vstart FROM virtual_times ORDER BY 3 DESC, 1, 2"
        ).fetchall()
        assert [tuple(row.values()) for row in rows] == [
            ("acme", "", "macos", 10.0, 9.0),
            ("acme", "acme/app", "macos", 4.0, 2.0),
            ("acme", "acme/lib", "macos", 3.0, 1.0),
            ("mona", "", "macos", 9.0, 7.0),
            ("mona", "mona/app", "macos", 2.0, 0.0),
            ("acme", "", "linux", 1.0, 0.0),
            ("acme", "acme/app", "linux", 2.0, 0.0),
        ]


def test_every_claim_is_logged_in_order(database_url: str) -> None:
    with harness(database_url) as link:
        claim(database_url, proposal(2, 2), proposal(1, 1))
        rows = link.execute(
            "SELECT subject, coalesce(pod_uid, '') AS uid, job_id, source, target, actor FROM transitions ORDER BY id"
        ).fetchall()
        assert [tuple(row.values()) for row in rows] == [
            ("job", "", 2, "queued", "bound", "test"),
            ("slot", "u2", 2, "idle", "offered", "test"),
            ("job", "", 1, "queued", "bound", "test"),
            ("slot", "u1", 1, "idle", "offered", "test"),
        ]


def test_a_runner_that_lost_its_job_is_adopted_beside_new_ones(database_url: str) -> None:
    with harness(database_url) as link:
        link.execute(
            "UPDATE slots SET state = 'armed', tenant = 'acme', scope = 'orgs/acme', vcpus = 1, memory_gb = 1,"
            " platform = 'macos', stamped = true, jit = '\\x00ff' WHERE pod_uid = 'u7'"
        )
        adopt = proposal(7, 7, event=Adopt(generation=7, job_id=7), cost=0.0)
        assert claim(database_url, proposal(1, 1), adopt) == [None, None]
        row = link.execute(
            "SELECT state, intended_job, jit FROM slots WHERE pod_uid = 'u7'"
        ).fetchone()
        assert row == {"state": "armed", "intended_job": 7, "jit": b"\x00\xff"}
        # An adopted runner was charged when it was minted.
        row = link.execute(
            "SELECT vtime FROM virtual_times WHERE tenant = 'acme' AND repository = ''"
        ).fetchone()
        assert row == {"vtime": 2.0}
