"""The socket of a component that serves probes and metrics only, with the access rules of the server's metrics."""

from pathlib import Path

from runyard.cli.options import BadSetting
from runyard.cli.serverfiles import listening_socket, text_of
from runyard.clock import Clock
from runyard.components.probing import ProbeSocket
from runyard.http.metrics_access import AccessError, MetricsAccess, TokenCheck


def probe_socket(listen: str, token_file: Path | None, *, clock: Clock) -> ProbeSocket:
    """The socket of `--listen` and `--metrics-token-file`; `BadSetting` says what is wrong with them.

    There is no dashboard's token here, so the token of the metrics also reads why the component is not ready.
    """
    token = metrics_token(token_file)
    sock = listening_socket(listen)
    try:
        access = MetricsAccess(listen=sock.getsockname()[0], token=token, check=TokenCheck(clock))
    except AccessError as error:
        sock.close()
        raise BadSetting(f"--metrics-token-file: {error}. Use another token") from None
    return ProbeSocket(sock=sock, guard=access.refusal)


def metrics_token(given: Path | None) -> str:
    """The token in the file of `--metrics-token-file`; empty without one."""
    return "" if given is None else text_of("--metrics-token-file", given)
