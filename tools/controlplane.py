"""A real Kubernetes control plane on this machine's loopback, for tests and for looking.

    python tools/controlplane.py             runs one in the foreground and prints how kubectl reaches it
    python tools/controlplane.py --version   says which one the tests will use

It starts etcd, kube-apiserver (authorization Node and RBAC, admission NodeRestriction) and, if wanted,
kube-controller-manager and kube-scheduler, from a directory of binaries: `$KUBEBUILDER_ASSETS`, else what
`make kube-assets` left in the user's cache. Certificates are made by runyard's own authority.

Invariants:
- Everything listens on 127.0.0.1, on ports below those that the system hands out by itself, so that no
  client's outgoing connection can take them first.
- Nothing is left: the processes are killed, not asked (a polite apiserver drains for ten seconds), they die
  with the process that started them, and their state lies in a directory of the caller.
- A server below `MODERN` is never called modern; `ControlPlane.version` says what it is.
"""

import ctypes
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Self

import msgspec

from runyard.embedded.kube import kubeconfig
from runyard.http.tls import (
    Files,
    client_context,
    issue_client,
    issue_server,
    make_authority,
    write_pair,
)

NEEDED = ("etcd", "kube-apiserver")
CONTROLLERS, SCHEDULER = "kube-controller-manager", "kube-scheduler"
MODERN = (1, 30)
HOW = "make kube-assets"

ADMIN = "admin-of-this-control-plane"
_USERS = (  # token, name, groups
    (ADMIN, "admin", "system:masters"),
    ("token-of-the-controllers", "system:kube-controller-manager", ""),
    ("token-of-the-scheduler", "system:kube-scheduler", ""),
)
_AUDIT_POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"
_PORTS = (20000, 32000)
_PATIENCE = 60.0  # a loaded machine; an idle one needs four seconds
_PR_SET_PDEATHSIG = 1
_ENDINGS = (signal.SIGINT, signal.SIGTERM)
_INSECURE_UNTIL = (1, 24)  # older servers open a port without TLS unless told not to

Version = tuple[int, int, int]


class ControlPlaneError(Exception):
    """The control plane does not come up; the message quotes the end of the log."""


class Assets(msgspec.Struct, frozen=True):
    """A directory with the binaries."""

    folder: Path

    @property
    def complete(self) -> bool:
        """Whether the controllers are there as well."""
        return all((self.folder / name).is_file() for name in (*NEEDED, CONTROLLERS, SCHEDULER))


def cache_home(environ: Mapping[str, str]) -> Path:
    """Where `make kube-assets` keeps what it built, one directory a version."""
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".cache"
    return Path(base) / "runyard" / "kube-assets"


def find_assets(environ: Mapping[str, str]) -> Assets | None:
    """The binaries to use; None if there are none. Named ones that lack something are an error."""
    if named := environ.get("KUBEBUILDER_ASSETS"):
        folder = Path(named).absolute()
        if lacking := [name for name in NEEDED if not os.access(folder / name, os.X_OK)]:
            raise ControlPlaneError(f"KUBEBUILDER_ASSETS={named} lacks {', '.join(lacking)}")
        return Assets(folder)
    ready = [path.parent for path in cache_home(environ).glob("*/complete")]
    return Assets(max(ready, key=lambda path: parse_version(path.name))) if ready else None


def parse_version(text: str) -> Version:
    """The numbers of `v1.36.4-something`; zeros if there are none."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)


class Asked(msgspec.Struct, frozen=True):
    """One request as the audit log has it."""

    user: str
    verb: str
    path: str
    code: int
    said: str = ""  # the server's words, of a refusal


class _Named(msgspec.Struct):
    username: str = ""


class _Answer(msgspec.Struct):
    code: int = 0
    message: str = ""


class _AuditEvent(msgspec.Struct, rename="camel"):
    stage: str
    verb: str
    user: _Named
    uri: str = msgspec.field(name="requestURI")
    response_status: _Answer = msgspec.field(default_factory=_Answer)

    def asked(self) -> Asked:
        answer = self.response_status
        return Asked(self.user.username, self.verb, self.uri, answer.code, answer.message)


class ControlPlane:
    """One running control plane; `stop` it, or use it as a context."""

    def __init__(
        self,
        assets: Assets,
        folder: Path,
        *,
        controllers: bool = True,
        scheduler: bool = True,
        users: tuple[tuple[str, str, str], ...] = (),
        audited: bool = False,
    ) -> None:
        self.folder = folder
        self._audited = audited
        self.started_in = 0.0
        self.git_version = ""
        self._assets = assets
        self._users = (*_USERS, *users)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._insecure = _binary_version(assets)[:2] < _INSECURE_UNTIL
        self._chance = random.Random(os.getpid())  # two test processes must not want the same ports
        folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        self._make_credentials()
        try:
            self._start_api()
            if controllers:
                self._start_controllers()
            if scheduler:
                self._start_scheduler()
        except BaseException:
            self.stop()
            raise
        self.started_in = time.monotonic() - began

    # ---- what a client needs

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def version(self) -> Version:
        """The server's version, as numbers."""
        return parse_version(self.git_version)

    @property
    def modern(self) -> bool:
        """Whether this server stands for the clusters that people run."""
        return self.version[:2] >= MODERN

    def tls(self, files: Files | None = None) -> ssl.SSLContext:
        """A client's context that trusts this server; with `files` it shows that certificate."""
        return client_context(self.authority.certificate, files=files)

    def write_kubeconfig(
        self, path: Path, *, token: str = ADMIN, namespace: str = "default"
    ) -> Path:
        """A kubeconfig for kubectl or for one of our parts."""
        text = kubeconfig.render(
            self.url, token=token, ca=self.authority.certificate, namespace=namespace
        )
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
        return path

    def audit(self) -> tuple[Asked, ...]:
        """Every request so far that was answered; only of a control plane that is audited."""
        lines = (self.folder / "audit.log").read_bytes().splitlines()
        found = [msgspec.json.decode(line, type=_AuditEvent) for line in lines]
        return tuple(event.asked() for event in found if event.stage == "ResponseComplete")

    def issue(self, name: str, groups: tuple[str, ...] = ()) -> Files:
        """A client certificate that this server believes."""
        pair = issue_client(self.authority, name, groups, now=time.time())
        return write_pair(self.folder / "clients", name.replace(":", "."), pair)

    # ---- starting

    def _make_credentials(self) -> None:
        now = time.time()
        self.authority = make_authority("runyard-tests", now=now)
        self._ca = write_pair(self.folder, "ca", self.authority)
        server = issue_server(self.authority, ["127.0.0.1", "localhost"], now=now)
        self._server = write_pair(self.folder, "apiserver", server)
        kubelet = issue_client(self.authority, "kube-apiserver", ["system:masters"], now=now)
        self._to_kubelets = write_pair(self.folder, "to-kubelets", kubelet)
        self._accounts = write_pair(self.folder, "accounts", make_authority("accounts", now=now))
        rows = [f'{token},{name},{name},"{groups}"\n' for token, name, groups in self._users]
        self._tokens = self.folder / "tokens.csv"
        self._tokens.touch(mode=0o600)
        self._tokens.write_text("".join(rows), encoding="utf-8")

    def _start_api(self) -> None:
        for attempt in range(3):  # a port may be taken between finding it free and using it
            client, peer, self.port = (self._free_port() for _ in range(3))
            self._start_etcd(client, peer, attempt)
            api = self._start("kube-apiserver", *self._api_arguments(client))
            if self._becomes_ready(api):
                return
            self.stop()
        raise ControlPlaneError(self._last_words("kube-apiserver"))

    def _start_etcd(self, client: int, peer: int, attempt: int) -> None:
        here, there = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self._start(
            "etcd",
            f"--data-dir={self.folder / f'etcd-{attempt}'}",
            f"--listen-client-urls={here}",
            f"--advertise-client-urls={here}",
            f"--listen-peer-urls={there}",
            f"--initial-advertise-peer-urls={there}",
            f"--initial-cluster=default={there}",
            "--unsafe-no-fsync=true",  # these data are worth nothing after the run
        )

    def _api_arguments(self, etcd: int) -> tuple[str, ...]:
        files, kubelets = self._server, self._to_kubelets
        return (
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self.folder}",
            f"--tls-cert-file={files.certificate}",
            f"--tls-private-key-file={files.key}",
            f"--client-ca-file={self._ca.certificate}",
            f"--token-auth-file={self._tokens}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._accounts.certificate}",
            f"--service-account-signing-key-file={self._accounts.key}",
            f"--kubelet-client-certificate={kubelets.certificate}",
            f"--kubelet-client-key={kubelets.key}",
            "--kubelet-preferred-address-types=InternalIP",
            *(("--insecure-port=0",) if self._insecure else ()),
            *(self._audit_arguments() if self._audited else ()),
        )

    def _audit_arguments(self) -> tuple[str, ...]:
        policy = self.folder / "audit.yaml"
        policy.write_text(_AUDIT_POLICY, encoding="utf-8")
        return (f"--audit-policy-file={policy}", f"--audit-log-path={self.folder / 'audit.log'}")

    def _start_controllers(self) -> None:
        self._start(
            CONTROLLERS,
            *self._helper_arguments("controllers", "token-of-the-controllers"),
            f"--service-account-private-key-file={self._accounts.key}",
            f"--root-ca-file={self._ca.certificate}",
            f"--cluster-signing-cert-file={self._ca.certificate}",
            f"--cluster-signing-key-file={self._ca.key}",
            "--use-service-account-credentials=true",
            "--node-monitor-period=1s",
            "--node-monitor-grace-period=10s",
        )

    def _start_scheduler(self) -> None:
        self._start(SCHEDULER, *self._helper_arguments("scheduler", "token-of-the-scheduler"))

    def _helper_arguments(self, name: str, token: str) -> tuple[str, ...]:
        config = self.write_kubeconfig(self.folder / f"{name}.kubeconfig", token=token)
        arguments = (f"--kubeconfig={config}", "--secure-port=0", "--leader-elect=false")
        return (*arguments, "--port=0") if self._insecure else arguments

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{program}.log").open("wb") as log:
            process = subprocess.Popen(
                [self._assets.folder / program, *arguments],
                cwd=self.folder,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call, no lock, no memory
            )
        self._processes.append(process)
        return process

    def _becomes_ready(self, api: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + _PATIENCE
        context = self.tls()
        while api.poll() is None and time.monotonic() < deadline:
            if _get(self.port, "/readyz", context) == b"ok":
                told = msgspec.json.decode(_get(self.port, "/version", context))
                self.git_version = told["gitVersion"]
                return True
            time.sleep(0.05)
        return False

    def _free_port(self) -> int:
        while True:
            port = self._chance.randint(*_PORTS)
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
                return port

    def _last_words(self, program: str) -> str:
        log = (self.folder / f"{program}.log").read_text(errors="replace")
        return f"{program} does not come up:\n" + "\n".join(log.splitlines()[-15:])

    # ---- stopping

    def stop(self) -> None:
        """Kill everything and wait for its end; twice does no harm."""
        for process in reversed(self._processes):
            process.kill()
        for process in self._processes:
            process.wait()
        self._processes.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _binary_version(assets: Assets) -> Version:
    command = [str(assets.folder / "kube-apiserver"), "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return parse_version(told.partition(" ")[2])


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _get(port: int, path: str, context: ssl.SSLContext) -> bytes:
    """What the server answers to the administrator; empty if it does not."""
    connection = HTTPSConnection("127.0.0.1", port, context=context, timeout=5)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {ADMIN}"})
        answer = connection.getresponse()
        body = answer.read()
        return body if answer.status == 200 else b""
    except (OSError, HTTPException):
        return b""
    finally:
        connection.close()


def described(assets: Assets | None) -> str:
    """What the tests will call the real one."""
    if assets is None:
        return f"real Kubernetes: absent; its tests are not run. Fix: {HOW}"
    version = _binary_version(assets)
    number = ".".join(str(part) for part in version)
    judged = "modern" if version[:2] >= MODERN else "NOT modern: some tests are not run"
    return f"real Kubernetes: {number} ({judged}) in {assets.folder}"


def main() -> int:
    """Say which one there is, or run it until interrupted."""
    assets = find_assets(os.environ)
    if sys.argv[1:] == ["--version"]:
        print(described(assets))
        return 0
    if assets is None:
        print(f"there is no kube-apiserver on this machine; {HOW} builds one", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="runyard-kube-") as name:
        folder = Path(name)
        complete = assets.complete
        with ControlPlane(assets, folder, controllers=complete, scheduler=complete) as plane:
            config = plane.write_kubeconfig(folder / "admin.kubeconfig")
            print(f"Kubernetes {plane.git_version} at {plane.url}, up in {plane.started_in:.1f} s")
            print(f"  kubectl --kubeconfig={config} get namespaces", flush=True)
            signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
            signal.sigwait(_ENDINGS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
