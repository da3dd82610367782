"""`runyard explain`: why a job waits, why a Pod does not serve, why a pool has too few runners."""

import click
import msgspec

from runyard.cli.asking import Asked, asks_a_server
from runyard.cli.harmless import harmless
from runyard.web.explain.values import SUBJECTS, Explanation, Step
from runyard.web.words import lasted


@click.command(context_settings={"max_content_width": 110})
@click.argument("kind", type=click.Choice(SUBJECTS))
@click.argument("id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print the explanation as JSON.")
@asks_a_server
def explain(kind: str, id: str, asked: Asked, *, as_json: bool) -> None:
    """Say why a job waits, or why a Pod, a pool or a runner is as it is.

    The first line is the binding constraint: remove it, and the thing moves on. The steps below lead to it and beyond
    it; each says what is so, since when, with which numbers, who decides it, and what would end it. Every step is what
    the deciding part itself said; nothing is guessed.

    \b
    runyard explain job 48190300            the number at the end of the job's address at GitHub
    runyard explain pod mac-runner-0a1b2c3d a Pod's name or uid
    runyard explain pool mac                a RunnerPool
    runyard explain runner 1234             a runner's name or number, as GitHub shows it

    Exit codes: 0 explained, 1 there is no such thing (or the server refuses), 2 no server answers.
    """
    if not id or "/" in id:
        raise click.UsageError(f"{id!r} is not the name or number of a {kind}")
    found = asked.read(Explanation, "GET", f"/api/v1/explain/{kind}/{id}")
    click.echo(harmless(msgspec.json.encode(found).decode() if as_json else told(found)))


def told(found: Explanation) -> str:
    """An explanation for people."""
    binding = found.binding
    head = "nothing holds it up" if found.free else f"held by {binding.constraint}"
    lines = [f"{found.subject} {found.id}: {head}", f"  {binding.subject}: {binding.what}", ""]
    for place, step in enumerate(found.chain, 1):
        mark = "*" if step == binding else " "
        lines += _step(step, f"{mark}{place}", now=found.at)
    lines += [f"not known: {each}" for each in found.unknown]
    return "\n".join(lines)


def _step(step: Step, mark: str, *, now: float) -> list[str]:
    since = "" if step.since is None else f", for {lasted(max(0.0, now - step.since))}"
    lines = [f"{mark} {step.subject}: {step.constraint}{since}", f"     {step.what}"]
    if step.numbers:
        lines.append("     " + ", ".join(f"{k} {v:g}" for k, v in step.numbers.items()))
    lines.append(f"     decided by {step.who}")
    if step.ends:
        lines.append(f"     ends when: {step.ends}")
    return lines
