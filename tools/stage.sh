#!/bin/sh
# Runs one stage of a longer target: `stage.sh "name" command...`. Prints its name before, its time after,
# and adds a line to the file named by RUNYARD_STAGES when it is set (.ci/run sets it).
set -u
name="$1"
shift
printf '\n── %s\n' "$name"
began=$(date +%s)
"$@"
status=$?
took=$(($(date +%s) - began))
if [ "$status" -eq 0 ]; then verdict=ok; else verdict="failed ($status)"; fi
printf '── %s: %s after %s s\n' "$name" "$verdict" "$took"
if [ -n "${RUNYARD_STAGES:-}" ]; then
  printf '%6s s  %-12s %s\n' "$took" "$verdict" "$name" >>"$RUNYARD_STAGES"
fi
exit "$status"
