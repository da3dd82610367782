"""Judges what macOS says of itself: what stops a Mac from running jobs tonight, or after its next restart.

The texts are macOS' own. What it says of a missing setting differs between its versions, so several wordings are known.

Invariant: what is not understood is unknown. Nothing is taken for good because a word is missing.
"""

import ipaddress
import re
from shlex import quote

from runyard.hosts.doctor.plans.findings import (
    Ended,
    Findings,
    Given,
    LoginPassword,
    Output,
    advice,
    command,
    failed,
    not_done,
    not_understood,
    ok,
    problem,
    unknown,
    warning,
)
from runyard.hosts.doctor.plans.reasons import Found
from runyard.wire.reasons import Reason

OLDEST = 13  # the first macOS that tart supports
ASKING = 15  # the first macOS that restricts the local network
EXCEPTING = (15, 5)  # the first one that reads exceptions
USUAL_MASK = "255.255.255.0"
RESERVED = 3  # of each network: its own address, the broadcast address, and the Mac's
NEARLY_ALL = 0.9  # of the addresses
A_DAYS_VMS = 2000  # so many addresses suffice with the longest leases, too
SHORT_LEASE, DEFAULT_LEASE = 3600, 86400
_UPDATE = "sudo defaults write /Library/Preferences/com.apple.SoftwareUpdate"
_LEASE = (
    "sudo defaults write /Library/Preferences/SystemConfiguration/com.apple.InternetSharing.default.plist"
    " bootpd -dict-add DHCPLeaseTimeSecs -int 600"
)
_AT_THE_SCREEN = advice(
    "give that command in Terminal at the Mac's screen, with FileVault off: over SSH it fails. Or choose the user in"
    " System Settings > Users & Groups > Automatically log in as"
)
_ALLOW_PYTHON = advice(
    "or, at the Mac's screen, allow Python in System Settings > Privacy & Security > Local Network"
)
_ALLOWED = (
    "sudo defaults write com.apple.network.local-network Allowed{}LocalNetworkAddresses -array {}"
)
PRIVATE_RANGES = "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16"
_RANGE = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}/\d{1,2}", re.ASCII)


def version_of(output: Output) -> tuple[int, ...]:
    """The numbers of a version; empty if it is none."""
    found = re.fullmatch(r"v?(\d{1,6}(?:\.\d{1,6}){0,3})", output.out.strip(), re.ASCII)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _is_unset(output: Output) -> bool:
    """Whether `defaults` reports that there is no such setting."""
    words = output.out + output.err
    return output.code != 0 and bool(re.search(r"does not exist|Could not find key", words))


def macos_version(given: Given) -> Findings:
    """Judge `sw_vers -productVersion`."""
    [output] = given.outputs
    if why := failed(output):
        return unknown(why)
    version = version_of(output)
    if not version:
        return not_understood(output)
    if version[0] < OLDEST:
        return problem(
            Found.MACOS_OLD.because(version=_dotted(version), least=OLDEST),
            advice("update macOS in System Settings > General > Software Update", reboot=True),
        )
    return ok(Found.MACOS_SUITABLE.because(version=_dotted(version)))


def virtualization(given: Given) -> Findings:
    """Judge `sysctl -n` of `hw.optional.arm64`, `kern.hv_support` and `kern.hv_vmm_present`.

    A Mac with Intel does not know the first one, and says so by an exit code.
    """
    arm, support, inside = given.outputs
    for output in given.outputs:
        if why := not_done(output):
            return unknown(why)
    if arm.code != 0 or arm.out.strip() == "0":
        return problem(Found.NOT_APPLE_SILICON.because(), advice("use a Mac with Apple silicon"))
    if inside.out.strip() == "1":
        return problem(
            Found.INSIDE_VM.because(), advice("run it on the Mac itself, and not in a VM")
        )
    if support.out.strip() == "1" and arm.out.strip() == "1":
        return ok(Found.VMS_SUPPORTED.because())
    if support.out.strip() == "0":
        return problem(Found.VMS_UNSUPPORTED.because(), advice("use a Mac with Apple silicon"))
    return not_understood(support)


def gui_session(given: Given) -> Findings:
    """Judge `launchctl print gui/UID`: only a session at the screen is of the kind Aqua."""
    [output] = given.outputs
    if why := not_done(output):
        return unknown(why)
    uid = given.facts.uid
    kind = re.search(r"^\s*session = (\w+)\s*$", output.out, re.MULTILINE | re.ASCII)
    if output.code == 0 and kind and kind[1] == "Aqua":
        return ok(Found.SESSION_AT_SCREEN.because(uid=uid))
    absent = re.search(r"Could not find domain|Domain does not support", output.out + output.err)
    if (output.code != 0 and absent) or (output.code == 0 and kind):
        return problem(
            Found.SESSION_MISSING.because(uid=uid),
            advice("log in at the Mac's screen or by Screen Sharing, and set up automatic login"),
        )
    return not_understood(output) if output.code == 0 else unknown(_failure(output))


def automatic_user(setting: Output) -> str | None:
    """The user of automatic login; empty if there is none, None if what `defaults` says is not understood."""
    if _is_unset(setting):
        return ""
    name = setting.out.strip()
    known = failed(setting) is None and re.fullmatch(r"[\w.][\w.@-]{0,63}", name)
    return name if known else None


def auto_login(given: Given) -> Findings:
    """Judge the user of automatic login, and whether the password is stored and was accepted."""
    setting, stored = given.outputs
    if why := not_done(setting):
        return unknown(why)
    user = given.facts.user
    fix = command(
        f"sudo sysadminctl -autologin set -userName {quote(user)} -password -", reboot=True
    )
    name = automatic_user(setting)
    if name is None:
        why = failed(setting)
        return unknown(why) if why else not_understood(setting)
    if not name:
        return warning(Found.AUTO_LOGIN_OFF.because(), fix, _AT_THE_SCREEN)
    if name != user:
        return warning(Found.AUTO_LOGIN_OTHER.because(other=name, user=user), fix, _AT_THE_SCREEN)
    if why := not_done(stored):
        return unknown(why)
    password = stored.value
    if not isinstance(password, LoginPassword):
        return not_understood(stored)
    if not password.exists:
        return problem(Found.AUTO_LOGIN_NO_PASSWORD.because(user=user), fix, _AT_THE_SCREEN)
    if password.sealed:
        return problem(Found.AUTO_LOGIN_SEALED.because(user=user), fix, _AT_THE_SCREEN)
    return ok(Found.AUTO_LOGIN_ON.because(user=user))


def waits_for_password(output: Output) -> bool | None:
    """Whether the Mac waits for a password after a restart, by the first line of `fdesetup status`; None: unknown."""
    state = re.match(r"FileVault is (On|Off)\b", output.out)
    if state is None or failed(output):
        return None
    return state[1] == "On" or "Deferred enablement appears to be active" in output.out


def filevault(given: Given) -> Findings:
    """Judge `fdesetup status`, whose first line is on or off; later lines are about progress."""
    [output] = given.outputs
    if why := failed(output):
        return unknown(why)
    waits = waits_for_password(output)
    if waits is None:
        return not_understood(output)
    if waits:
        return warning(Found.FILEVAULT_ON.because(), command("sudo fdesetup disable"))
    return ok(Found.FILEVAULT_OFF.because())


def sleep(given: Given) -> Findings:
    """Judge `pmset -g`: minutes until the Mac sleeps, and who prevents it just now."""
    [output] = given.outputs
    if why := failed(output):
        return unknown(why)
    if re.search(r"^\s*SleepDisabled\s+1\s*$", output.out, re.MULTILINE):
        return ok(Found.STAYS_AWAKE.because())
    found = re.search(
        r"^\s*sleep\s+(\d{1,6})(?:\s+\(sleep prevented by ([^)\n]*)\))?", output.out, re.MULTILINE
    )
    if found is None:
        return not_understood(output)
    minutes = int(found[1])
    fix = command("sudo pmset -a sleep 0 displaysleep 0 disksleep 0")
    if minutes == 0:
        return ok(Found.STAYS_AWAKE.because())
    if found[2]:
        return warning(Found.SLEEP_HELD_OFF.because(minutes=minutes, holder=found[2]), fix)
    return problem(Found.SLEEPS.because(minutes=minutes), fix)


def power_restart(given: Given) -> Findings:
    """Judge `autorestart` of `pmset -g`; Macs with a battery do not have it."""
    [output] = given.outputs
    if why := failed(output):
        return unknown(why)
    found = re.search(r"^\s*autorestart\s+(\d)\b", output.out, re.MULTILINE)
    if found is None:
        if not re.search(r"^\s*sleep\s+\d", output.out, re.MULTILINE):
            return not_understood(output)
        return ok(Found.POWER_RESTART_ABSENT.because())
    if found[1] == "1":
        return ok(Found.POWER_RESTART_ON.because())
    return warning(Found.POWER_RESTART_OFF.because(), command("sudo pmset -a autorestart 1"))


def auto_logout(given: Given) -> Findings:
    """Judge the seconds after which macOS logs an idle user out."""
    [output] = given.outputs
    if why := not_done(output):
        return unknown(why)
    if _is_unset(output):
        return ok(Found.LOGOUT_NEVER.because())
    if why := failed(output):
        return unknown(why)
    found = re.fullmatch(r"(\d{1,9})(?:\.\d+)?", output.out.strip(), re.ASCII)
    if found is None:
        return not_understood(output)
    if int(found[1]) == 0:
        return ok(Found.LOGOUT_NEVER.because())
    return problem(
        Found.LOGOUT_AFTER.because(minutes=int(found[1]) / 60),
        command(
            "sudo defaults write /Library/Preferences/.GlobalPreferences"
            " com.apple.autologout.AutoLogOutDelay -int 0"
        ),
    )


def updates(given: Given) -> Findings:
    """Judge whether macOS looks for updates by itself, and whether it installs what it finds."""
    schedule, install = given.outputs
    looks = re.search(r"checking for updates is turned (on|off)", schedule.out + schedule.err)
    if schedule.ended is Ended.DONE and looks and looks[1] == "off":
        return ok(Found.UPDATES_MANUAL.because())
    if why := not_done(install):
        return unknown(why)
    fix = command(f"{_UPDATE} AutomaticallyInstallMacOSUpdates -bool false")
    if _is_unset(install):
        return warning(Found.UPDATES_UNSET.because(), fix)
    if why := failed(install):
        return unknown(why)
    match install.out.strip():
        case "0":
            return ok(Found.UPDATES_MANUAL.because())
        case "1":
            return warning(Found.UPDATES_AUTOMATIC.because(), fix)
        case _:
            return not_understood(install)


def local_network(given: Given) -> Findings:
    """Judge the exceptions of the local network's protection; they are kept among root's own settings.

    macOS asks once for each program that a launchd agent is. Daemons, root, Terminal and SSH are never restricted, so
    a trial from a terminal would prove nothing.
    """
    release, listed = given.outputs
    if why := failed(release):
        return unknown(why)
    version = version_of(release)
    if not version:
        return not_understood(release)
    if version[0] < ASKING:
        return ok(Found.LOCAL_NETWORK_OPEN.because(version=_dotted(version)))
    if version < EXCEPTING:
        reason = Found.LOCAL_NETWORK_TOO_EARLY.because(
            version=_dotted(version), least=_dotted(EXCEPTING)
        )
        update = "update macOS in System Settings > General > Software Update"
        return warning(reason, advice(update, reboot=True), _ALLOW_PYTHON)
    if why := not_done(listed):
        return unknown(why)
    fixes = [
        command(_ALLOWED.format(kind, PRIVATE_RANGES), reboot=True) for kind in ("Ethernet", "WiFi")
    ]
    fixes.append(_ALLOW_PYTHON)
    if not given.facts.root:
        look = command("sudo defaults read com.apple.network.local-network")
        reason = Found.LOCAL_NETWORK_UNREADABLE.because(version=_dotted(version))
        return unknown(reason, look, *fixes)
    ranges = [] if listed.code else list(dict.fromkeys(_RANGE.findall(listed.out)))
    if ranges:
        return ok(Found.LOCAL_NETWORK_LISTED.because(ranges=", ".join(ranges)))
    if listed.code != 0 and not _is_unset(listed):
        return unknown(_failure(listed))
    if listed.code == 0:
        return not_understood(listed)
    return warning(Found.LOCAL_NETWORK_ASKS.because(), *fixes)


def dhcp_lease(given: Given) -> Findings:
    """Judge how long a VM's address stays taken, and how many are taken now.

    The lease file may be absent: then no VM was ever started.
    """
    setting, mask, leases = given.outputs
    for output in (setting, mask):
        if why := not_done(output):
            return unknown(why)
    if leases.ended in {Ended.REFUSED, Ended.HUNG} and (why := not_done(leases)):
        return unknown(why)
    seconds = _lease_time(setting)
    if seconds is None:
        return not_understood(setting)
    total = _addresses(mask)
    if total is None:
        return not_understood(mask)
    used = taken_addresses(leases.out, now=given.facts.now)
    if used >= NEARLY_ALL * total:
        return problem(
            Found.LEASES_EXHAUSTED.because(used=used, total=total),
            command(_LEASE),
            advice("while no VM runs: sudo rm /var/db/dhcpd_leases"),
        )
    if seconds > SHORT_LEASE and total < A_DAYS_VMS:
        return warning(
            Found.LEASES_LONG.because(hours=seconds / 3600, total=total, used=used),
            command(_LEASE),
        )
    return ok(Found.LEASES_SHORT.because(seconds=seconds, used=used, total=total))


def _lease_time(setting: Output) -> int | None:
    if _is_unset(setting):
        return DEFAULT_LEASE
    if setting.code != 0 or not re.fullmatch(r"\{.*\}", setting.out.strip(), re.DOTALL):
        return None
    found = re.search(r'\bDHCPLeaseTimeSecs"? = "?(\d{1,9})\b', setting.out, re.ASCII)
    return int(found[1]) if found else DEFAULT_LEASE


def _addresses(mask: Output) -> int | None:
    """How many addresses the network of VMs has for them; None if the mask is none."""
    given = USUAL_MASK if _is_unset(mask) else mask.out.strip() if mask.code == 0 else ""
    if not re.fullmatch(r"255(?:\.\d{1,3}){3}", given, re.ASCII):
        return None
    try:
        network = ipaddress.IPv4Network(f"0.0.0.0/{given}")
    except ValueError:
        return None
    return max(1, network.num_addresses - RESERVED)


def taken_addresses(leases: str, *, now: float) -> int:
    """How many addresses have a lease that has not expired."""
    found: set[str] = set()
    address = ""
    for line in leases.splitlines():
        name, _, value = line.strip().partition("=")
        if name == "ip_address":
            address = value
        elif name == "lease" and address and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", value):
            if int(value, 16) > now:
                found.add(address)
        elif name == "}":
            address = ""
    return len(found)


def _failure(output: Output) -> Reason:
    return Found.PROBE_FAILED.because(source=output.source, code=output.code)
