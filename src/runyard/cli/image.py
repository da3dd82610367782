"""`runyard image`: what a reference to a VM image means, asked as the node agent asks it.

Exit codes: 0 the image was found, 1 it was not (one line with the cause and the fix), 2 the reference is invalid.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from runyard.cli.tables import show_json
from runyard.text import harmless

if TYPE_CHECKING:
    from runyard.vm.oci.reference import Reference
    from runyard.vm.oci.registry import Image

# Longer than the agent's: a person may have to answer the Keychain's dialog.
_PROGRAM = 45.0
_DEADLINE = 60.0
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


class Resolved(msgspec.Struct, kw_only=True):
    """What `--json` prints."""

    image: str
    reference: str
    digest: str
    download_bytes: int
    disk_bytes: int  # 0: the image does not say
    layers: int
    credentials: str  # the source; empty: none were needed
    credentials_detail: str


@click.group(context_settings={"max_content_width": 110})
def image() -> None:
    """Show what references to VM images mean.

    \b
    runyard image resolve registry.example/acme/macos-runner:sequoia
    """


@image.command()
@click.argument("reference")
@click.option("--insecure", is_flag=True, help="The registry speaks plain HTTP, without TLS.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def resolve(reference: str, *, insecure: bool, as_json: bool) -> None:
    """Ask the registry which digest REFERENCE means now, and how large the image is. Nothing is downloaded.

    REFERENCE is host[:port]/namespace[:tag] or host[:port]/namespace@sha256:digest. Credentials are looked for as tart
    does: TART_REGISTRY_USERNAME and TART_REGISTRY_PASSWORD, ~/.docker/config.json, on macOS the Keychain. The
    output names the source that was used, never the password.

    \b
    runyard image resolve registry.example/acme/macos-runner:sequoia
    runyard image resolve --insecure 127.0.0.1:5000/acme/macos:sequoia
    runyard image resolve --json registry.example/acme/macos:sequoia | jq -r .reference
    """
    from runyard.vm.oci.reference import InvalidReference, parse

    try:
        parsed = parse(reference)
    except InvalidReference as error:
        raise click.UsageError(harmless(str(error))) from None
    found = _ask(parsed, insecure=insecure)
    shown = Resolved(
        image=str(parsed),
        reference=str(found.reference),
        digest=found.reference.digest,
        download_bytes=found.sizes.bytes,
        disk_bytes=found.sizes.disk_bytes,
        layers=found.sizes.layers,
        credentials=found.source.value if found.source else "",
        credentials_detail=found.source_detail,
    )
    if as_json:
        show_json(shown)
    else:
        _show(shown)


def _ask(reference: "Reference", *, insecure: bool) -> "Image":
    import asyncio

    from runyard.clock import RealClock
    from runyard.vm.contract import VmError
    from runyard.vm.oci.registry import Registry, Settings
    from runyard.vm.oci.sources import usual

    clock = RealClock()
    settings = Settings(
        insecure=frozenset({reference.host} if insecure else ()), deadline=_DEADLINE
    )
    sources = usual(os.environ, Path.home(), clock, deadline=_PROGRAM)
    try:
        return asyncio.run(Registry(sources, clock, settings).inspect(str(reference)))
    except VmError as error:
        raise click.ClickException(harmless(str(error))) from None


def _show(found: Resolved) -> None:
    used = f"{found.credentials} ({found.credentials_detail})" if found.credentials else ""
    lines = {
        "image": found.image,
        "digest": found.digest,
        "reference": found.reference,
        "download": f"{_size(found.download_bytes)} in {found.layers} layers",
        "disk": _size(found.disk_bytes) if found.disk_bytes else "unknown: the image does not say",
        "credentials": used or "none needed",
    }
    for name, value in lines.items():
        click.echo(f"{name:12}{harmless(value)}")


def _size(count: int) -> str:
    """A number of bytes as disks and downloads are sold: in powers of 1000."""
    value, unit = float(count), 0
    while value >= 999.95 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{count} bytes"
