"""The checks as data: what each looks at, why it matters, and the pure function that judges it.

A probe is a program with a deadline, a file, or an inspection by name (`inspections.py`). The text in braces is filled
from `Facts.names`. `docs/doctor.md` has this table; a test keeps both the same.

Invariant: no probe changes anything on the machine, and none runs as another user.
"""

from collections.abc import Callable
from enum import StrEnum

import msgspec

from runyard.hosts.doctor.plans import everywhere, fleet, host, linux, macos, tart
from runyard.hosts.doctor.plans.findings import Findings, Given
from runyard.hosts.doctor.plans.ids import CheckId
from runyard.hosts.doctor.plans.otherwise import with_fixes

DARWIN, LINUX = "darwin", "linux"
SHORT, LONG = (
    5.0,
    15.0,
)  # deadlines in seconds; the longer one is for what uses the network or wakes a service


class Group(StrEnum):
    """How findings are grouped, in this order."""

    MAC = "mac"
    TART = "tart"
    LINUX = "linux"
    MACHINE = "machine"
    HOST = "host"
    FLEET = "fleet"


class Command(msgspec.Struct, frozen=True):
    """A program that only reads."""

    argv: tuple[str, ...]
    timeout: float = SHORT


class File(msgspec.Struct, frozen=True):
    """The beginning of a file."""

    path: str


class Inspect(msgspec.Struct, frozen=True):
    """A function of `inspections.py`."""

    name: str


Probe = Command | File | Inspect


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check. Its id has its question."""

    id: CheckId
    group: Group
    why: str
    judge: Callable[[Given], Findings]
    probes: tuple[Probe, ...] = ()
    platforms: tuple[str, ...] = (DARWIN, LINUX)
    looks_at: str = ""  # where the probes do not say it

    def findings(self, given: Given) -> Findings:
        """What the judge finds, each with a fix unless it is fine."""
        return with_fixes(self.id, self.judge(given))


def _defaults(domain: str, *key: str) -> Command:
    return Command(("defaults", "read", domain, *key))


def _mac(
    id: CheckId, why: str, judge: Callable[[Given], Findings], *probes: Probe, tart: bool = False
) -> Check:
    group = Group.TART if tart else Group.MAC
    return Check(id=id, group=group, why=why, judge=judge, probes=probes, platforms=(DARWIN,))


def _linux(id: CheckId, why: str, judge: Callable[[Given], Findings], *probes: Probe) -> Check:
    group = Group.LINUX
    return Check(id=id, group=group, why=why, judge=judge, probes=probes, platforms=(LINUX,))


_PREFERENCES = "/Library/Preferences"
_RELEASE = Command(("sw_vers", "-productVersion"))
_POWER = Command(("pmset", "-g"))
_SHARING = f"{_PREFERENCES}/SystemConfiguration/com.apple.InternetSharing.default"
_VMNET = f"{_PREFERENCES}/SystemConfiguration/com.apple.vmnet"
_FOLDER = Inspect("data-directory")

_MACS = (
    _mac(
        CheckId.MACOS_VERSION,
        "tart needs macOS 13, and a guest needs a host that is at least as new",
        macos.macos_version,
        _RELEASE,
    ),
    _mac(
        CheckId.VIRTUALIZATION,
        "macOS VMs start on Apple silicon only, and not inside another VM",
        macos.virtualization,
        Command(("sysctl", "-n", "hw.optional.arm64")),
        Command(("sysctl", "-n", "kern.hv_support")),
        Command(("sysctl", "-n", "kern.hv_vmm_present")),
    ),
    _mac(
        CheckId.GUI_SESSION,
        "without a session at the screen every start of a VM fails (`VZErrorDomain Code=-9`)",
        macos.gui_session,
        Command(("launchctl", "print", "gui/{uid}")),
    ),
    _mac(
        CheckId.FILEVAULT,
        "after a restart an encrypted Mac waits for a password, starts no agent, and logs nobody in automatically",
        macos.filevault,
        Command(("fdesetup", "status"), LONG),
    ),
    _mac(
        CheckId.AUTO_LOGIN,
        "after a restart, a power failure or an update the session must begin without a person",
        macos.auto_login,
        _defaults(f"{_PREFERENCES}/com.apple.loginwindow", "autoLoginUser"),
        Inspect("login-password"),
    ),
    _mac(
        CheckId.SLEEP, "a Mac that sleeps stops its jobs and takes no new ones", macos.sleep, _POWER
    ),
    _mac(
        CheckId.POWER_RESTART,
        "a Mac that stays off after a power failure needs a person to press its button",
        macos.power_restart,
        _POWER,
    ),
    _mac(
        CheckId.AUTO_LOGOUT,
        "a logout ends the session that VMs need",
        macos.auto_logout,
        _defaults(f"{_PREFERENCES}/.GlobalPreferences", "com.apple.autologout.AutoLogOutDelay"),
    ),
    _mac(
        CheckId.UPDATES,
        "an update that installs itself at night restarts the Mac in the middle of jobs",
        macos.updates,
        Command(("softwareupdate", "--schedule"), LONG),
        _defaults(f"{_PREFERENCES}/com.apple.SoftwareUpdate", "AutomaticallyInstallMacOSUpdates"),
    ),
    _mac(
        CheckId.LOCAL_NETWORK,
        'since macOS 15 a launchd agent gets "No route to host" for the local network until it is allowed',
        macos.local_network,
        _RELEASE,
        _defaults("com.apple.network.local-network"),
    ),
    _mac(
        CheckId.DHCP_LEASE,
        "each VM takes one of 253 addresses and keeps it for a day by default; then new VMs have no network",
        macos.dhcp_lease,
        _defaults(_SHARING, "bootpd"),
        _defaults(_VMNET, "Shared_Net_Mask"),
        File("/var/db/dhcpd_leases"),
    ),
    _mac(
        CheckId.TART,
        "tart runs the VMs; older versions have other commands",
        tart.tart,
        Command(("tart", "--version"), LONG),
        tart=True,
    ),
    _mac(
        CheckId.VM_SLOTS,
        "macOS refuses a third macOS VM, whoever started the first two",
        tart.vm_slots,
        Inspect("tart-home"),
        Inspect("own-vms"),
        tart=True,
    ),
    _mac(
        CheckId.IMAGE_SPACE,
        "images take 30 to 80 GB each, and a new version is pulled before the old one is deleted",
        tart.image_space,
        Command(("df", "-P", "-k", "{tart_disk}")),
        Inspect("tart-home"),
        tart=True,
    ),
)

_LINUXES = (
    _linux(
        CheckId.SANDBOX,
        "without bubblewrap a job can read the files of other jobs",
        linux.sandbox,
        Command(("bwrap", "--version")),
    ),
    _linux(
        CheckId.VM_NETWORK,
        "without slirp4netns a job reaches every server that listens on this machine",
        linux.vm_network,
        Command(("slirp4netns", "--version")),
    ),
    _linux(
        CheckId.USER_NAMESPACES,
        "the sandbox of a user who is not root is made of them",
        linux.user_namespaces,
        File("/proc/sys/user/max_user_namespaces"),
        File("/proc/sys/kernel/unprivileged_userns_clone"),
        File("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        Command(("unshare", "--user", "--map-root-user", "true")),
    ),
    _linux(
        CheckId.CGROUPS,
        "without them one job can take all memory and every core",
        linux.cgroups,
        File("/sys/fs/cgroup/cgroup.controllers"),
        Inspect("cgroup-delegated"),
    ),
    _linux(
        CheckId.KVM,
        "a driver with real VMs would need it; none in this release does",
        linux.kvm,
        Inspect("kvm"),
    ),
    _linux(
        CheckId.INOTIFY,
        "all jobs of a user share the limits; builds that watch their files fail beyond them",
        linux.inotify,
        File("/proc/sys/fs/inotify/max_user_watches"),
        File("/proc/sys/fs/inotify/max_user_instances"),
    ),
)


def _every(
    id: CheckId,
    why: str,
    judge: Callable[[Given], Findings],
    *probes: Probe,
    group: Group = Group.MACHINE,
    looks_at: str = "",
) -> Check:
    return Check(id=id, group=group, why=why, judge=judge, probes=probes, looks_at=looks_at)


def _per_platform(
    id: CheckId,
    why: str,
    mac: tuple[Callable[[Given], Findings], tuple[Probe, ...]],
    lin: tuple[Callable[[Given], Findings], tuple[Probe, ...]],
) -> tuple[Check, ...]:
    """One check with other probes on each platform."""
    return tuple(
        Check(id=id, group=Group.MACHINE, why=why, judge=judge, probes=probes, platforms=(name,))
        for name, (judge, probes) in ((DARWIN, mac), (LINUX, lin))
    )


_MACHINES = (
    Check(
        id=CheckId.PYTHON,
        group=Group.MACHINE,
        why="a Python for Intel runs translated on Apple silicon: slow, and it starts the wrong programs",
        judge=everywhere.python,
        probes=(Command(("sysctl", "-n", "hw.optional.arm64")),),
        platforms=(DARWIN,),
    ),
    Check(
        id=CheckId.PYTHON,
        group=Group.MACHINE,
        why="runyard needs Python 3.11",
        judge=everywhere.python,
        platforms=(LINUX,),
        looks_at="the Python that runs this command",
    ),
    _every(
        CheckId.EXTRAS,
        "`runyard up` brings its own Postgres and libraries",
        everywhere.extras,
        looks_at="the installed packages",
    ),
    *_per_platform(
        CheckId.MEMORY,
        "a VM or a job that gets no memory is killed",
        (everywhere.memory, (Command(("sysctl", "-n", "hw.memsize")),)),
        (everywhere.memory, (File("/proc/meminfo"),)),
    ),
    *_per_platform(
        CheckId.CLOCK,
        "GitHub rejects tokens that are dated in the future, and certificates are not yet valid",
        (everywhere.mac_clock, (Command(("sntp", "time.apple.com"), LONG),)),
        (
            everywhere.linux_clock,
            (Command(("timedatectl", "show", "-p", "NTP", "-p", "NTPSynchronized")),),
        ),
    ),
    _every(
        CheckId.OPEN_FILES,
        "launchd gives a process 256 open files, which builds exceed",
        everywhere.open_files,
        looks_at="the limit of this shell (`ulimit -n`)",
    ),
    _every(
        CheckId.DATA_DIRECTORY,
        "it has tokens and keys, and its files must belong to the user who starts the fleet",
        everywhere.data_directory,
        _FOLDER,
    ),
    *_per_platform(
        CheckId.DATA_LOCATION,
        "a database on a network disk or in a synchronised folder gets damaged",
        (everywhere.data_location, (Command(("mount",)), _FOLDER)),
        (everywhere.data_location, (File("/proc/self/mounts"), _FOLDER)),
    ),
    _every(
        CheckId.DATA_SPACE,
        "the database stops when its disk is full",
        everywhere.data_space,
        Command(("df", "-P", "-k", "{data_disk}")),
    ),
)

_FLEET = (
    _every(
        CheckId.COMPONENTS,
        "a component that does not respond does not do its work",
        fleet.components,
        group=Group.FLEET,
        looks_at="the lock and `urls.json` of the data directory, `/healthz` of each component",
    ),
    _every(
        CheckId.CONDITIONS,
        "a fleet whose database, GitHub or API cannot be used looks like one without jobs",
        fleet.conditions,
        group=Group.FLEET,
        looks_at="`/readyz` of the server",
    ),
    _every(
        CheckId.PORTS,
        "links, kubeconfigs and scrapers point at the ports of the last start",
        fleet.ports,
        group=Group.FLEET,
        looks_at="`ports.json` of the data directory, and who listens there",
    ),
    _every(
        CheckId.GITHUB,
        "missing permissions, an old runner or a clock that differs leave jobs queued",
        fleet.github,
        group=Group.FLEET,
        looks_at="what `runyard github check` looks at",
    ),
)

_HOST = (
    _every(
        CheckId.AGENT,
        "a host without its agent takes no jobs; a service starts the agent again",
        host.agent,
        group=Group.HOST,
        looks_at="the lock and `join/membership.json` of the agent's directory, and its service",
    ),
    _every(
        CheckId.MAIN_MACHINE,
        "jobs come from the machine that this one joined",
        host.main_machine,
        group=Group.HOST,
        looks_at="`/healthz` of the main machine, by its own authority, and this host's Node",
    ),
    _every(
        CheckId.CREDENTIAL,
        "when it ends or is revoked, the main machine refuses this host",
        host.credential,
        group=Group.HOST,
        looks_at="age and end of `join/token`, and whether the main machine accepts it",
    ),
)

CHECKS: tuple[Check, ...] = (*_MACS, *_LINUXES, *_MACHINES, *_HOST, *_FLEET)


def checks_for(platform: str) -> tuple[Check, ...]:
    """The checks of a platform, in the order of their groups."""
    return tuple(each for each in CHECKS if platform in each.platforms)
