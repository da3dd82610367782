"""`runyard explain`: shows why a job waits, why a Pod does not serve, why a pool has too few runners."""

import click
import msgspec

from runyard.cli.server_client import ServerClient, with_server_client
from runyard.text import harmless
from runyard.web.durations import format_duration
from runyard.web.explain.values import SUBJECTS
from runyard.web.explain.views import ExplanationView, StepView


@click.command(context_settings={"max_content_width": 110})
@click.argument("kind", type=click.Choice(SUBJECTS))
@click.argument("id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print the explanation as JSON.")
@with_server_client
def explain(kind: str, id: str, client: ServerClient, *, as_json: bool) -> None:
    """Explain why a job waits, or what a Pod, a pool or a runner waits for.

    The first line is the constraint to remove: then the object makes progress. The steps below show the chain of
    causes; each has its age, its numbers, the component that decided it, and what would end it. Every step was recorded
    by the component that decided it; nothing is guessed.

    \b
    runyard explain job 48190300            the number at the end of the job's URL at GitHub
    runyard explain pod mac-runner-0a1b2c3d a Pod's name or uid
    runyard explain pool mac                a RunnerPool
    runyard explain runner 1234             a runner's name or number, as GitHub shows it

    Exit codes: 0 explained, 1 not found (or the server refuses), 2 the server does not respond.
    """
    if not id or "/" in id:
        raise click.UsageError(f"{id!r} is not the name or number of a {kind}")
    found = client.read(ExplanationView, "GET", f"/api/v1/explain/{kind}/{id}")
    click.echo(harmless(msgspec.json.encode(found).decode() if as_json else rendered(found)))


def rendered(found: ExplanationView) -> str:
    """An explanation as text."""
    binding = found.binding
    head = "nothing blocks it" if found.free else f"held by {binding.constraint}"
    lines = [f"{found.subject} {found.id}: {head}", f"  {binding.subject}: {binding.what}", ""]
    for place, step in enumerate(found.chain, 1):
        mark = "*" if step == binding else " "
        lines += _step(step, f"{mark}{place}", now=found.at)
    lines += [f"fact: {each.text}" for each in found.facts]
    lines += [f"not known: {each}" for each in found.unknown]
    return "\n".join(lines)


def _step(step: StepView, mark: str, *, now: float) -> list[str]:
    since = "" if step.since is None else f", for {format_duration(max(0.0, now - step.since))}"
    lines = [f"{mark} {step.subject}: {step.constraint}{since}", f"     {step.what}"]
    if step.numbers:
        lines.append("     " + ", ".join(f"{k} {v:g}" for k, v in step.numbers.items()))
    lines.append(f"     decided by {step.who}")
    if step.ends:
        lines.append(f"     ends when: {step.ends}")
    return lines
