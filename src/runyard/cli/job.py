"""`runyard job`: the jobs that the fleet knows, what happened to one, and what GitHub is asked about it."""

import click

from runyard.cli.asking import Asked, asks_a_server
from runyard.cli.tables import moment, show_json, show_table
from runyard.wire.people import JOBS, Cancel, JobDetail, Jobs, Retry
from runyard.wire.people import Asked as Taken

_JSON = click.option("--json", "as_json", is_flag=True, help="JSON, for scripts.")
_NUMBER = click.argument("number", type=click.IntRange(1, 10**18))
STATES = ("waiting", "queued", "bound", "running", "done")


@click.group(context_settings={"max_content_width": 110})
def job() -> None:
    """See jobs, and cancel or repeat them at GitHub.

    \b
    runyard job list --state queued --tenant acme
    runyard job show 12345
    runyard job cancel 12345
    runyard job retry 12345
    """


@job.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only those.")
@click.option("--tenant", default="", help="Only this account's.")
@click.option("--repository", default="", help="Only this one's: owner/name.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@click.option("--before", type=click.IntRange(0, 10**18), default=0, help="Go on before this job.")
@_JSON
@asks_a_server
def list_(
    asked: Asked,
    state: str | None,
    tenant: str,
    repository: str,
    limit: int,
    before: int,
    *,
    as_json: bool,
) -> None:
    """Jobs, newest first."""
    wanted = {
        "state": state or "",
        "tenant": tenant,
        "repository": repository,
        "limit": str(limit),
        "before": str(before or ""),
    }
    query = tuple((key, value) for key, value in wanted.items() if value)
    found = asked.read(Jobs, "GET", JOBS, query=query)
    if as_json:
        show_json(found)
        return
    show_table(
        ("job", "repository", "name", "state", "conclusion", "runner", "queued"),
        [
            (
                str(each.job),
                each.repository,
                each.name,
                each.state,
                each.conclusion or "-",
                each.runner_name or "-",
                moment(each.enqueued_at),
            )
            for each in found.items
        ],
    )
    if found.next:
        click.echo(f"there are more: --before {found.next}", err=True)


@job.command()
@_NUMBER
@_JSON
@asks_a_server
def show(asked: Asked, number: int, *, as_json: bool) -> None:
    """One job, its runner, and every transition with its reason."""
    found = asked.read(JobDetail, "GET", f"{JOBS}/{number}")
    if as_json:
        show_json(found)
        return
    one = found.job
    pairs = (
        ("job", str(one.job)),
        ("repository", one.repository),
        ("name", f"{one.workflow} / {one.name}" if one.workflow else one.name),
        ("branch", f"{one.branch} {one.head_sha[:12]}".strip()),
        ("run", f"{one.run_id}, attempt {one.run_attempt}"),
        ("labels", ", ".join(one.labels)),
        ("priority", str(one.priority)),
        ("state", f"{one.state} {one.conclusion}".strip()),
        ("queued", moment(one.enqueued_at)),
        ("claimed", moment(one.claimed_at)),
        ("started", moment(one.started_at)),
        ("completed", moment(one.completed_at)),
        ("runner", one.runner_name or "-"),
    )
    show_table(("field", "value"), pairs)
    if found.slots:
        click.echo()
        show_table(
            ("pod", "pool", "state", "runner", "fence", "deadline", "last heard"),
            [
                (
                    slot.pod_name,
                    slot.pool,
                    slot.state,
                    slot.runner_name or "-",
                    slot.fence,
                    moment(slot.deadline),
                    moment(slot.last_beat),
                )
                for slot in found.slots
            ],
        )
    if found.asked:
        click.echo()
        show_table(
            ("when", "asked", "outcome", "who"),
            [(moment(each.at), each.what, each.outcome, each.actor) for each in found.asked],
        )
    if found.transitions:
        click.echo()
        show_table(
            ("when", "what", "from", "to", "why", "who"),
            [
                (moment(each.at), each.subject, each.source, each.target, each.why, each.actor)
                for each in found.transitions
            ],
        )


@job.command()
@_NUMBER
@click.option(
    "--with-others", is_flag=True, help="The run's other jobs may end too: GitHub cancels runs."
)
@_JSON
@asks_a_server
def cancel(asked: Asked, number: int, *, with_others: bool, as_json: bool) -> None:
    """Cancel a job's run at GitHub.

    GitHub has no way to cancel one job of a run. If others of the same run are not over, nothing is done until
    --with-others says that they may end too.
    """
    body = Cancel(others=with_others)
    _tell(asked.read(Taken, "POST", f"{JOBS}/{number}/cancel", body=body), as_json=as_json)


@job.command()
@_NUMBER
@_JSON
@asks_a_server
def retry(asked: Asked, number: int, *, as_json: bool) -> None:
    """Run a job once more at GitHub, with the jobs that depend on it; it gets a new number."""
    _tell(asked.read(Taken, "POST", f"{JOBS}/{number}/retry", body=Retry()), as_json=as_json)


def _tell(taken: Taken, *, as_json: bool) -> None:
    if as_json:
        show_json(taken)
        return
    click.echo(f"job {taken.job} of run {taken.run_id}: {taken.outcome}")
    if taken.others:
        numbers = ", ".join(str(each) for each in taken.others)
        click.echo(f"with it end: {numbers}", err=True)
