"""Renders a kubeconfig for this API: what `kubectl` and our components log in with.

The text holds a secret. A caller that writes it to a file makes that file private.
"""

from base64 import b64encode

import yaml


def render(
    server: str, *, token: str, ca: bytes = b"", namespace: str = "", name: str = "runyard"
) -> str:
    """The YAML of a kubeconfig with one cluster, one user and one context.

    `ca` is the PEM of the authority that signed the server's certificate; empty for plain HTTP or for an
    authority that the machine already trusts.
    """
    cluster: dict[str, str] = {"server": server}
    if ca:
        cluster["certificate-authority-data"] = b64encode(ca).decode()
    context = {"cluster": name, "user": name}
    if namespace:
        context["namespace"] = namespace
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }
    return yaml.safe_dump(config, sort_keys=False)
