# shellcheck shell=sh
# Shared by the guest's scripts: paths, how the exit code is reported, how the machine is halted.
#
# The settings have defaults for a real VM, where the host shares folders; a driver that runs the
# guest as plain processes sets them all. Nothing here is a secret and nothing secret may be put here:
# whatever a script exports, the job inherits.

: "${RUNYARD_ENV_DIR:=/Volumes/My Shared Files/env}"       # tuist.env and sa_token, staged by the host
: "${RUNYARD_TOKEN_DIR:=/Volumes/My Shared Files/token}"   # the same sa_token, where the guest may remove it
: "${RUNYARD_STATUS_DIR:=/Volumes/My Shared Files/status}" # runner-rc and runner.log, for the host
: "${RUNYARD_RUN_DIR:=/var/run/runyard}"                   # private to the poller
: "${RUNYARD_WORK_DIR:=/opt/runyard/work}"                 # the job's; the runner is in its folder runner/
: "${RUNYARD_PYTHON:=}"         # a Python for the few things that sh cannot do
: "${RUNYARD_JOB_USER:=}"       # uid:gid that the job runs as; empty: as the poller
: "${RUNYARD_HALT:=}"           # what powers this machine off, as "shutdown -h now"; empty: the scripts just end
: "${RUNYARD_ENV_RELEASE:=}"    # what takes the shared env folder away when its token cannot be removed
: "${RUNYARD_WIPE_SECONDS:=30}" # that the host has for wiping its copy of a token that the guest has removed
: "${RUNYARD_POLL_PAUSE:=2}"    # seconds between two polls
: "${RUNYARD_POLL_TIMEOUT:=35}" # seconds that one poll may take; the server may hold it for 25 of them
: "${RUNYARD_JIT_FILE:=}"       # 1: the runner takes --jitconfig-file
: "${RUNYARD_DISPATCH_SOCKET:=}" # the Unix socket to poll through, where the server cannot be reached; empty: directly
: "${RUNYARD_LOG_BYTES:=65536}" # of the runner's log that are kept for the host
export RUNYARD_ENV_DIR RUNYARD_TOKEN_DIR RUNYARD_STATUS_DIR RUNYARD_RUN_DIR RUNYARD_WORK_DIR RUNYARD_PYTHON RUNYARD_JOB_USER

say() {
    printf 'runyard: %s\n' "$*" >&2
}

# Write a file atomically: the host may read it at any moment.
put() {
    cat >"$1.new" && mv -f "$1.new" "$1"
}

# The one exit path: every script that sources this file calls it in a trap on EXIT.
finish() {
    trap '' HUP INT TERM
    trap - EXIT
    if [ -f "$RUNYARD_RUN_DIR/runner.log" ]; then
        tail -c "$RUNYARD_LOG_BYTES" "$RUNYARD_RUN_DIR/runner.log" | put "$RUNYARD_STATUS_DIR/runner.log"
    fi
    if [ -d "$RUNYARD_STATUS_DIR" ]; then
        printf '%s\n' "$1" | put "$RUNYARD_STATUS_DIR/runner-rc"
    fi
    say "exits with code $1"
    if [ -n "$RUNYARD_HALT" ]; then
        eval "$RUNYARD_HALT"
    fi
    exit "$1"
}
