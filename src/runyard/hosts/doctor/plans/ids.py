"""The checks of `runyard doctor`: the slug that names each, and the question that it answers."""

from runyard.wire.reasons import Code


class CheckId(Code):
    """A check; its template is its question."""

    # macOS
    MACOS_VERSION = "macos-version", "Can this version of macOS run VMs?"
    VIRTUALIZATION = "virtualization", "Can this Mac start macOS VMs?"
    GUI_SESSION = "gui-session", "Is the fleet's user logged in at the screen?"
    AUTO_LOGIN = "auto-login", "Is the fleet's user logged in after a restart?"
    FILEVAULT = "filevault", "Does the Mac start without a password?"
    SLEEP = "sleep", "Does the Mac stay awake?"
    POWER_RESTART = "power-restart", "Does the Mac start again after a power failure?"
    AUTO_LOGOUT = "auto-logout", "Does the user stay logged in?"
    UPDATES = "updates", "Does macOS leave the time of a restart to you?"
    LOCAL_NETWORK = "local-network", "May a service of launchd reach VMs and hosts on the network?"
    DHCP_LEASE = "dhcp-lease", "Are there enough addresses for new VMs?"
    # tart
    TART = "tart", "Is a suitable tart installed?"
    VM_SLOTS = "vm-slots", "Are VM slots free?"
    IMAGE_SPACE = "image-space", "Is there space for images and VMs?"
    # Linux
    SANDBOX = "sandbox", "Can jobs run in a sandbox?"
    VM_NETWORK = "vm-network", "Can each VM have a network of its own?"
    USER_NAMESPACES = "user-namespaces", "May this user create namespaces?"
    CGROUPS = "cgroups", "Can CPU and memory of a job be limited?"
    KVM = "kvm", "Can this user start VMs with KVM?"
    INOTIFY = "inotify", "Can jobs watch enough files?"
    # every machine
    PYTHON = "python", "Does a suitable Python run runyard?"
    EXTRAS = "extras", "Is everything installed that `runyard up` needs?"
    MEMORY = "memory", "Is there enough memory for a job?"
    CLOCK = "clock", "Is the clock right?"
    OPEN_FILES = "open-files", "May a process open enough files?"
    DATA_DIRECTORY = "data-directory", "Is the data directory ours and private?"
    DATA_LOCATION = "data-location", "Is the data directory on a local disk, out of any cloud?"
    DATA_SPACE = "data-space", "Is there space in the data directory?"
    # the agent of a host
    AGENT = "agent", "Does the agent of this host run, also after a restart?"
    MAIN_MACHINE = "main-machine", "Does this host reach the main machine, and get jobs?"
    CREDENTIAL = "credential", "May this host use the main machine, and for how long?"
    # the fleet
    COMPONENTS = "components", "Does `runyard up` run, with all its components?"
    CONDITIONS = "conditions", "Does the fleet do all of its work?"
    PORTS = "ports", "Are the fleet's ports free or its own?"
    GITHUB = "github", "Does GitHub respond, and is it configured as the fleet needs it?"
