"""What the checks of `runyard doctor` find: each reason is one plain sentence, made from its numbers and names."""

from runyard.wire.reasons import Code


class Found(Code):
    """What a check found, and what it means."""

    # of every probe
    PROBE_MISSING = "probe-missing", "{source} is not there, so this cannot be checked"
    PROBE_REFUSED = "probe-refused", "{source} may not be used by this user"
    PROBE_HUNG = "probe-hung", "{source} did not respond within {seconds:g} s"
    PROBE_FAILED = "probe-failed", "{source} ended with exit code {code:d}"
    PROBE_NOT_UNDERSTOOD = (
        "probe-not-understood",
        "the response of {source} has a form that this version of runyard does not know",
    )

    # macOS
    MACOS_SUITABLE = "macos-suitable", "macOS {version}"
    MACOS_OLD = "macos-old", "macOS {version} is too old: tart needs {least:d} or later"
    VMS_SUPPORTED = "vms-supported", "this Mac can start VMs"
    VMS_UNSUPPORTED = "vms-unsupported", "this Mac's processor or system cannot start VMs"
    NOT_APPLE_SILICON = (
        "not-apple-silicon",
        "this Mac has an Intel processor; macOS VMs of tart need Apple silicon",
    )
    INSIDE_VM = "inside-vm", "this Mac is itself a VM, and macOS VMs cannot be nested"
    SESSION_AT_SCREEN = "session-at-screen", "uid {uid:d} is logged in at the screen"
    SESSION_MISSING = (
        "session-missing",
        "uid {uid:d} is not logged in at the screen; without that macOS refuses to start VMs",
    )
    AUTO_LOGIN_ON = "auto-login-on", "{user} is logged in automatically after a restart"
    AUTO_LOGIN_OFF = (
        "auto-login-off",
        "after a restart the Mac waits at the login window, and no VM can start",
    )
    AUTO_LOGIN_OTHER = (
        "auto-login-other",
        "after a restart {other} is logged in, and the fleet's user is {user}",
    )
    AUTO_LOGIN_NO_PASSWORD = (
        "auto-login-no-password",
        "automatic login of {user} is set, but its password is not stored: the login window stays",
    )
    AUTO_LOGIN_SEALED = (
        "auto-login-sealed",
        "macOS has rejected the stored password of {user}: automatic login does not work",
    )
    FILEVAULT_OFF = "filevault-off", "FileVault is off: the Mac starts without a password"
    FILEVAULT_ON = (
        "filevault-on",
        "FileVault is on: after a restart the Mac waits for a password before anything starts",
    )
    STAYS_AWAKE = "stays-awake", "the Mac never sleeps by itself"
    SLEEPS = (
        "sleeps",
        "the Mac sleeps after {minutes:d} idle minutes: its jobs stop, and no new ones start",
    )
    SLEEP_HELD_OFF = (
        "sleep-held-off",
        "the Mac would sleep after {minutes:d} idle minutes; only {holder} keeps it awake now",
    )
    POWER_RESTART_ON = "power-restart-on", "the Mac starts again after a power failure"
    POWER_RESTART_OFF = "power-restart-off", "after a power failure the Mac stays off"
    POWER_RESTART_ABSENT = (
        "power-restart-absent",
        "this Mac has no such setting, as Macs with a battery",
    )
    LOGOUT_NEVER = "logout-never", "the user is not logged out by itself"
    LOGOUT_AFTER = (
        "logout-after",
        "macOS logs the user out after {minutes:g} idle minutes, and VMs can no longer start",
    )
    UPDATES_MANUAL = "updates-manual", "macOS installs no update by itself"
    UPDATES_AUTOMATIC = (
        "updates-automatic",
        "macOS installs its updates by itself, and restarts in the middle of jobs",
    )
    UPDATES_UNSET = (
        "updates-unset",
        "automatic updates are not set, so macOS may install one and restart in the middle of jobs",
    )
    LOCAL_NETWORK_OPEN = "local-network-open", "macOS {version} does not restrict the local network"
    LOCAL_NETWORK_TOO_EARLY = (
        "local-network-too-early",
        "macOS {version} ignores exceptions, which work from {least} on: a launchd agent reaches no host nearby",
    )
    LOCAL_NETWORK_LISTED = "local-network-listed", "every program may reach {ranges}"
    LOCAL_NETWORK_ASKS = (
        "local-network-asks",
        "until it is allowed, again after each update of Python, a launchd agent reaches no VM and no host nearby",
    )
    LOCAL_NETWORK_UNREADABLE = (
        "local-network-unreadable",
        "macOS {version} hides VMs and hosts nearby from launchd agents; only root can read the exceptions",
    )
    LEASES_SHORT = (
        "leases-short",
        "an address is free again after {seconds:d} s; {used:d} of {total:d} are in use",
    )
    LEASES_LONG = (
        "leases-long",
        "each VM keeps its address for {hours:g} h, and there are {total:d}; {used:d} are in use",
    )
    LEASES_EXHAUSTED = (
        "leases-exhausted",
        "{used:d} of {total:d} addresses are in use: new VMs get none and have no network",
    )

    # tart
    TART_SUITABLE = "tart-suitable", "tart {version}"
    TART_ABSENT = "tart-absent", "tart is not installed, so this Mac cannot run macOS VMs"
    TART_OLD = "tart-old", "tart {version} is older than {least}, with which this release is tested"
    TART_UNKNOWN = (
        "tart-unknown",
        "tart {version} is of a generation that this release does not know",
    )
    SLOTS_FREE = "slots-free", "{used:d} of {total:d} VM slots are in use"
    SLOTS_OWN = "slots-own", "{used:d} of {total:d} VM slots are in use, by jobs of this machine"
    SLOTS_TAKEN = (
        "slots-taken",
        "{used:d} of {total:d} VM slots are taken by VMs of others: {names}; macOS refuses a third VM",
    )
    SLOTS_UNRECORDED = (
        "slots-unrecorded",
        "{names} has the name of a job's VM, and no record here: {used:d} of {total:d} VM slots are taken",
    )
    IMAGES_FIT = "images-fit", "{free:.0f} GB are free; the largest image takes {largest:.0f} GB"
    IMAGES_FIRST_FITS = "images-first-fits", "{free:.0f} GB are free for the first image"
    IMAGES_FIRST_TIGHT = (
        "images-first-tight",
        "{free:.0f} GB are free; an image with Xcode takes up to {needed:.0f} GB",
    )
    IMAGES_NEXT_TIGHT = (
        "images-next-tight",
        "{free:.0f} GB are free; the next version of an image of {largest:.0f} GB does not fit beside it",
    )
    IMAGES_NONE_FIT = (
        "images-none-fit",
        "{free:.0f} GB are free: too few for an image",
    )
    IMAGES_FULL = (
        "images-full",
        "{free:.0f} GB are free: too few for an image, and running VMs fail when the disk is full",
    )

    # Linux
    SANDBOX_WORKS = "sandbox-works", "bubblewrap {version}"
    SANDBOX_ABSENT = (
        "sandbox-absent",
        "bubblewrap is not installed: jobs run without a sandbox and can read each other's files",
    )
    NETWORK_WORKS = "network-works", "slirp4netns {version}"
    NETWORK_ABSENT = (
        "network-absent",
        "slirp4netns is not installed: jobs share this machine's network and reach its servers",
    )
    NAMESPACES_GRANTED = "namespaces-granted", "this user may create namespaces"
    NAMESPACES_NOT_NEEDED = "namespaces-not-needed", "root needs none"
    NAMESPACES_REFUSED = (
        "namespaces-refused",
        "this user may not create namespaces, which the sandbox needs: {setting} is {value}",
    )
    NAMESPACES_FAIL = (
        "namespaces-fail",
        "the kernel settings allow namespaces, but creating one fails",
    )
    CGROUPS_DELEGATED = "cgroups-delegated", "{controllers} can be limited"
    CGROUPS_OLD = (
        "cgroups-old",
        "control groups of version 2 are not mounted: nothing can be limited",
    )
    CGROUPS_NOT_DELEGATED = (
        "cgroups-not-delegated",
        "this shell's control group belongs to root: CPU and memory of a job are not limited",
    )
    CGROUPS_PARTIAL = "cgroups-partial", "{missing} of a job cannot be limited here"
    KVM_USABLE = "kvm-usable", "/dev/kvm can be used; runyard does not need it today"
    KVM_ABSENT = "kvm-absent", "there is no /dev/kvm; runyard does not need it today"
    KVM_FORBIDDEN = (
        "kvm-forbidden",
        "this user may not use /dev/kvm: programs that start VMs fail; runyard does not need it today",
    )
    WATCHES_ENOUGH = "watches-enough", "{watches:d} files by {instances:d} watchers"
    WATCHES_FEW = (
        "watches-few",
        "{watches:d} files by {instances:d} watchers: builds that watch their files may fail",
    )

    # every machine
    PYTHON_SUITABLE = "python-suitable", "Python {version} for {arch}"
    PYTHON_OLD = "python-old", "Python {version} is too old: runyard needs {least}"
    PYTHON_TRANSLATED = (
        "python-translated",
        "Python {version} for {arch} is translated by Rosetta: it is slow, and takes this Mac for an Intel one",
    )
    EXTRAS_INSTALLED = "extras-installed", "all packages of `runyard up` are installed"
    EXTRAS_NOT_NEEDED = (
        "extras-not-needed",
        "not all packages of `runyard up` are installed; the agent that runs here needs none of them",
    )
    EXTRAS_MISSING = "extras-missing", "`runyard up` cannot start: {modules} not installed"
    MEMORY_ENOUGH = "memory-enough", "{total:.0f} GB"
    MEMORY_FOR_ONE = (
        "memory-for-one",
        "{total:.0f} GB: enough for one macOS VM at a time, not for two",
    )
    MEMORY_SMALL = "memory-small", "{total:.1f} GB: larger jobs run out of memory"
    MEMORY_TOO_SMALL = "memory-too-small", "{total:.1f} GB: too little for a job beside the fleet"
    CLOCK_RIGHT = "clock-right", "{skew:+.1f} s from time.apple.com"
    CLOCK_SYNCHRONISED = "clock-synchronised", "it is synchronised"
    CLOCK_WRONG = (
        "clock-wrong",
        "{skew:+.1f} s from time.apple.com: GitHub and TLS reject what is dated wrongly",
    )
    CLOCK_OFF = (
        "clock-off",
        "{skew:+.1f} s from time.apple.com: it is not synchronised and will get worse",
    )
    CLOCK_NOT_SYNCHRONISED = (
        "clock-not-synchronised",
        "it is not synchronised: a wrong time makes GitHub and TLS reject requests",
    )
    FILES_ENOUGH = "files-enough", "{soft:d} files"
    FILES_UNLIMITED = "files-unlimited", "no limit"
    FILES_FEW = "files-few", "{soft:d} files: a job or a component may run out of them"
    DATA_PRIVATE = "data-private", "{path}"
    DATA_NEW = "data-new", "{path} will be created"
    DATA_FOREIGN = "data-foreign", "{path} belongs to uid {owner:d}: this user cannot use it"
    DATA_OPEN = "data-open", "{path} can be entered by other users (mode {mode})"
    DATA_READ_ONLY = "data-read-only", "{path} cannot be written by this user"
    DATA_LOCAL = "data-local", "{path} is on {kind}"
    DATA_ON_NETWORK = (
        "data-on-network",
        "{path} is on {kind}, a file system of the network: locks and databases fail there",
    )
    DATA_IN_CLOUD = (
        "data-in-cloud",
        "{path} is synchronised by {cloud}, which damages databases and uploads tokens",
    )
    DATA_HAS_SPACE = "data-has-space", "{free:.0f} GB free"
    DATA_TIGHT = "data-tight", "{free:.1f} GB free: logs, results and jobs may fill the disk"
    DATA_FULL = "data-full", "{free:.1f} GB free: the database stops when the disk is full"

    # the agent
    AGENT_UNASKED = "agent-unasked", "the packages that read its files are not installed"
    AGENT_ABSENT = "agent-absent", "no agent runs with {data}, and this machine has joined no other"
    AGENT_OF_CLUSTER = "agent-of-cluster", "an agent runs with {data} and a kubeconfig of its own"
    AGENT_LEFT = "agent-left", "an agent has left records of Pods in {data}, and does not run"
    AGENT_RUNS = "agent-runs", "it runs as {name}, also after a restart"
    AGENT_DAMAGED = "agent-damaged", "its data directory cannot be used: {why}"
    AGENT_STOPPED = "agent-stopped", "it does not run, so this host takes no jobs; {ended}"
    AGENT_SERVICE_UNKNOWN = (
        "agent-service-unknown",
        "it runs; whether a service starts it again is not known: {why}",
    )
    AGENT_NO_SERVICE = "agent-no-service", "it runs without a service: after a restart it stays off"
    AGENT_BESIDE_SERVICE = (
        "agent-beside-service",
        "it runs, but not as {name}: that service does not run, and the agent stays off after a restart",
    )
    AGENT_NOT_AT_BOOT = "agent-not-at-boot", "it runs as {name}, and not after a restart"
    MAIN_NONE = "main-none", "this machine has joined no other"
    MAIN_REACHED = "main-reached", "{url} responds"
    MAIN_AWAY = "main-away", "{url} does not respond: jobs go on, and no new ones arrive"
    MAIN_OTHER = (
        "main-other",
        "what responds at {url} is not the machine that was joined: its certificate is of another authority",
    )
    MAIN_CLOCK = (
        "main-clock",
        "the clock of this machine is {skew:+.0f} s from that of {url}: certificates and ages are judged wrongly",
    )
    MAIN_UNDATED = (
        "main-undated",
        "the certificate of {url} is not valid by the clock of this machine: one of the two clocks is wrong",
    )
    MAIN_DRAINED = "main-drained", "the main machine gives {name} no jobs: it is drained"
    CREDENTIAL_NONE = "credential-none", "a machine that has joined no other needs none"
    CREDENTIAL_GOOD = (
        "credential-good",
        "{days:.1f} days old, valid for {left:.1f} more; the main machine accepts it",
    )
    CREDENTIAL_ACCEPTED = (
        "credential-accepted",
        "{days:.1f} days old; the main machine accepts it",
    )
    CREDENTIAL_UNASKED = (
        "credential-unasked",
        "{days:.1f} days old; the main machine could not be asked about it",
    )
    CREDENTIAL_UNCHECKED = (
        "credential-unchecked",
        "{days:.1f} days old, valid for {left:.1f} more; the main machine could not be asked about it",
    )
    CREDENTIAL_OLD = (
        "credential-old",
        "{days:.1f} days old and not renewed; it ends in {left:.1f} days, and this host with it",
    )
    CREDENTIAL_EXPIRED = (
        "credential-expired",
        "it ended {days:.1f} days ago: the main machine refuses this host",
    )
    CREDENTIAL_REVOKED = (
        "credential-revoked",
        "the main machine refuses it: this host was removed, or joined again from elsewhere",
    )
    CREDENTIAL_MISSING = "credential-missing", "it is not there, or this user may not read it"

    # the fleet
    MACHINE_UNASKED = "machine-unasked", "its data directory was not read"
    MACHINE_RUNS = "machine-runs", "it runs, and {count:d} components respond"
    MACHINE_STOPPED = "machine-stopped", "it does not run"
    MACHINE_DAMAGED = "machine-damaged", "its data directory cannot be used: {why}"
    COMPONENT_SILENT = "component-silent", "no response from {names}"
    CONDITIONS_WELL = "conditions-well", "no health condition fails"
    CONDITIONS_UNREAD = "conditions-unread", "the server did not report its health conditions"
    CONDITIONS_NOT_ASKED = "conditions-not-asked", "there are none while `runyard up` does not run"
    CONDITION_FAILS = "condition-fails", "{title} ({code})"
    PORTS_FREE = "ports-free", "{count:d} ports are kept for it"
    PORTS_OWN = "ports-own", "it holds its {count:d} ports"
    PORTS_UNCHOSEN = "ports-unchosen", "none are chosen before the first start"
    PORT_TAKEN = (
        "port-taken",
        "port {port:d} of {component} is used by another program: after a start, links and kubeconfigs change",
    )
    GITHUB_UNASKED = "github-unasked", "the packages that speak with GitHub are not installed"
    GITHUB_ABSENT = "github-absent", "no GitHub is configured; the practice GitHub needs none"
    GITHUB_UNUSABLE = "github-unusable", "its configuration cannot be used: {why}"
    GITHUB_LINE = "github-line", "{what}: {found}"


class Next(Code):
    """The next step for a new user."""

    FIX = "fix", "Fix the problems above ({count:d}), then check again"
    NATIVE_PYTHON = "native-python", "Install runyard with a Python for Apple silicon"
    INSTALL_TART = "install-tart", "Install tart, which runs the macOS VMs"
    INSTALL_EXTRAS = "install-extras", "Install what `runyard up` needs"
    START_AGENT = "start-agent", "Start the agent: this host of {url} takes no jobs"
    START_LEFT = "start-left", "An agent has left Pods here: start it again, then check again"
    LIST_HOSTS = "list-hosts", "This is a host of {url}; on that machine, look at its hosts"
    LIST_NODES = "list-nodes", "An agent runs here; look at the Nodes of its cluster"
    START = "start", "Start the fleet on this machine"
    CONNECT_GITHUB = "connect-github", "Connect your GitHub: it creates an App in your browser"
    USE_GITHUB = "use-github", "Stop `runyard up` with Ctrl-C, and start it with your GitHub"
    OPEN_DASHBOARD = "open-dashboard", "All is set up; open the dashboard to watch jobs"
