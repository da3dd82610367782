"""The program of an agent that can be killed at each of its effects: the real `tart-kubelet` behind an audit hook.

    python -m tests.node.crashes.agent FOLDER --node-name=… and tart-kubelet's other flags

Requests to the Kubernetes API are effects as well. Its shims are started as killable ones. Pauses are shorter than the
product's where they only make a case slow; pauses after failures are the product's.
"""

import sys
from pathlib import Path

import msgspec
from benches.recovery.points import kube_name
from tests.node.crashes import effects, guards
from tests.node.crashes.effects import AGENT, Effects, plain, switched_off

from runyard.cli import tart_kubelet, tartkubeletrun
from runyard.clock import Clock
from runyard.http.client import HttpTransport
from runyard.http.messages import Request, Response, Stream
from runyard.node.settings import Settings
from runyard.vm import registry
from runyard.vm.registry import Opened, Wanted
from runyard.vm.shim import control
from runyard.vm.shim.orders import Pace
from runyard.vm.tart.driver import TartDriver

ROOT = Path(__file__).resolve().parents[3]
_SHIM = """
import sys
sys.path.append(sys.argv.pop(1))
sys.path.append({root!r})
from tests.node.crashes.shim import install
install({folder!r})
from {program} import main
sys.exit(main(sys.argv[1:]))
"""
_SOURCE = str(Path(control.__file__).resolve().parents[3])


def start_killable_shims(folder: str) -> None:
    """Let the agent start the shim behind its audit hook."""

    def program_argv(program: str, *words: str) -> list[str]:
        text = _SHIM.format(root=str(ROOT), folder=folder, program=program)
        return [sys.executable, "-I", "-S", "-c", text, _SOURCE, *words]

    control.program_argv = program_argv


def count_requests(here: Effects) -> None:
    """Make each request an effect; one about a Pod of this life has its name in it."""
    send = HttpTransport.send

    async def counted(
        self: HttpTransport, request: Request, *, timeout: float
    ) -> Response | Stream:
        if request.method != "GET":
            here.reached(_request_name(request))
        return await send(self, request, timeout=timeout)

    setattr(HttpTransport, "send", counted)  # noqa: B010 a checker refuses the plain form


def _request_name(request: Request) -> str:
    name = kube_name(request)
    if "POD" not in plain(request.path):
        return name
    phase = b'"phase":"'
    at = request.body.find(phase)
    phase_now = request.body[at + len(phase) :].split(b'"')[0].decode() if at >= 0 else ""
    return f"{name} of POD {phase_now}".strip()


def shorten_pauses() -> None:
    """Look at VMs more often than the product does, so that a case takes seconds."""
    made, settings_of = registry._tart_driver, tartkubeletrun.settings_of

    def driver(wanted: Wanted, clock: Clock) -> TartDriver:
        opened = made(wanted, clock)
        opened.tart.settings = msgspec.structs.replace(
            opened.tart.settings,
            start_window=0.1,
            address_retry=0.1,
            pace=Pace(pause=0.1, timeout=5.0, boot=60.0),
        )
        return opened

    def settings(flags: tart_kubelet.Flags, node: str, opened: Opened, address: str) -> Settings:
        usual = settings_of(flags, node, opened, address)
        return msgspec.structs.replace(usual, list_every=0.5, probe_every=3600.0)

    registry._tart_driver = driver
    tartkubeletrun.settings_of = settings


def main() -> None:
    """Run the agent."""
    folder = sys.argv.pop(1)
    shorten_pauses()
    start_killable_shims(folder)
    for name in switched_off(folder):
        if name in guards.OFF:
            guards.OFF[name](Path(folder).parent)
    count_requests(effects.install(AGENT, folder))
    tart_kubelet.main()


if __name__ == "__main__":
    main()
