"""Options of `runyard pool create`, one for each field of a RunnerPool that the operator acts on."""

import re

import click

from runyard.cli.options import Option, label_value

_CPU = re.compile(r"(?P<number>[0-9]+(\.[0-9]{1,3})?)(?P<milli>m?)")
_MEMORY = re.compile(r"(?P<number>[0-9]+)(?P<unit>[MG]i)")
_CLASS = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,51}[a-z0-9])?")  # with a prefix it is a label's value
_MOST = 2**31 - 1  # of an int32


def _cpu(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """Cores as Kubernetes writes them, in thousandths."""
    if text is None:
        return None
    found = _CPU.fullmatch(text)
    size = 0.0 if found is None else float(found["number"]) * (1 if found["milli"] else 1000)
    if not 1 <= size <= _MOST or size != int(size):
        raise click.BadParameter(f"{text!r} is not a number of cores. Write 4, 0.5 or 500m")
    return int(size)


def _memory(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """A size in MiB."""
    if text is None:
        return None
    found = _MEMORY.fullmatch(text)
    size = 0 if found is None else int(found["number"]) * (1024 if found["unit"] == "Gi" else 1)
    if not 1 <= size <= _MOST:
        raise click.BadParameter(f"{text!r} is not a size. Write 14Gi or 512Mi")
    return size


def _word(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """A text of visible characters without spaces and commas."""
    return None if text is None else _checked(text)


def _labels(_: click.Context, __: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """Labels, separated by commas."""
    return None if text is None else tuple(_checked(each.strip()) for each in text.split(","))


def _group(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """A group of hosts: the value of their label."""
    return label_value(ctx, param, _word(ctx, param, text))


def _class(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """The name of a RuntimeClass, or the part of it that names a runtime."""
    if text is not None and not _CLASS.fullmatch(text):
        raise click.BadParameter(
            f"{text!r} cannot be a RuntimeClass. Use up to 53 lower-case letters (a-z), digits, '-' and '.'"
        )
    return text


def _checked(text: str) -> str:
    if not text or not text.isprintable() or any(char.isspace() or char == "," for char in text):
        raise click.BadParameter(
            f"{text!r} is empty or has a space, a comma or a control character"
        )
    return text


CREATE: tuple[Option, ...] = (
    click.option(
        "--image", callback=_word, metavar="REF", help="Image that each runner starts from."
    ),
    click.option(
        "--replicas",
        type=click.IntRange(0, _MOST),
        help="How many runners to keep ready or busy.  [default for a new pool: 1]",
    ),
    click.option(
        "--labels",
        callback=_labels,
        metavar="A,B",
        help="Labels that a runner registers with.  [default: self-hosted, macOS or Linux, ARM64 or X64]",
    ),
    click.option(
        "--dispatch-label",
        callback=_word,
        metavar="LABEL",
        help="Label in runs-on that leads to this pool; no two pools may share it.  [default: NAME]",
    ),
    click.option(
        "--fleet",
        callback=_group,
        metavar="GROUP",
        help="Group of hosts.  [default: the hosts' own, if there is one]",
    ),
    click.option(
        "--os",
        type=click.Choice(["darwin", "linux"]),
        help="Operating system of the hosts.  [default: that of the hosts]",
    ),
    click.option(
        "--runtime",
        callback=_class,
        metavar="NAME",
        help="Runtime of the hosts' agents: tart, qemu or process.  [default: that of the hosts]",
    ),
    click.option(
        "--runtime-class",
        callback=_class,
        metavar="NAME",
        help="RuntimeClass for hosts with a stock kubelet, such as kata-qemu; instead of --runtime.",
    ),
    click.option(
        "--cpu",
        metavar="CORES",
        callback=_cpu,
        help="Cores of one runner: 4, 0.5, 500m.  [default: a slot's share of a host]",
    ),
    click.option(
        "--memory",
        metavar="SIZE",
        callback=_memory,
        help="Memory of one runner: 14Gi, 512Mi.  [default: a slot's share of a host]",
    ),
    click.option(
        "--max-concurrent-percent",
        type=click.IntRange(1, 100),
        help="How much of the pool an image roll may make unavailable at a time.  [API's default: 5]",
    ),
    click.option(
        "--max-starting",
        type=click.IntRange(1, _MOST),
        help="How many runners may start at once on the group's hosts (kata-qemu only).  [API's default: 4]",
    ),
    click.option(
        "--start-timeout",
        type=click.IntRange(0, _MOST),
        metavar="SECONDS",
        help="How long a start may take; macOS starts get at least 30 min.  [API's default: 300; 0: no limit]",
    ),
    click.option(
        "--idle-timeout",
        type=click.IntRange(0, _MOST),
        metavar="SECONDS",
        help="How long a registered runner may wait for its job.  [default: 0, no limit]",
    ),
)
