"""The agent's command line keeps the flags of existing hosts, and names what is wrong with one."""

from pathlib import Path

import pytest

from runyard.cli import tartkubeletrun
from runyard.cli.agentserve import HostPlan, server_ca
from runyard.cli.main import run
from runyard.cli.options import BadSetting
from runyard.cli.tart_kubelet import REFUSED, Flags, tart_kubelet
from runyard.clock import RealClock
from runyard.http.tls import make_authority
from runyard.sim.driver import SimDriver
from runyard.vm.registry import Chosen, Opened, Traits

OPENED = Opened(
    driver=SimDriver(RealClock()),
    name="tart",
    why=Chosen.DRIVER_NAMED.because(),
    traits=Traits(os="darwin", arch="arm64", runtime="tart"),
)
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


def parsed(*argv: str) -> Flags:
    """What the command would run with."""
    seen: list[Flags] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tartkubeletrun, "run", seen.append)
        assert run(tart_kubelet, name="tart-kubelet", argv=argv) == 0
    return seen[0]


def test_every_flag_has_the_default_that_existing_hosts_rely_on() -> None:
    flags = parsed()
    assert (flags.host_cpu, flags.host_memory_mb, flags.max_pods) == (8, 16384, 2)
    assert (flags.metrics_bind_address, flags.health_probe_bind_address) == (":8080", ":8081")
    assert (flags.tart_binary, flags.node_ip_source) == ("/usr/local/bin/tart", "auto")
    assert (flags.driver, flags.vm_slots, flags.disable_vm_gc) == ("tart", 2, False)


def test_every_flag_is_read() -> None:
    flags = parsed(*ALL_FLAGS)
    assert flags.node_labels == {"a": "b", "c": ""}
    assert flags.scrape_allowed_cidr == ("10.0.0.0/8", "fd00::/8")
    assert (flags.provider_id, flags.node_ip) == ("scw-applesilicon://zone/1", "10.0.0.1")
    assert flags.disable_vm_gc and flags.kubeconfig == "/etc/kubeconfig"
    assert parsed("--scrape-allowed-cidr", "10.1.2.3/8").scrape_allowed_cidr == ("10.0.0.0/8",)


def test_a_relative_path_of_tart_is_another_program_for_a_shim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a shim runs in another one
    assert parsed("--tart-binary=bin/tart").tart_binary == str(tmp_path / "bin" / "tart")
    assert parsed("--tart-binary=tart").tart_binary == "tart"


def test_variables_are_read_where_a_flag_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "NODE_NAME": "mini-1",
        "PROVIDER_ID": "scw-applesilicon://zone/1",
        "NODE_IP": "10.0.0.1",
        "NODE_IP_SOURCE": "tailscale",
        "NODE_LABELS": "tuist.dev/fleet=macs",
    }
    for name, value in given.items():
        monkeypatch.setenv(f"TART_KUBELET_{name}", value)
    flags = parsed()
    assert (flags.node_name, flags.provider_id) == ("mini-1", "scw-applesilicon://zone/1")
    assert (flags.node_ip, flags.node_ip_source) == ("10.0.0.1", "tailscale")
    assert flags.node_labels == {"tuist.dev/fleet": "macs"}
    assert parsed("--node-name=mini-2").node_name == "mini-2", "a flag goes first"


def test_the_slots_reach_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = parsed("--vm-slots=1", f"--data={tmp_path}", "--insecure-registry=127.0.0.1:5000")
    plans: list[HostPlan] = []

    def no_service(plan: HostPlan, *_: object, **__: object) -> None:
        plans.append(plan)

    monkeypatch.setattr(tartkubeletrun, "serve_host", no_service)
    monkeypatch.setattr(tartkubeletrun, "run_component", lambda _: None)
    monkeypatch.setattr(tartkubeletrun, "configure", lambda **_: None)
    monkeypatch.setattr(tartkubeletrun, "sockets", lambda *_: ())
    tartkubeletrun.run(flags)
    (plan,) = plans
    assert (plan.wanted.slots, plan.wanted.insecure) == (1, ("127.0.0.1:5000",))


def test_flags_may_be_written_as_go_writes_them() -> None:
    flags = parsed("-node-name=mini-1", "-disable-vm-gc", "-max-pods", "3")
    assert (flags.node_name, flags.disable_vm_gc, flags.max_pods) == ("mini-1", True, 3)
    assert parsed("--disable-vm-gc=false").disable_vm_gc is False
    # Features that are switched off by an empty value; and defaults, which change nothing.
    parsed("--vnc-control-dir=", "--vnc-relay-port=0", "--cache-volume-cas-gib=0")
    parsed("--vnc-control-dir=/var/lib/tart-vnc-control", "--cache-volume-cap-gib=20")
    assert run(tart_kubelet, name="tart-kubelet", argv=["-h"]) == 0


def test_the_arguments_of_an_existing_launchd_agent_are_taken() -> None:
    flags = parsed(
        *("--node-name=mini-1", "--kubeconfig=/etc/tart-kubelet/kubeconfig", "--host-cpu=8"),
        *("--host-memory-mb=16384", "--max-pods=3", "--node-labels=tuist.dev/fleet=macs"),
        *("--node-ip-source=tailscale", "--provider-id=scw-applesilicon://fr-par-1/x"),
        *("--disable-vm-gc", "--vnc-relay-host=", "--vnc-relay-port=0", "--runner-cache-root="),
    )
    assert (flags.max_pods, flags.node_ip_source, flags.disable_vm_gc) == (3, "tailscale", True)


@pytest.mark.parametrize(
    "argv",
    [
        ["-zap-encoder=JSON"],
        ["--zap-stacktrace-level", "debug"],
        ["--zap-stacktrace-level=warn"],
        ["-zap-devel=F", "-disable-vm-gc=T"],
    ],
)
def test_values_that_go_s_flags_take_are_taken(argv: list[str]) -> None:
    assert not parsed(*argv).zap_devel


@pytest.mark.parametrize(
    ("argv", "level"),
    [(["--zap-log-level=debug"], "debug"), (["-zap-log-level=2"], "debug"), ([], "")],
)
def test_the_log_library_s_levels_are_understood(argv: list[str], level: str) -> None:
    assert parsed(*argv).zap_log_level == level


@pytest.mark.parametrize(
    ("argv", "cpu", "memory", "pods"),
    [
        (["--host-cpu=12", "--host-memory-mb=32768", "--max-pods=2"], 12000, 32768, 2),
        (["--host-cpu=0", "--host-memory-mb=0", "--max-pods=0"], 8000, 16384, 2),
    ],
)
def test_the_node_has_the_advertised_size(
    argv: list[str], cpu: int, memory: int, pods: int
) -> None:
    settings = tartkubeletrun.settings_of(
        parsed(*argv, "--node-labels=tuist.dev/fleet=macs"), "n", OPENED, "10.0.0.1"
    )
    assert (settings.cpu_milli, settings.memory_mb, settings.pods) == (cpu, memory, pods)
    assert (settings.fleet, settings.gc, settings.node_ip) == ("macs", True, "10.0.0.1")
    assert (settings.vm_cpu_milli, settings.vm_memory_mb) == (0, 0), "the image's own size"
    assert not tartkubeletrun.settings_of(parsed("--disable-vm-gc"), "n", OPENED, "").gc


def test_metrics_of_a_host_in_a_tailnet_are_not_served_on_other_addresses() -> None:
    flags = parsed("--node-ip-source=tailscale", "--health-probe-bind-address=0")
    (metrics,) = tartkubeletrun.sockets(flags, "127.0.0.2")
    with metrics.sock as sock:
        assert sock.getsockname() == ("127.0.0.2", 8080)
    assert (
        tartkubeletrun.sockets(
            parsed("--metrics-bind-address=0", "--health-probe-bind-address=0"), ""
        )
        == ()
    )


def test_a_file_without_certificates_is_refused_before_the_host_polls(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("-----BEGIN NOTHING-----\n")
    with pytest.raises(BadSetting, match=r"--server-ca-file: .* contains no certificate"):
        server_ca(path)
    path.write_bytes(make_authority(now=0.0).certificate)
    assert server_ca(path) == path.read_text().strip()


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(["--node-ip", "10.0.0.256"], id="address"),
        pytest.param(["--node-ip", "0.0.0.0"], id="address of no host"),
        pytest.param(["--node-ip", "ff02::1"], id="address of a group"),
        pytest.param(["--node-ip", "fe80::1%en0"], id="address of a link"),
        pytest.param(["--node-ip-source", "wifi"], id="address source"),
        pytest.param(["--scrape-allowed-cidr", "10.0.0.0/33"], id="network"),
        pytest.param(["--node-labels", "a=b,c"], id="label without a value"),
        pytest.param(["--node-labels", "=b"], id="label without a key"),
        pytest.param(["--node-labels", "a b=c"], id="blank in a label's key"),
        pytest.param(["--node-labels", "a=b=c"], id="label with two values"),
        pytest.param(["--insecure-registry", "http://x/"], id="URL of a registry"),
        pytest.param(["--insecure-registry", "x:99999"], id="port of a registry"),
        pytest.param(["--max-pods", "-1"], id="negative number"),
        pytest.param(["--max-pods", "1000000"], id="more Pods than a node has"),
        pytest.param(["--host-cpu", "99999999999999999999999"], id="more cores than a host has"),
        pytest.param(
            ["--host-memory-mb", "99999999999999999999"], id="more memory than a host has"
        ),
        pytest.param(["--host-cpu", "many"], id="no number"),
        pytest.param(["--metrics-bind-address", "8080"], id="port alone"),
        pytest.param(["--health-probe-bind-address", ":99999"], id="port too high"),
        pytest.param(["--disable-vm-gc=maybe"], id="neither true nor false"),
        pytest.param(["--disable-vm-gc="], id="an empty truth value"),
        pytest.param(["--zap-encoder=xml"], id="form of the log"),
        pytest.param(["--zap-log-level=loud"], id="level of the log"),
        pytest.param(["--zap-time-encoding=stardate"], id="times of the log"),
        pytest.param(["--zap-stacktrace-level=loud"], id="stack traces of the log"),
        pytest.param(["--vm-slots=0"], id="no slots"),
        pytest.param(["--driver=vmware"], id="driver"),
        pytest.param(["extra"], id="stray argument"),
    ],
)
def test_bad_flags_are_named(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tart_kubelet, name="tart-kubelet", argv=argv) == 2
    said = capsys.readouterr().err
    assert argv[0].partition("=")[0] in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "label", ["kubernetes.io/os=linux", "tuist.dev/runtime=x", "kubernetes.io/hostname=other"]
)
def test_a_label_that_says_what_the_host_is_cannot_be_another(
    label: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--node-name=mini-1", f"--node-labels={label}"]
    assert run(tart_kubelet, name="tart-kubelet", argv=argv) == 2
    assert label.partition("=")[0] in capsys.readouterr().err


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
