"""The certificate that the machine's API presents to a node, and the node certificates that it accepts."""

import asyncio
from pathlib import Path

from tests.embedded.kube_http.fakekubelet import node_context, serving_kubelet

from runyard.clock import RealClock
from runyard.embedded.kube.nodeproxy.calls import NodeCall
from runyard.embedded.kube.nodeproxy.passing import HttpNodes
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.trust import signer, to_nodes
from runyard.http.messages import Stream


def test_a_node_accepts_the_certificate_of_the_api(tmp_path: Path) -> None:
    layout, now = Layout(tmp_path), RealClock().now()

    async def main() -> None:
        tls = node_context(tmp_path / "node", signer(layout, now=now), node="mini-1")
        async with serving_kubelet(tls) as node:
            call = NodeCall(
                node="mini-1",
                host="127.0.0.1",
                port=node.port,
                pod="p",
                what="log",
                method="GET",
                path="/containerLogs/default/p/c",
            )
            answer = await HttpNodes(to_nodes(layout, now=now))(call)
            assert isinstance(answer, Stream)
            await answer.aclose()
            [asked] = node.received
        assert asked.user == "kube-apiserver-kubelet-client"
        assert asked.groups == ("system:masters",)

    asyncio.run(main())
    assert (layout.tls / "kubelet-client.key").stat().st_mode & 0o777 == 0o600
