"""The agent's command line checks every flag and never pretends to have started."""

import pytest

from runyard.cli.main import run
from runyard.cli.tart_kubelet import NO_DRIVER, REFUSED, tart_kubelet

ALL_FLAGS = [
    *("--node-name", "mini-1", "--provider-id", "scw-applesilicon://zone/1"),
    *("--node-ip", "10.0.0.1", "--node-ip-source", "tailscale"),
    *("--scrape-allowed-cidr", "10.0.0.0/8", "--scrape-allowed-cidr", "fd00::/8"),
    *("--node-labels", "a=b,c=", "--host-cpu", "12", "--host-memory-mb", "0", "--max-pods", "2"),
    *("--metrics-bind-address", "127.0.0.1:9090", "--health-probe-bind-address", ":8081"),
    *("--tart-binary", "/opt/tart", "--disable-vm-gc", "--kubeconfig", "/etc/kubeconfig"),
]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in tart_kubelet.params:
        if isinstance(option.envvar, str):
            monkeypatch.delenv(option.envvar, raising=False)


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param([], id="defaults"),
        pytest.param(ALL_FLAGS, id="every flag"),
        pytest.param(["--disable-vm-gc=false"], id="switch with a value"),
        pytest.param(["--vnc-control-dir="], id="feature switched off by an empty value"),
    ],
)
def test_good_flags_end_honestly(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tart_kubelet, name="tart-kubelet", argv=argv) == 2
    assert capsys.readouterr().err == f"tart-kubelet: {NO_DRIVER}\n"


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(["--node-ip", "10.0.0.256"], id="address"),
        pytest.param(["--node-ip-source", "wifi"], id="address source"),
        pytest.param(["--scrape-allowed-cidr", "10.0.0.1/8"], id="host bits in a network"),
        pytest.param(["--node-labels", "a=b,c"], id="label without a value"),
        pytest.param(["--node-labels", "=b"], id="label without a key"),
        pytest.param(["--max-pods", "-1"], id="negative number"),
        pytest.param(["--host-cpu", "many"], id="no number"),
        pytest.param(["--metrics-bind-address", "8080"], id="port alone"),
        pytest.param(["--health-probe-bind-address", ":99999"], id="port too high"),
        pytest.param(["--disable-vm-gc=maybe"], id="neither true nor false"),
        pytest.param(["extra"], id="stray argument"),
    ],
)
def test_bad_flags_are_named(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tart_kubelet, name="tart-kubelet", argv=argv) == 2
    said = capsys.readouterr().err
    assert NO_DRIVER not in said
    assert argv[0].partition("=")[0] in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("flag", sorted(REFUSED))
def test_flags_of_unbuilt_features_are_refused(
    flag: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    variable, feature = REFUSED[flag]
    assert run(tart_kubelet, name="tart-kubelet", argv=[flag, "1"]) == 2
    assert f"{feature} are not part of this version" in capsys.readouterr().err
    monkeypatch.setenv(variable, "1")
    assert run(tart_kubelet, name="tart-kubelet", argv=[]) == 2
    assert variable in capsys.readouterr().err
