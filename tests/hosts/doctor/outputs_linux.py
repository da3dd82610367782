"""What programs and files of Linux have, good and bad, and what the checks must find in it.

`recorded` outputs are those of Debian 12 and its packages, taken by this project; `documented` ones follow manual
pages and the kernel's documentation; all others vary a number or a name in one of these.
"""

from tests.hosts.doctor.cases import Case, Ran

from runyard.hosts.doctor.plans.findings import Folder, Kvm
from runyard.hosts.doctor.plans.ids import CheckId
from runyard.hosts.doctor.plans.reasons import Found

SLIRP = """slirp4netns version 1.2.0
commit: 656041d45cfca7a4176f6b7eed9e4fe6c11e8383
libslirp: 4.7.0
SLIRP_CONFIG_VERSION_MAX: 4
libseccomp: 2.5.4
"""  # recorded
NO_SYSTEMD = """System has not been booted with systemd as init system (PID 1). Can't operate.
Failed to connect to bus: Host is down
"""  # recorded, exit 1
DF = """Filesystem     1024-blocks     Used Available Capacity Mounted on
/dev/vda         264212084 23268548 {blocks:>9}      25% /
"""  # recorded
MOUNTS = """proc /proc proc rw,relatime 0 0
sysfs /sys sysfs rw,relatime 0 0
/dev/vda / ext4 rw,relatime 0 0
nas:/export /srv/nas nfs4 rw,relatime,vers=4.2 0 0
tmpfs /home/ci/with\\040space tmpfs rw 0 0
"""  # recorded, with two lines in the form of fstab(5)
MEMORY = "MemTotal:       {kb} kB\nMemFree:        19974264 kB\n"  # recorded
MAX, CLONE, APPARMOR = (
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
)
UNSHARE = "unshare --user --map-root-user true"
REFUSED = Ran("", "unshare: unshare failed: Operation not permitted\n", 1)  # documented
WATCHES, INSTANCES = (f"/proc/sys/fs/inotify/max_user_{name}" for name in ("watches", "instances"))
TIME = "timedatectl show -p NTP -p NTPSynchronized"
CONTROLLERS = "/sys/fs/cgroup/cgroup.controllers"
HOME = "/home/ci/.local/share/runyard"


def case(id: CheckId, label: str, found: Found, verdict: str, /, **more: object) -> Case:
    return Case(id=id, label=label, found=found, verdict=verdict, platform="linux", **more)


def folder(**more: object) -> Folder:
    return Folder(
        **{
            "exists": True,
            "path": HOME,
            "owner": 501,
            "mode": 0o700,
            "writable": True,
            "used": True,
            **more,
        }
    )


CASES: list[Case] = [
    case(CheckId.SANDBOX, "there", Found.SANDBOX_WORKS, "ok", ran={"bwrap --version": Ran("bubblewrap 0.8.0\n")}),
    case(CheckId.SANDBOX, "absent", Found.SANDBOX_ABSENT, "warning"),
    case(CheckId.VM_NETWORK, "there", Found.NETWORK_WORKS, "ok", ran={"slirp4netns --version": Ran(SLIRP)}),
    case(CheckId.VM_NETWORK, "absent", Found.NETWORK_ABSENT, "warning"),
    *(
        case(CheckId.USER_NAMESPACES, label, found, verdict, ran={UNSHARE: trial}, files=files, root=root)
        for label, files, trial, root, found, verdict in (
            ("granted", {MAX: "96365\n"}, Ran(""), False, Found.NAMESPACES_GRANTED, "ok"),
            ("root", {MAX: "0\n"}, REFUSED, True, Found.NAMESPACES_NOT_NEEDED, "ok"),
            ("none", {MAX: "0\n"}, REFUSED, False, Found.NAMESPACES_REFUSED, "problem"),
            ("debian", {MAX: "96365\n", CLONE: "0\n"}, REFUSED, False, Found.NAMESPACES_REFUSED, "problem"),
            ("ubuntu", {MAX: "96365\n", APPARMOR: "1\n"}, REFUSED, False, Found.NAMESPACES_REFUSED, "problem"),
            ("allowed-by-a-profile", {MAX: "96365\n", APPARMOR: "1\n"}, Ran(""), False, Found.NAMESPACES_GRANTED, "ok"),
            ("container", {MAX: "96365\n"}, REFUSED, False, Found.NAMESPACES_FAIL, "problem"),
        )
    ),
    *(
        case(CheckId.CGROUPS, label, found, verdict, files=files, values={"cgroup-delegated": own})
        for label, files, own, found, verdict in (
            ("delegated", {CONTROLLERS: "cpuset cpu io memory hugetlb pids rdma misc\n"}, True,
             Found.CGROUPS_DELEGATED, "ok"),
            ("of-root", {CONTROLLERS: "cpuset cpu io memory pids\n"}, False, Found.CGROUPS_NOT_DELEGATED, "warning"),
            ("partial", {CONTROLLERS: "memory pids\n"}, True, Found.CGROUPS_PARTIAL, "warning"),
            ("old", {}, None, Found.CGROUPS_OLD, "warning"),  # recorded: no such file
        )
    ),
    *(
        case(CheckId.KVM, label, found, verdict, values={"kvm": device})
        for label, device, found, verdict in (
            ("usable", Kvm(usable=True, group="kvm"), Found.KVM_USABLE, "ok"),
            ("usable-by-all", Kvm(usable=True), Found.KVM_USABLE, "ok"),
            ("of-a-group", Kvm(usable=False, group="kvm"), Found.KVM_FORBIDDEN, "warning"),
            ("of-root", Kvm(usable=False), Found.KVM_FORBIDDEN, "warning"),
        )
    ),
    case(CheckId.KVM, "absent", Found.KVM_ABSENT, "ok"),
    case(CheckId.INOTIFY, "enough", Found.WATCHES_ENOUGH, "ok", files={WATCHES: "192536\n", INSTANCES: "128\n"}),
    case(CheckId.INOTIFY, "few", Found.WATCHES_FEW, "warning", files={WATCHES: "8192\n", INSTANCES: "128\n"}),
    case(CheckId.PYTHON, "new", Found.PYTHON_SUITABLE, "ok"),
    case(CheckId.PYTHON, "old", Found.PYTHON_OLD, "problem", facts={"python": (3, 10, 12)}),
    case(CheckId.EXTRAS, "all", Found.EXTRAS_INSTALLED, "ok"),
    case(CheckId.EXTRAS, "none", Found.EXTRAS_MISSING, "problem", facts={"extras": ("psycopg", "jwt")}),
    *(
        case(CheckId.MEMORY, label, found, verdict, files={"/proc/meminfo": MEMORY.format(kb=kb)})
        for label, kb, found, verdict in (
            ("24", 24684096, Found.MEMORY_ENOUGH, "ok"),
            ("2", 2048000, Found.MEMORY_SMALL, "warning"),
            ("1", 1000000, Found.MEMORY_TOO_SMALL, "problem"),
        )
    ),
    *(
        case(CheckId.CLOCK, label, found, verdict, ran={TIME: ran})
        for label, ran, found, verdict in (
            ("synchronised", Ran("NTP=yes\nNTPSynchronized=yes\n"), Found.CLOCK_SYNCHRONISED, "ok"),  # documented
            ("not", Ran("NTP=yes\nNTPSynchronized=no\n"), Found.CLOCK_NOT_SYNCHRONISED, "warning"),
            ("container", Ran("", NO_SYSTEMD, 1), Found.PROBE_FAILED, "unknown"),
        )
    ),
    case(CheckId.OPEN_FILES, "many", Found.FILES_ENOUGH, "ok", facts={"open_files": (1024, 1048576)}),
    case(CheckId.OPEN_FILES, "unlimited", Found.FILES_UNLIMITED, "ok", facts={"open_files": (-1, -1)}),
    case(CheckId.OPEN_FILES, "launchd", Found.FILES_FEW, "warning", facts={"open_files": (256, -1)}),
    *(
        case(CheckId.DATA_DIRECTORY, label, found, verdict, values={"data-directory": found_folder}, root=root)
        for label, found_folder, root, found, verdict in (
            ("private", folder(), False, Found.DATA_PRIVATE, "ok"),
            ("of-root-for-vms", folder(owner=0, mode=0o711), True, Found.DATA_PRIVATE, "ok"),
            ("own-under-sudo", folder(), True, Found.DATA_PRIVATE, "ok"),
            ("new", folder(exists=False, owner=0, used=False), False, Found.DATA_NEW, "ok"),
            ("empty", folder(mode=0o755, used=False), False, Found.DATA_PRIVATE, "ok"),
            ("open", folder(mode=0o755), False, Found.DATA_OPEN, "problem"),
            ("foreign", folder(owner=0), False, Found.DATA_FOREIGN, "problem"),
            ("read-only", folder(writable=False, mode=0o500), False, Found.DATA_READ_ONLY, "problem"),
            ("impossible", folder(exists=False, writable=False), False, Found.DATA_READ_ONLY, "problem"),
        )
    ),
    *(
        case(CheckId.DATA_LOCATION, label, found, verdict, files={"/proc/self/mounts": MOUNTS},
             values={"data-directory": folder(path=path)})
        for label, path, found, verdict in (
            ("local", HOME, Found.DATA_LOCAL, "ok"),
            ("beside-the-network", "/srv/nas2/runyard", Found.DATA_LOCAL, "ok"),
            ("network", "/srv/nas/runyard", Found.DATA_ON_NETWORK, "problem"),
            ("dropbox", "/home/ci/Dropbox/runyard", Found.DATA_IN_CLOUD, "problem"),
            ("documents", "/home/ci/Documents/runyard", Found.DATA_LOCAL, "ok"),
        )
    ),
    *(
        case(CheckId.DATA_SPACE, label, found, verdict, ran={"df -P -k /": Ran(DF.format(blocks=blocks))})
        for label, blocks, found, verdict in (
            ("much", 72232716, Found.DATA_HAS_SPACE, "ok"),
            ("tight", 7000000, Found.DATA_TIGHT, "warning"),
            ("full", 1000000, Found.DATA_FULL, "problem"),
            ("over-reserved", -5, Found.DATA_FULL, "problem"),
        )
    ),
]  # fmt: skip
