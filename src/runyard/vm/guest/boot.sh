#!/bin/sh
# The boot script of a VM: import the environment that the host has staged, then poll for work.
#
# On every exit path, this script and the poller leave an exit code for the host and then halt the machine.
set -u
umask 077
here=$(cd "$(dirname "$0")" && pwd) || exit 1
# shellcheck source=src/runyard/vm/guest/lib.sh
. "$here/lib.sh"
trap 'finish $?' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP

mkdir -p "$RUNYARD_RUN_DIR" || exit 1
"$here/inject-env.sh" || exit 1
# shellcheck disable=SC1091 # written a line above
. "$RUNYARD_RUN_DIR/env.sh" || exit 1
exec "$here/dispatch-poll.sh"
