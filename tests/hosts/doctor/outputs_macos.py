"""What programs of macOS print, good and bad, and what the checks must find in it.

No output below was recorded by this project: it has no Mac. `published` texts were published by people who ran the
command (in tests and notes of other projects, for macOS 14 to 26), `documented` ones follow a manual page, Apple's
technical notes or tart's questions and answers; `varied` ones change a number or a name in one of these.
"""

from tests.hosts.doctor.cases import NOW, Case, Ran, absent, unset

from runyard.hosts.doctor.plans.findings import Folder, LoginPassword, OwnVms, TartHome
from runyard.hosts.doctor.plans.ids import CheckId
from runyard.hosts.doctor.plans.reasons import Found

# published: macOS 15 and 26 on desktop Macs
PMSET_AWAKE = """System-wide power settings:
Currently in use:
 standby              1
 Sleep On Power Button 1
 autorestart          1
 powernap             0
 disksleep            0
 sleep                0 (sleep prevented by powerd, caffeinate)
 hibernatemode        3
 displaysleep         0 (display sleep prevented by remoting_me2me_host)
 womp                 1
"""
# published: a laptop, without autorestart
PMSET_LAPTOP = """System-wide power settings:
Currently in use:
 standby              1
 Sleep On Power Button 1
 SleepDisabled        1
 hibernatefile        /var/vm/sleepimage
 powernap             0
 lidwake              1
 disksleep            10
 sleep                1 (sleep prevented by powerd, coreaudiod)
 displaysleep         10
"""
PMSET_HELD = PMSET_LAPTOP.replace(
    " SleepDisabled        1\n", ""
)  # published, the same without that line
PMSET_SLEEPS = PMSET_AWAKE.replace("0 (sleep prevented by powerd, caffeinate)", "10").replace(
    "autorestart          1", "autorestart          0"
)  # varied
# published: the head of the answer for a user at the screen; it goes on for about 100 KB
AQUA = """gui/501 = {
\ttype = login
\thandle = 100002
\tactive count = 402
\tcreator = loginwindow[415]
\tcreator euid = 0
\tsession = Aqua
\tsecurity context = { uid = 501, asid = 100023 }
}
"""
NO_DOMAIN = "Bad request.\nCould not find domain for user gui: 501\n"  # published, exit 112
UNSUPPORTED = "Could not print domain: 125: Domain does not support specified action\n"  # published
DENIED = "Could not print domain: 1: Operation not permitted\n"  # published
# documented: one block of the file for each lease, in the form that tart reads
LEASE = """{{
\tname=runner
\tip_address=192.168.64.{last}
\thw_address=1,7e:1:2:3:4:{last:x}
\tidentifier=1,7e:1:2:3:4:{last:x}
\tlease=0x{until:x}
}}
"""
# published: `defaults read` of a dictionary
LEASE_600 = "{\n    DHCPLeaseTimeSecs = 600;\n}\n"
LEASE_DAY = "{\n    DHCPLeaseTimeSecs = 86400;\n}\n"
# documented: the exceptions of Apple's technical note, as `defaults read` prints a domain
EXCEPTIONS = """{
    AllowedEthernetLocalNetworkAddresses =     (
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16"
    );
}
"""
MOUNTS = """/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
devfs on /dev (devfs, local, nobrowse)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse, protect, root data)
map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)
//ci@nas.local/builds on /Volumes/builds (smbfs, nodev, nosuid, mounted by ci)
/dev/disk4s1 on /Volumes/My Disk (apfs, local, nodev, nosuid, journaled, noowners)
"""  # published in parts: Apple silicon, macOS 14 and later


def leases(count: int, *, until: float) -> str:
    return "".join(LEASE.format(last=2 + each, until=int(until)) for each in range(count))


def df(free_gb: float) -> str:
    blocks = int(free_gb * 1_000_000_000 / 1024)
    return (
        "Filesystem   1024-blocks      Used Available Capacity  Mounted on\n"
        f"/dev/disk3s5   971350180 402653184 {blocks:>9}    43%    /System/Volumes/Data\n"
    )


DEFAULTS = "defaults read /Library/Preferences"
AUTO = f"{DEFAULTS}/com.apple.loginwindow autoLoginUser"
LOGOUT = f"{DEFAULTS}/.GlobalPreferences com.apple.autologout.AutoLogOutDelay"
INSTALL = f"{DEFAULTS}/com.apple.SoftwareUpdate AutomaticallyInstallMacOSUpdates"
SCHEDULE = "softwareupdate --schedule"
BOOTPD = f"{DEFAULTS}/SystemConfiguration/com.apple.InternetSharing.default bootpd"
MASK = f"{DEFAULTS}/SystemConfiguration/com.apple.vmnet Shared_Net_Mask"
NO_MASK = unset("SystemConfiguration/com.apple.vmnet", "Shared_Net_Mask")
LEASES = "/var/db/dhcpd_leases"
NETWORK = "defaults read com.apple.network.local-network"
RELEASE, GUI = "sw_vers -productVersion", "launchctl print gui/501"
ARM, HV, VMM = (
    f"sysctl -n {name}" for name in ("hw.optional.arm64", "kern.hv_support", "kern.hv_vmm_present")
)
DF = "df -P -k /"


def case(id: CheckId, label: str, found: Found, verdict: str, /, **more: object) -> Case:
    return Case(
        id=id,
        label=label,
        found=found,
        verdict=verdict,
        platform="darwin",
        ran=more.pop("ran", {}),
        **more,
    )


def one(id: CheckId, command: str, /, *rows: tuple[str, Ran, Found, str]) -> list[Case]:
    """Cases of a check with one program."""
    return [
        case(id, label, found, verdict, ran={command: ran}) for label, ran, found, verdict in rows
    ]


HOMES = {
    "idle": TartHome(images=(("registry.example/acme/runner@sha256:0123", 72_000_000_000),)),
}
JOB, JOB_2 = (f"runyard-mac-x{n}-3f2b8c1e-90aa-4d0c-8a6e-5b1f0c7d2e4{n}" for n in (1, 2))
CASES: list[Case] = [
    *one(
        CheckId.MACOS_VERSION,
        RELEASE,
        ("14", Ran("14.7.1\n"), Found.MACOS_SUITABLE, "ok"),  # documented, also the next two
        ("15", Ran("15.5\n"), Found.MACOS_SUITABLE, "ok"),
        ("26", Ran("26.2\n"), Found.MACOS_SUITABLE, "ok"),
        ("12", Ran("12.7.6\n"), Found.MACOS_OLD, "problem"),
        ("fails", Ran("", "", 1), Found.PROBE_FAILED, "unknown"),
    ),
    *(
        case(CheckId.VIRTUALIZATION, label, found, verdict, ran={ARM: arm, HV: hv, VMM: inside})
        for label, arm, hv, inside, found, verdict in (
            ("apple", Ran("1\n"), Ran("1\n"), Ran("0\n"), Found.VMS_SUPPORTED, "ok"),
            ("old-kernel", Ran("1\n"), Ran("1\n"), Ran("", "unknown oid", 1), Found.VMS_SUPPORTED, "ok"),
            ("none", Ran("1\n"), Ran("0\n"), Ran("0\n"), Found.VMS_UNSUPPORTED, "problem"),
            ("vm", Ran("1\n"), Ran("0\n"), Ran("1\n"), Found.INSIDE_VM, "problem"),
            ("intel", Ran("", "sysctl: unknown oid 'hw.optional.arm64'\n", 1), Ran("1\n"), Ran("0\n"),
             Found.NOT_APPLE_SILICON, "problem"),
        )
    ),
    *one(
        CheckId.GUI_SESSION,
        GUI,
        ("at-screen", Ran(AQUA), Found.SESSION_AT_SCREEN, "ok"),
        ("ssh-only", Ran("", NO_DOMAIN, 112), Found.SESSION_MISSING, "problem"),
        ("before-login", Ran("", UNSUPPORTED, 125), Found.SESSION_MISSING, "problem"),
        ("on-stdout", Ran(NO_DOMAIN, "", 112), Found.SESSION_MISSING, "problem"),
        ("background", Ran(AQUA.replace("Aqua", "Background")), Found.SESSION_MISSING, "problem"),
        ("denied", Ran("", DENIED, 1), Found.PROBE_FAILED, "unknown"),
        ("named", Ran(AQUA.replace("\tsession = Aqua\n", "\tlabel = session = Aqua too\n")),
         Found.PROBE_NOT_UNDERSTOOD, "unknown"),
    ),
    *(
        case(CheckId.AUTO_LOGIN, label, found, verdict, ran={AUTO: ran}, values={"login-password": value})
        for label, ran, value, found, verdict in (
            ("on", Ran("ci\n"), LoginPassword(exists=True), Found.AUTO_LOGIN_ON, "ok"),
            ("on-root", Ran("ci\n"), LoginPassword(exists=True, sealed=False), Found.AUTO_LOGIN_ON, "ok"),
            ("off", unset("com.apple.loginwindow", "autoLoginUser"), LoginPassword(exists=False),
             Found.AUTO_LOGIN_OFF, "warning"),
            ("off-worded-anew", Ran("", "Could not find key 'autoLoginUser' in domain\n", 1),
             LoginPassword(exists=False), Found.AUTO_LOGIN_OFF, "warning"),
            ("other", Ran("anna\n"), LoginPassword(exists=True), Found.AUTO_LOGIN_OTHER, "warning"),
            ("no-password", Ran("ci\n"), LoginPassword(exists=False), Found.AUTO_LOGIN_NO_PASSWORD, "problem"),
            ("sealed", Ran("ci\n"), LoginPassword(exists=True, sealed=True), Found.AUTO_LOGIN_SEALED, "problem"),
        )
    ),
    *one(
        CheckId.FILEVAULT,
        "fdesetup status",
        ("off", Ran("FileVault is Off.\n"), Found.FILEVAULT_OFF, "ok"),
        ("on", Ran("FileVault is On.\n"), Found.FILEVAULT_ON, "warning"),
        ("encrypting", Ran("FileVault is On.\nEncryption in progress: Percent completed = 12\n"),
         Found.FILEVAULT_ON, "warning"),
        ("decrypting", Ran("FileVault is Off.\nDecryption in progress: Percent completed = 87\n"),
         Found.FILEVAULT_OFF, "ok"),
        ("garbled", Ran("FileVault master keychain appears to be installed.\n"), Found.PROBE_NOT_UNDERSTOOD, "unknown"),
        ("deferred", Ran("FileVault is Off.\nDeferred enablement appears to be active for user 'ci'.\n"),
         Found.FILEVAULT_ON, "warning"),
    ),
    *one(
        CheckId.SLEEP,
        "pmset -g",
        ("never", Ran(PMSET_AWAKE), Found.STAYS_AWAKE, "ok"),
        ("disabled", Ran(PMSET_LAPTOP), Found.STAYS_AWAKE, "ok"),
        ("held-off", Ran(PMSET_HELD), Found.SLEEP_HELD_OFF, "warning"),
        ("sleeps", Ran(PMSET_SLEEPS), Found.SLEEPS, "problem"),
        ("only-the-display", Ran(" displaysleep         0\n disksleep            0\n"),
         Found.PROBE_NOT_UNDERSTOOD, "unknown"),
    ),
    *one(
        CheckId.POWER_RESTART,
        "pmset -g",
        ("on", Ran(PMSET_AWAKE), Found.POWER_RESTART_ON, "ok"),
        ("laptop", Ran(PMSET_LAPTOP), Found.POWER_RESTART_ABSENT, "ok"),
        ("off", Ran(PMSET_SLEEPS), Found.POWER_RESTART_OFF, "warning"),
    ),
    *one(
        CheckId.AUTO_LOGOUT,
        LOGOUT,
        ("unset", unset(".GlobalPreferences", "com.apple.autologout.AutoLogOutDelay"), Found.LOGOUT_NEVER, "ok"),
        ("zero", Ran("0\n"), Found.LOGOUT_NEVER, "ok"),
        ("hour", Ran("3600\n"), Found.LOGOUT_AFTER, "problem"),
        ("unreadable", Ran("", "Could not read domain\n", 1), Found.PROBE_FAILED, "unknown"),
    ),
    *(
        case(CheckId.UPDATES, label, found, verdict, ran={SCHEDULE: schedule, INSTALL: install})
        for label, schedule, install, found, verdict in (
            ("unscheduled", Ran("Automatic checking for updates is turned off\n"), Ran("1\n"),
             Found.UPDATES_MANUAL, "ok"),
            ("not-installed", Ran("Automatic checking for updates is turned on\n"), Ran("0\n"),
             Found.UPDATES_MANUAL, "ok"),
            ("installed", Ran("Automatic checking for updates is turned on\n"), Ran("1\n"),
             Found.UPDATES_AUTOMATIC, "warning"),
            ("unset", Ran("Automatic checking for updates is turned on\n"),
             unset("com.apple.SoftwareUpdate", "AutomaticallyInstallMacOSUpdates"), Found.UPDATES_UNSET, "warning"),
            ("off-elsewhere", Ran("", "the proxy is turned off\n", 1), Ran("1\n"), Found.UPDATES_AUTOMATIC, "warning"),
        )
    ),
    *(
        case(CheckId.LOCAL_NETWORK, label, found, verdict, ran={RELEASE: Ran(release), NETWORK: listed}, root=root)
        for label, release, listed, root, found, verdict in (
            ("14", "14.7.1\n", absent("com.apple.network.local-network"), False, Found.LOCAL_NETWORK_OPEN, "ok"),
            ("listed", "15.5\n", Ran(EXCEPTIONS), True, Found.LOCAL_NETWORK_LISTED, "ok"),
            ("exceptions-too-early", "15.4.1\n", Ran(EXCEPTIONS), True, Found.LOCAL_NETWORK_TOO_EARLY, "warning"),
            ("asks", "26.2\n", absent("com.apple.network.local-network"), True, Found.LOCAL_NETWORK_ASKS, "warning"),
            ("hidden", "15.5\n", absent("com.apple.network.local-network"), False,
             Found.LOCAL_NETWORK_UNREADABLE, "unknown"),
            ("own-settings-of-a-user", "15.5\n", Ran(EXCEPTIONS), False, Found.LOCAL_NETWORK_UNREADABLE, "unknown"),
            ("unreadable", "15.5\n", Ran("", "Could not read domain\n", 1), True, Found.PROBE_FAILED, "unknown"),
        )
    ),
    *(
        case(CheckId.DHCP_LEASE, label, found, verdict, ran={BOOTPD: setting, MASK: mask},
             files={} if used is None else {LEASES: used})
        for label, setting, mask, used, found, verdict in (
            ("short", Ran(LEASE_600), NO_MASK, leases(2, until=NOW + 600), Found.LEASES_SHORT, "ok"),
            ("short-no-vm-yet", Ran(LEASE_600), NO_MASK, None, Found.LEASES_SHORT, "ok"),
            ("default", unset("InternetSharing.default", "bootpd"), NO_MASK, leases(40, until=NOW + 80_000),
             Found.LEASES_LONG, "warning"),
            ("other-keys", Ran("{\n    Other = 1;\n}\n"), NO_MASK, "", Found.LEASES_LONG, "warning"),
            ("day", Ran(LEASE_DAY), NO_MASK, leases(240, until=NOW - 5), Found.LEASES_LONG, "warning"),
            ("exhausted", Ran(LEASE_DAY), NO_MASK, leases(240, until=NOW + 3600), Found.LEASES_EXHAUSTED, "problem"),
            ("day-in-a-large-network", Ran(LEASE_DAY), Ran("255.255.0.0\n"), leases(240, until=NOW + 3600),
             Found.LEASES_SHORT, "ok"),
            ("mask-not-understood", Ran(LEASE_600), Ran("255.0.255.0\n"), "", Found.PROBE_NOT_UNDERSTOOD, "unknown"),
            ("short-but-exhausted", Ran(LEASE_600), NO_MASK, leases(240, until=NOW + 3600),
             Found.LEASES_EXHAUSTED, "problem"),
        )
    ),
    *one(
        CheckId.TART,
        "tart --version",
        ("tested", Ran("2.32.1\n"), Found.TART_SUITABLE, "ok"),
        ("newer", Ran("2.40.0\n"), Found.TART_SUITABLE, "ok"),
        ("older", Ran("2.20.2\n"), Found.TART_OLD, "warning"),
        ("next", Ran("3.0.0\n"), Found.TART_UNKNOWN, "warning"),
        ("from-source", Ran("SNAPSHOT\n"), Found.PROBE_NOT_UNDERSTOOD, "unknown"),
    ),
    case(CheckId.TART, "absent", Found.TART_ABSENT, "problem"),
    *(
        case(CheckId.VM_SLOTS, label, found, verdict, running=running,
             values={"tart-home": TartHome(running=vms), "own-vms": OwnVms(names=own)})
        for label, vms, own, running, found, verdict in (
            ("free", (), (), False, Found.SLOTS_FREE, "ok"),
            ("others", ("sonoma-test", "xcode dev"), (), False, Found.SLOTS_TAKEN, "warning"),
            ("others-beside-the-fleet", ("sonoma-test",), (), True, Found.SLOTS_TAKEN, "warning"),
            ("own", (JOB, JOB_2), (JOB_2, JOB, "ended"), True, Found.SLOTS_OWN, "ok"),
            ("own-of-an-agent-that-restarts", (JOB,), (JOB,), False, Found.SLOTS_OWN, "ok"),
            ("own-and-another", (JOB, "xcode dev"), (JOB,), False, Found.SLOTS_TAKEN, "warning"),
            ("of-an-agent-elsewhere", (JOB,), (), False, Found.SLOTS_UNRECORDED, "warning"),
        )
    ),
    *(
        case(CheckId.IMAGE_SPACE, label, found, verdict, ran={DF: Ran(df(free))}, values={"tart-home": home})
        for label, free, home, found, verdict in (
            ("fits", 300, HOMES["idle"], Found.IMAGES_FIT, "ok"),
            ("first", 300, TartHome(), Found.IMAGES_FIRST_FITS, "ok"),
            ("first-tight", 60, TartHome(), Found.IMAGES_FIRST_TIGHT, "warning"),
            ("next-tight", 60, HOMES["idle"], Found.IMAGES_NEXT_TIGHT, "warning"),
            ("first-full", 30, TartHome(), Found.IMAGES_NONE_FIT, "problem"),
            ("full", 9, HOMES["idle"], Found.IMAGES_FULL, "problem"),
        )
    ),
    *(
        case(CheckId.PYTHON, label, found, verdict, ran={ARM: ran}, facts=facts)
        for label, ran, facts, found, verdict in (
            ("native", Ran("1\n"), {}, Found.PYTHON_SUITABLE, "ok"),
            ("intel", Ran("", "unknown oid", 1), {"arch": "x86_64"}, Found.PYTHON_SUITABLE, "ok"),
            ("rosetta", Ran("1\n"), {"arch": "x86_64"}, Found.PYTHON_TRANSLATED, "problem"),
            ("old", Ran("1\n"), {"python": (3, 9, 6)}, Found.PYTHON_OLD, "problem"),
        )
    ),
    *(
        case(CheckId.DATA_LOCATION, label, found, verdict, ran={"mount": Ran(MOUNTS)},
             values={"data-directory": Folder(exists=True, path=path)})
        for label, path, found, verdict in (
            ("local", "/Users/ci/.local/share/runyard", Found.DATA_LOCAL, "ok"),
            ("share", "/Volumes/builds/runyard", Found.DATA_ON_NETWORK, "problem"),
            ("documents", "/Users/ci/Documents/fleet", Found.DATA_IN_CLOUD, "problem"),
            ("icloud", "/Users/ci/Library/Mobile Documents/x", Found.DATA_IN_CLOUD, "problem"),
        )
    ),
    *one(
        CheckId.MEMORY,
        "sysctl -n hw.memsize",
        ("48", Ran("51539607552\n"), Found.MEMORY_ENOUGH, "ok"),  # published, also the next one
        ("16", Ran("17179869184\n"), Found.MEMORY_ENOUGH, "ok"),
        ("8", Ran("8589934592\n"), Found.MEMORY_FOR_ONE, "warning"),
        ("4", Ran("4294967296\n"), Found.MEMORY_TOO_SMALL, "problem"),
        ("none", Ran("0\n"), Found.PROBE_NOT_UNDERSTOOD, "unknown"),
    ),
    *one(
        CheckId.CLOCK,
        "sntp time.apple.com",
        ("right", Ran("+0.024490 +/- 0.016059 time.apple.com 17.253.2.43\n"), Found.CLOCK_RIGHT, "ok"),
        ("right-after-date",
         Ran("2026-04-19 19:45:00.123456 (-0700) -0.004321 +/- 0.02 time.apple.com 17.253.84.253\n"),
         Found.CLOCK_RIGHT, "ok"),
        ("off", Ran("+13.480000 +/- 0.045000 time.apple.com 17.253.84.253\n"), Found.CLOCK_OFF, "warning"),
        ("wrong", Ran("-3600.1 +/- 0.045 time.apple.com 17.253.84.253\n"), Found.CLOCK_WRONG, "problem"),
        ("unreachable", Ran("", "sntp: Exchange failed: Timeout\n", 1), Found.PROBE_FAILED, "unknown"),
    ),
]  # fmt: skip
