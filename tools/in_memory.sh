#!/bin/sh
# Runs a command with its temporary files in memory: `in_memory.sh command...`.
# The tests create thousands of small databases and directories; on a disk half of their processor time is the file
# system's. Uses /dev/shm where programs may be started from it and it has 4 GB free, else the usual directory.
set -u

base=/dev/shm
if [ -d "$base" ] && [ -w "$base" ] && [ "$(df -Pk "$base" | awk 'NR == 2 { print $4 }')" -ge 4000000 ]; then
  made=$(mktemp -d "$base/runyard.XXXXXX") || exit
  trap 'chmod -R u+rwX "$made" 2>/dev/null; rm -rf "$made"' EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  printf '#!/bin/sh\n' >"$made/try" && chmod 755 "$made/try"
  if "$made/try" 2>/dev/null; then
    chmod 1777 "$made" # as /tmp: some tests run programs as other users
    TMPDIR=$made
    export TMPDIR
  fi
  rm -f "$made/try"
fi
"$@"
