"""helm installs, changes and removes a chart on the embedded API as it does on a real control plane."""

import asyncio
import os
import re
from pathlib import Path

import controlplane
import helm
import pytest
from tests.conformance.kube.commandline import Server, embedded, real
from tests.conftest import Absent

from runyard.wire import manifests

SPACE = "helm-alike"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CHART = {
    "Chart.yaml": "{apiVersion: v2, name: fleet, version: 0.1.0, appVersion: '1'}",
    "values.yaml": "{replicas: 1, image: 'vm:1', labels: [self-hosted]}",
    "templates/account.yaml": "{apiVersion: v1, kind: ServiceAccount, metadata: {name: fleet}}",
    "templates/role.yaml": """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: fleet}
rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]
""",
    "templates/settings.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: fleet, labels: {release: '{{ .Release.Name }}'}}
data: {image: '{{ .Values.image }}', kube: '{{ .Capabilities.APIVersions.Has "tuist.dev/v1alpha1" }}'}
""",
    "templates/pool.yaml": """
apiVersion: tuist.dev/v1alpha1
kind: RunnerPool
metadata: {name: fleet}
spec:
  image: '{{ .Values.image }}'
  fleetSelector: minis
  dispatchLabel: fleet
  runnerLabels: {{ toJson .Values.labels }}
  replicas: {{ .Values.replicas }}
""",
    "templates/NOTES.txt": "{{ .Release.Name }} has {{ .Values.replicas }} runners",
}
COMMANDS = (  # those with a # are refused: an invalid pool, and an object of another release
    "install one chart --wait --timeout=30s",
    "list -o yaml --time-format=x",
    "get manifest one",
    "upgrade one chart --set replicas=3,image=vm:2 --wait --timeout=30s",
    "upgrade one chart --set replicas=-1 #",
    "get values one",
    "history one -o yaml",
    "rollback one 1 --wait --timeout=30s",
    "status one",
    "install two chart --dry-run=server #",
    "uninstall one --wait --timeout=30s",
    "list -q",
)
_TIMES = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z| [+-]\d{4} \w+)|\w{3} \w{3} +\d+ [\d:]+ \d{4}")


def plain(text: str) -> list[str]:
    """The lines that were printed, without times; in no order, because helm has none for what it made."""
    text = re.sub(r"[ \t]+", " ", re.sub(r"\b\d+s\b", "age", _TIMES.sub("time", text)))
    return sorted(line.strip() for line in text.splitlines())


async def prepare(server: Server) -> None:
    for name, text in CHART.items():
        path = server.folder / "chart" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    await server.api.create("/api/v1/namespaces", {"metadata": {"name": SPACE}})
    pools = server.api.path("runnerpools", group="tuist.dev/v1alpha1")

    async def served() -> bool | None:
        return (await server.api.call("GET", pools)).status == 200 or None

    if not await served():
        for definition in manifests.definitions():
            await server.api.create(CRDS, definition)
        await server.api.eventually(served)


async def left(server: Server) -> dict[str, object]:
    """The objects that belong to the release."""
    paths = {
        "pool": server.api.path("runnerpools", "fleet", group="tuist.dev/v1alpha1"),
        "settings": server.api.maps("fleet"),
        "role": server.api.path("roles", "fleet", group="rbac.authorization.k8s.io/v1"),
    }
    found: dict[str, object] = {}
    for name, path in paths.items():
        answer = await server.api.call("GET", path)
        result = answer.json()
        kept = {key: result.get(key) for key in ("spec", "data", "rules")}
        managers = [each["manager"] for each in result.get("metadata", {}).get("managedFields", ())]
        found[name] = (answer.status, kept, result.get("metadata", {}).get("labels"), managers)
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_chart_is_installed_changed_and_removed_alike(
    bare_plane: controlplane.ControlPlane, tmp_path: Path, absent: Absent
) -> None:
    program = helm.find(os.environ)
    if program is None:
        absent("helm", helm.HOW)

    async def main() -> None:
        for name in ("embedded", "real"):
            (tmp_path / name).mkdir()
        async with (
            embedded(tmp_path / "embedded", space=SPACE) as ours,
            real(bare_plane, tmp_path / "real", space=SPACE) as theirs,
        ):
            await prepare(theirs)
            await prepare(ours)
            for line in COMMANDS:
                (code, out), (other_code, other) = await asyncio.gather(
                    theirs.run(program, line), ours.run(program, line)
                )
                assert (other_code, plain(other)) == (code, plain(out)), line
                assert (code != 0) == line.endswith("#"), out
                assert await left(ours) == await left(theirs), line

    asyncio.run(main())
