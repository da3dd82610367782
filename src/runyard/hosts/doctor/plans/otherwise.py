"""What to do about a finding whose judge knows no fix: most of all, when something could not be checked.

Invariant: each check has an advice, so that no finding but `ok` leaves its reader without one.
"""

import msgspec

from runyard.hosts.doctor.plans.findings import Finding, Findings, Verdict, advice
from runyard.hosts.doctor.plans.ids import CheckId

_BY_HAND = "look at it yourself: "
_SETTINGS = f"{_BY_HAND}System Settings > "
_AS_USER = "repeat this as the user who runs the fleet"
_PACKAGES = "install runyard with its packages: uv tool install --reinstall 'runyard[up]'"
OTHERWISE: dict[CheckId, str] = {
    CheckId.MACOS_VERSION: f"{_SETTINGS}General > About; VMs need macOS 13",
    CheckId.VIRTUALIZATION: f"{_SETTINGS}General > About; VMs need a chip of Apple, outside a VM",
    CheckId.GUI_SESSION: "log in at the Mac's screen or by Screen Sharing, and repeat this there",
    CheckId.AUTO_LOGIN: f"{_SETTINGS}Users & Groups > Automatically log in as",
    CheckId.FILEVAULT: f"{_SETTINGS}Privacy & Security > FileVault; it should be off",
    CheckId.SLEEP: f"{_BY_HAND}pmset -g; sleep should be 0",
    CheckId.POWER_RESTART: f"{_BY_HAND}pmset -g; autorestart should be 1",
    CheckId.AUTO_LOGOUT: f"{_SETTINGS}Privacy & Security > Advanced; nobody should be logged out automatically",
    CheckId.UPDATES: f"{_SETTINGS}General > Software Update > Automatic Updates; macOS should not install its own",
    CheckId.LOCAL_NETWORK: f"{_SETTINGS}Privacy & Security > Local Network; Python should be allowed",
    CheckId.DHCP_LEASE: f"{_BY_HAND}grep -c ip_address /var/db/dhcpd_leases; there are 253 addresses",
    CheckId.TART: f"{_BY_HAND}tart --version; if that fails: brew reinstall cirruslabs/cli/tart",
    CheckId.VM_SLOTS: f"{_BY_HAND}tart list; two macOS VMs may run at once",
    CheckId.IMAGE_SPACE: f"{_BY_HAND}df -h ~/.tart; an image needs 30 to 80 GB",
    CheckId.SANDBOX: "install it again: sudo apt-get install --reinstall bubblewrap",
    CheckId.VM_NETWORK: "install it again: sudo apt-get install --reinstall slirp4netns",
    CheckId.USER_NAMESPACES: f"{_BY_HAND}unshare --user --map-root-user true; it should print nothing",
    CheckId.CGROUPS: f"{_BY_HAND}cat /sys/fs/cgroup/cgroup.controllers; it should name cpu and memory",
    CheckId.KVM: f"{_BY_HAND}ls -l /dev/kvm; without it jobs run as processes all the same",
    CheckId.INOTIFY: f"{_BY_HAND}sysctl fs.inotify; 524288 watches are enough",
    CheckId.PYTHON: "install runyard with another Python: uv tool install --reinstall --python 3.13 'runyard[up]'",
    CheckId.EXTRAS: _PACKAGES,
    CheckId.MEMORY: f"{_BY_HAND}a VM of macOS needs 8 GB, a process 1.5 GB",
    CheckId.CLOCK: f"{_BY_HAND}compare `date -u` with another machine's",
    CheckId.OPEN_FILES: f"{_BY_HAND}ulimit -n; it should be 8192",
    CheckId.DATA_DIRECTORY: f"{_AS_USER}, who must be able to enter the data directory",
    CheckId.DATA_LOCATION: f"{_BY_HAND}df DIR; if the disk is of another machine, choose another one with --data DIR",
    CheckId.DATA_SPACE: f"{_BY_HAND}df -h DIR; 10 GB should be free",
    CheckId.AGENT: f"{_AS_USER}, in a session with a service manager: at the screen, or after loginctl enable-linger",
    CheckId.MAIN_MACHINE: _PACKAGES,
    CheckId.CREDENTIAL: "repeat this once main-machine is fine: the main machine must be asked",
    CheckId.COMPONENTS: f"{_AS_USER}, and with --data if the fleet has another directory",
    CheckId.CONDITIONS: f"{_AS_USER}, and with --data if the fleet has another directory",
    CheckId.PORTS: f"{_AS_USER}, and with --data if the fleet has another directory",
    CheckId.GITHUB: "try again later; for more: runyard github check",
}


def with_fixes(id: CheckId, found: Findings) -> Findings:
    """The findings of a check, each with a fix unless it is fine."""
    return tuple(_with_fix(id, each) for each in found)


def _with_fix(id: CheckId, found: Finding) -> Finding:
    if found.fixes or found.verdict is Verdict.OK:
        return found
    return msgspec.structs.replace(found, fixes=(advice(OTHERWISE[id]),))
