"""`runyard job`: lists jobs, shows their transitions, and cancels or repeats them at GitHub."""

import click

from runyard.cli.server_client import ServerClient, with_server_client
from runyard.cli.tables import moment, show_json, show_table
from runyard.wire.rest import JOBS, Cancel, JobDetail, Jobs, Retry
from runyard.wire.rest import Asked as Taken

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
_NUMBER = click.argument("number", type=click.IntRange(1, 10**18))
STATES = ("waiting", "queued", "bound", "running", "done")


@click.group(context_settings={"max_content_width": 110})
def job() -> None:
    """Show jobs, and cancel or repeat them at GitHub.

    \b
    runyard job list --state queued --tenant acme
    runyard job show 48190300        the number at the end of the job's URL at GitHub
    runyard job cancel 48190300
    runyard job retry 48190300
    runyard explain job 48190300     why a job waits
    """


@job.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")
@click.option("--tenant", default="", help="Only jobs of this account.")
@click.option("--repository", default="", help="Only jobs of this repository (owner/name).")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@click.option(
    "--before",
    type=click.IntRange(0, 10**18),
    default=0,
    help="Only jobs before this number, to get the next page.",
)
@_JSON
@with_server_client
def list_(
    client: ServerClient,
    state: str | None,
    tenant: str,
    repository: str,
    limit: int,
    before: int,
    *,
    as_json: bool,
) -> None:
    """List jobs, newest first.

    \b
    runyard job list --state queued              jobs that wait for a runner
    runyard job list --repository acme/app --limit 200
    """
    wanted = {
        "state": state or "",
        "tenant": tenant,
        "repository": repository,
        "limit": str(limit),
        "before": str(before or ""),
    }
    query = tuple((key, value) for key, value in wanted.items() if value)
    found = client.read(Jobs, "GET", JOBS, query=query)
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
        click.echo(f"more jobs: --before {found.next}", err=True)


@job.command()
@_NUMBER
@_JSON
@with_server_client
def show(client: ServerClient, number: int, *, as_json: bool) -> None:
    """Show one job, its runner, and every transition with its reason.

    NUMBER is the job's id at GitHub: the number at the end of its URL.
    """
    found = client.read(JobDetail, "GET", f"{JOBS}/{number}")
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
        ("trust", one.trust_text or "-"),
    )
    show_table(("field", "value"), pairs)
    if found.slots:
        click.echo()
        show_table(
            ("pod", "pool", "state", "runner", "fence", "deadline", "last heartbeat"),
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
            [(moment(each.at), each.what, each.text, each.actor) for each in found.asked],
        )
    if found.transitions:
        click.echo()
        show_table(
            ("when", "what", "from", "to", "why", "who"),
            [
                (moment(each.at), each.subject, each.source, each.target, each.text, each.actor)
                for each in found.transitions
            ],
        )


@job.command()
@_NUMBER
@click.option(
    "--with-others",
    is_flag=True,
    help="Also cancel the other jobs of the run: GitHub cancels whole runs.",
)
@_JSON
@with_server_client
def cancel(client: ServerClient, number: int, *, with_others: bool, as_json: bool) -> None:
    """Cancel a job's run at GitHub.

    GitHub cannot cancel a single job of a run. If other jobs of the run have not ended, nothing is cancelled unless
    --with-others is given.

    \b
    runyard job cancel 48190300
    runyard job cancel 48190300 --with-others
    """
    body = Cancel(others=with_others)
    _print_result(client.read(Taken, "POST", f"{JOBS}/{number}/cancel", body=body), as_json=as_json)


@job.command()
@_NUMBER
@_JSON
@with_server_client
def retry(client: ServerClient, number: int, *, as_json: bool) -> None:
    """Run a job again at GitHub, with the jobs that depend on it; it gets a new number.

    \b
    runyard job retry 48190300
    """
    _print_result(
        client.read(Taken, "POST", f"{JOBS}/{number}/retry", body=Retry()), as_json=as_json
    )


def _print_result(taken: Taken, *, as_json: bool) -> None:
    if as_json:
        show_json(taken)
        return
    click.echo(f"job {taken.job} of run {taken.run_id}: {taken.outcome}")
    if taken.others:
        numbers = ", ".join(str(each) for each in taken.others)
        click.echo(f"also cancelled: {numbers}", err=True)
