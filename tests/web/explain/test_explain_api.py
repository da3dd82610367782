"""Explanations over HTTP and by the command: found, unknown, refused, and while sources are down."""

import asyncio
import shlex
from pathlib import Path

import msgspec
import pytest
from tests.transcripts import check, transcripts
from tests.web.web_harness import QUICK, TOKEN, Site, visit

from runyard.cli.main import cli, run
from runyard.web.explain.reasons import Ends
from runyard.web.explain.values import Constraint
from runyard.web.explain.views import ExplanationView
from runyard.web.settings import Settings
from runyard.wire.reasons import Catalogue
from runyard.wire.reasons_dispatch import TRUST, Holding, PodLabels, Trust


async def explained(site: Site, kind: str, id_: str) -> ExplanationView:
    answer = await site.get(f"/api/v1/explain/{kind}/{id_}")
    assert answer.status == 200, answer.body
    assert answer.header("cache-control") == "no-store"
    return msgspec.json.decode(answer.body, type=ExplanationView)


def token_file(directory: Path) -> Path:
    path = directory / "token"
    path.write_text(f"{TOKEN}\n")
    return path


def test_a_job_of_a_fork_is_explained_as_untrusted(database_url: str) -> None:
    async def scenario(site: Site) -> None:
        await site.pool()
        for job, stored in ((7, "fork"), (8, "same-repository"), (9, ""), (10, "")):
            site.job(job)
            site.execute("UPDATE jobs SET trust = %s WHERE job_id = %s", stored, job)
        for job, trust in ((7, Trust.FORK), (8, Trust.SAME_REPOSITORY), (9, Trust.UNDECIDED)):
            found = await explained(site, "job", str(job))
            assert [(each.code, each.text) for each in found.facts] == [(trust, TRUST.text(trust))]
        assert "untrusted" in TRUST.text(Trust.UNDECIDED), "what is not known is not trusted"
        site.execute("UPDATE jobs SET state = 'done', conclusion = 'cancelled' WHERE job_id = 10")
        assert (await explained(site, "job", "10")).facts == (), "it never had a runner"

    visit(scenario, database_url)


@pytest.mark.parametrize(
    ("marked_job", "marked", "trust", "label"),
    [
        (3, False, Trust.FORK, PodLabels.OF_ANOTHER_JOB),
        (7, True, Trust.SAME_REPOSITORY, PodLabels.STAY_UNTRUSTED),
        (7, True, Trust.FORK, None),
        (7, False, Trust.SAME_REPOSITORY, None),
        (None, False, Trust.FORK, None),
    ],
)
def test_labels_that_are_not_those_of_the_running_job_are_explained(
    database_url: str, marked_job: int | None, marked: bool, trust: Trust, label: PodLabels | None
) -> None:
    async def scenario(site: Site) -> None:
        site.job(7, state="running")
        site.slot("u", "mac-runner-1", state="executing")
        site.execute("UPDATE jobs SET trust = %s, runner_name = 'mac-runner-1'", trust.value)
        site.execute(
            "UPDATE slots SET tenant = 'acme', executing_job = 7, runner_name = 'mac-runner-1',"
            " marked_job = %s, marked_untrusted = %s",
            marked_job,
            marked,
        )
        expected = [trust.value, *([] if label is None else [label.value])]
        for kind, id_ in (("job", "7"), ("runner", "mac-runner-1"), ("pod", "mac-runner-1")):
            found = await explained(site, kind, id_)
            assert [each.code for each in found.facts] == expected

    visit(scenario, database_url)


def test_a_job_newer_than_the_snapshot_gets_the_answer_of_every_other_replica(
    database_url: str,
) -> None:
    async def scenario(site: Site) -> None:
        site.job(7)
        assert (await explained(site, "job", "7")).binding.constraint is Constraint.NO_POOL
        site.job(8)  # the snapshot is kept for hours here: no later read finds this job
        site.execute("UPDATE jobs SET labels = ARRAY['another'] WHERE job_id = 8")
        found = (await explained(site, "job", "8")).binding
        assert (found.constraint, found.what_code) == (Constraint.NO_POOL, Holding.NO_POOLS)

    once = msgspec.structs.replace(QUICK, every=3600.0)
    visit(scenario, database_url, once)


def test_a_job_a_pod_a_pool_and_a_runner_are_explained(database_url: str) -> None:
    async def scenario(site: Site) -> None:
        await site.pool()
        site.job(7)
        uid = await site.pod("mac-runner-1")
        job = await explained(site, "job", "7")
        assert job.binding.constraint is Constraint.NO_POOL
        assert job.binding.what_code == Holding.LABEL_MISSING
        rendered = Catalogue(Holding).text(job.binding.what_code, job.binding.what_detail)
        assert job.binding.what == rendered
        assert job.binding.ends_code == Ends.POOL_FITS and job.binding.ends
        for name in ("mac-runner-1", uid):
            pod = await explained(site, "pod", name)
            assert pod.binding.constraint is Constraint.NO_HOST
        pool = await explained(site, "pool", "mac")
        assert pool.binding.constraint is Constraint.NO_HOST
        assert [step.subject for step in pool.chain] == ["pool mac", "pod mac-runner-1"]
        site.slot(uid, "mac-runner-1")
        assert (await explained(site, "runner", "mac-runner-1")).free

    visit(scenario, database_url)


@pytest.mark.parametrize(
    ("kind", "id_", "searched"),
    [
        ("job", "99", "the jobs that GitHub reported"),
        ("job", "not-a-number", "the jobs that GitHub reported"),
        ("job", "9" * 40, "the jobs that GitHub reported"),
        ("pod", "nobody", "the runner Pods in Kubernetes; the slots"),
        ("runner", "18446744073709551615", "the slots"),
        ("pool", "none", "the RunnerPools"),
    ],
)
def test_an_unknown_object_is_a_404_that_lists_what_was_searched(
    database_url: str, kind: str, id_: str, searched: str
) -> None:
    async def scenario(site: Site) -> None:
        answer = await site.get(f"/api/v1/explain/{kind}/{id_}")
        assert answer.status == 404
        problem = answer.json()
        assert searched in problem["reason"]
        assert problem["fix"]

    visit(scenario, database_url)


def test_a_runner_that_is_over_is_found_by_its_pods_name(database_url: str) -> None:
    async def scenario(site: Site) -> None:
        site.slot("uid-1", "mac-runner-1", state="closed")
        found = await explained(site, "pod", "mac-runner-1")
        assert found.binding.constraint is Constraint.OVER

    visit(scenario, database_url)


def test_a_job_is_not_explained_by_another_tenants_runner_of_the_same_name(
    database_url: str,
) -> None:
    async def scenario(site: Site) -> None:
        site.job(7, state="running")
        site.execute("UPDATE jobs SET runner_name = 'mac-1' WHERE job_id = 7")
        site.execute("INSERT INTO tenants (tenant, installation_id) VALUES ('birch', 2)")
        for tenant, uid in (("acme", "uid-1"), ("birch", "uid-2")):
            site.slot(uid, f"pod-of-{tenant}", state="executing")
            site.execute(
                "UPDATE slots SET tenant = %s, runner_name = 'mac-1' WHERE pod_uid = %s",
                tenant,
                uid,
            )
        site.execute(
            "UPDATE slots SET opened_at = opened_at - '1 h'::interval WHERE tenant = 'acme'"
        )
        chain = (await explained(site, "job", "7")).chain
        assert "pod pod-of-acme" in [step.subject for step in chain]

    visit(scenario, database_url)


def test_a_kind_that_cannot_be_explained_names_those_that_can(database_url: str) -> None:
    async def scenario(site: Site) -> None:
        answer = await site.get("/api/v1/explain/host/mini-1")
        assert answer.status == 404
        assert "job, pod, pool, runner" in answer.json()["fix"]

    visit(scenario, database_url)


def test_without_postgres_the_explanation_is_the_outage(database_url: str) -> None:
    async def scenario(site: Site) -> None:
        found = await explained(site, "job", "7")
        assert found.binding.constraint is Constraint.DATABASE_AWAY
        assert found.unknown

    visit(scenario, database_url, QUICK, reachable=False)


def test_without_kubernetes_a_pool_is_not_called_unknown(database_url: str) -> None:
    async def scenario(site: Site) -> None:
        site.line.cut = True
        found = await explained(site, "pool", "mac")
        assert found.binding.constraint is Constraint.KUBERNETES_AWAY

    visit(scenario, database_url)


def test_the_command_prints_text_or_json_and_keeps_its_exit_codes(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(site: Site) -> None:
        site.job(7)
        site.execute("UPDATE jobs SET trust = %s", Trust.FORK)

        def command(*argv: str) -> tuple[int, str, str]:
            where = ["--server", site.url, "--token-file", str(token_file(tmp_path))]
            code = run(cli, name="runyard", argv=["explain", *argv, *where])
            shown = capsys.readouterr()
            return code, shown.out, shown.err

        code, out, _ = await asyncio.to_thread(command, "job", "7")
        assert (code, out.splitlines()[0]) == (0, "job 7: held by no-pool")
        assert "decided by dispatch: the matcher" in out
        assert out.splitlines()[-1] == f"fact: {TRUST.text(Trust.FORK)}"
        assert "\x1b" not in out
        code, out, _ = await asyncio.to_thread(command, "job", "7", "--json")
        assert (
            msgspec.json.decode(out, type=ExplanationView).binding.constraint is Constraint.NO_POOL
        )
        code, _, err = await asyncio.to_thread(command, "job", "8")
        assert code == 1
        assert "there is no job 8" in err
        assert "searched" in err
        code, _, err = await asyncio.to_thread(command, "job", "a/b")
        assert code == 2
        argv = ["explain", "pool", "mac", "--server", "http://127.0.0.1:1"]
        assert await asyncio.to_thread(run, cli, name="runyard", argv=argv) == 2
        assert "does not respond" in capsys.readouterr().err

    visit(scenario, database_url)


def test_the_page_shows_what_the_command_prints(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(site: Site) -> None:
        await site.pool()
        site.job(7)
        site.execute("UPDATE jobs SET labels = ARRAY['self-hosted', 'xcode-27']")
        await site.pod("mac-runner-0a1b2c3d")
        (shown,) = transcripts("docs/explain.md")
        outputs = []
        for step in shown.steps:
            where = ["--server", site.url, "--token-file", str(token_file(tmp_path))]
            argv = [*shlex.split(step.command)[1:], *where]
            assert await asyncio.to_thread(run, cli, name="runyard", argv=argv) == 0
            outputs.append(capsys.readouterr().out)
        check(shown, outputs)

    visit(scenario, database_url)


def test_an_explanation_needs_the_token(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(site: Site) -> None:
        site.job(7)
        assert (await site.get("/api/v1/explain/job/7")).status == 401
        secret = token_file(tmp_path)
        argv = ["explain", "job", "7", "--server", site.url]
        assert await asyncio.to_thread(run, cli, name="runyard", argv=argv) == 1
        argv += ["--token-file", str(secret)]
        assert await asyncio.to_thread(run, cli, name="runyard", argv=argv) == 0
        shown = capsys.readouterr()
        assert TOKEN not in shown.out + shown.err

    visit(scenario, database_url, settings=Settings(listen="0.0.0.0", token=TOKEN, patience=20.0))
