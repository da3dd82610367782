"""Sends calls to nodes over HTTPS, and streams their responses to the client.

The certificate of a node must be signed by the given authority, valid for the dialled address, and in the name of
that Node (`system:node:NAME`), so that a host cannot impersonate another one. A real API server checks none of this by
default. The TLS context may also have a client certificate.

Invariants:
- At most `limit` calls are open at a time, and `each` to one Node, so that a Node which does not answer leaves
  capacity for the others; one more is refused with 429.
- Logs and upgraded connections are streamed, not held in memory.
- Connecting and waiting for a response have deadlines; a slow node delays only its own clients.
"""

import ssl

from runyard.embedded.kube.nodeproxy.calls import NodeCall
from runyard.embedded.kube.nodeproxy.refusals import dial_failed, log_refused, too_many, unanswered
from runyard.http.addresses import encode_target
from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.exchange import Peer, exchange
from runyard.http.messages import Pairs, Request, Response, Stream, Upgraded

NODE_USER = "system:node:"
_PLAIN: Pairs = (("content-type", "text/plain"),)
# The writer of a body sets its length headers.
_FRAMING = ("content-length", "transfer-encoding", "keep-alive", "date", "server")


class HttpNodes:
    """A `NodeProxy` over the network."""

    def __init__(
        self,
        tls: ssl.SSLContext | None,
        *,
        limit: int = 256,
        each: int = 64,
        connect: float = 10.0,
        answer: float = 30.0,
    ) -> None:
        self.open = 0  # open calls
        self._open: dict[str, int] = {}  # open calls by Node
        self._tls = tls
        self._limit = limit
        self._each = each
        self._connect = connect
        self._answer = answer

    async def __call__(self, call: NodeCall) -> Response | Stream:
        """Calls the node."""
        if self.open >= self._limit:
            return too_many(f"{self._limit} calls to nodes")
        if self._open.get(call.node, 0) >= self._each:
            return too_many(f"{self._each} calls to the Node {call.node}")
        self._count(call.node, 1)
        try:
            answer = await self._send(call)
        except BaseException:
            self._count(call.node, -1)
            raise
        if isinstance(answer, Response):
            self._count(call.node, -1)
            return answer
        return self._counted(call, answer)

    def _count(self, node: str, more: int) -> None:
        self.open += more
        self._open[node] = self._open.get(node, 0) + more
        if not self._open[node]:
            del self._open[node]

    async def _send(self, call: NodeCall) -> Response | Stream:
        peer = Peer(
            host=call.host,
            port=call.port,
            tls=self._tls,
            name=NODE_USER + call.node if self._tls is not None else "",
            connect=self._connect,
            answer=self._answer,
        )
        scheme = "https" if self._tls is not None else "http"
        url = f"{scheme}://{peer.address}{encode_target(call.path, call.query)}"
        request = Request(
            method=call.method, path=call.path, query=call.query, headers=call.headers
        )
        try:
            answer = await exchange(request, peer)
        except NotSent as error:
            return dial_failed(call, url, peer.address, error)
        except OutcomeUnknown as error:
            return unanswered(call, url, str(error))
        if isinstance(answer, Response):
            return log_refused(call, answer) if call.what == "log" else _refused_upgrade(answer)
        return answer

    def _counted(self, call: NodeCall, answer: Stream) -> Stream:
        """Returns the response with our headers; it counts as open until it is closed."""
        left = [answer.close]

        def close() -> None:
            while left:
                left.pop()()
                self._count(call.node, -1)

        if isinstance(answer, Upgraded):
            headers = tuple(pair for pair in answer.headers if pair[0] not in _FRAMING)
            return Upgraded(answer.serve, headers=headers, on_close=close)
        headers = _PLAIN if call.what == "log" else _content_type(answer.headers)
        return Stream(aiter(answer), status=answer.status, headers=headers, on_close=close)


def _refused_upgrade(answer: Response) -> Response:
    """Returns the response of a node that refused the upgrade."""
    return Response(status=answer.status, headers=_content_type(answer.headers), body=answer.body)


def _content_type(headers: Pairs) -> Pairs:
    return tuple(pair for pair in headers if pair[0] == "content-type") or _PLAIN
