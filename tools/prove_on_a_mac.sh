#!/bin/sh
# Checks on a real Mac what no other machine can prove, and writes a report that can be sent to the project.
#
#   sh tools/prove_on_a_mac.sh [--up] [--join] [--service] IMAGE [REPORT]
#
# IMAGE is a macOS image with tart's guest agent, for example HOST/cirruslabs/macos-runner:sequoia. It is pulled unless
# it is there. REPORT is a file, by default runyard-mac-report.txt. The script makes VMs whose names begin with
# runyard-proof, never touches others, and deletes its own at the end; run it while no other VM runs. No secret gets
# into the report: the names of user and host, the home directory and VNC passwords are replaced.
#
# Without an option it starts tart alone. These change more, and undo it at the end:
#   --up       runs `runyard up` with a data directory of its own: the fleet makes VMs, runs a job, loses its agent
#   --join     as --up, and joins this machine to itself as a second host, over loopback
#   --service  installs `runyard up` as a service that starts at login, and removes it
#
# A line of the report begins with PASS, FAIL, NOTE (a fact to compare) or SKIP. The exit code is the number of FAILs,
# at most 100.
# shellcheck disable=SC2329 # functions are called by name: by until_true and by the trap
set -u

fleet="" join="" service=""
while :; do
  case "${1:-}" in
    --up) fleet=yes ;;
    --join) fleet=yes join=yes ;;
    --service) service=yes ;;
    *) break ;;
  esac
  shift
done
image="${1:-}"
report="${2:-runyard-mac-report.txt}"
case "$image" in
  "" | -*)
    sed -n '2,17s/^# \{0,1\}//p' "$0" >&2
    exit 64
    ;;
esac

top="$(cd "$(dirname "$0")/.." && pwd)"
python="${PYTHON:-$top/.venv/bin/python}"
leases="${RUNYARD_LEASES:-/var/db/dhcpd_leases}"
boot_seconds="${RUNYARD_BOOT_SECONDS:-300}"
pull_seconds="${RUNYARD_PULL_SECONDS:-7200}"
insecure="${RUNYARD_INSECURE_REGISTRY:-}" # host:port of a registry without TLS; tests have one
none="runyard-proof-none"
one="runyard-proof-1"
two="runyard-proof-2"
three="runyard-proof-3"
work="$(mktemp -d)"
failures=0
: >"$report"

# ------------------------------------------------------------------------------------------------- reporting

literal() { # as an extended regular expression
  printf '%s' "$1" | sed -e 's/[][\\.*^$+?(){}|#]/\\&/g'
}

clean() { # removes who and where this is; names are replaced twice, because neighbours share the character between them
  user="$(literal "$(id -un)")"
  host="$(hostname 2>/dev/null || uname -n)"
  host="$(literal "${host%%.*}")"
  user="s#(^|[^[:alnum:]])$user([^[:alnum:]]|\$)#\\1USER\\2#g"
  host="s#(^|[^[:alnum:]])$host([^[:alnum:]]|\$)#\\1HOST\\2#g"
  sed -E -e "s#$(literal "${HOME:-/nowhere}")#~#g" -e "s#$(literal "$work")#WORK#g" \
    -e "$user" -e "$user" -e "$host" -e "$host" \
    -e 's#vnc://[^@]*@#vnc://REDACTED@#g' \
    -e 's#[0-9a-f]{1,2}(:[0-9a-f]{1,2}){5}#MAC-ADDRESS#g'
}

line() { # word, text
  printf '%s  %s\n' "$1" "$2" | clean | tee -a "$report"
}

pass() { line PASS "$1"; }
note() { line NOTE "$1"; }
skip() { line SKIP "$1"; }
fail() {
  line FAIL "$1"
  failures=$((failures + 1))
}

check() { # what; the words of a test
  what="$1"
  shift
  if "$@"; then pass "$what"; else fail "$what"; fi
}

at_most() { # seconds: no more than RUNYARD_LONGEST, which keeps a test of this script short
  if [ "$1" -gt "${RUNYARD_LONGEST:-$1}" ]; then echo "$RUNYARD_LONGEST"; else echo "$1"; fi
}

within() { # seconds, command: macOS has no `timeout`
  limit="$(at_most "$1")"
  shift
  perl -e 'alarm shift; exec @ARGV or exit 127' "$limit" "$@"
}

ask() { # seconds, command: output to out and err, the code to $code
  within "$@" >"$work/out" 2>"$work/err" </dev/null
  code=$?
}

said() { # whether the last command said exactly this on stderr
  [ "$(cat "$work/err")" = "$1" ]
}

expect() { # what, code, text on stderr, command: exactly these
  what="$1" wanted="$2" text="$3"
  shift 3
  ask 60 "$@"
  if [ "$code" -eq "$wanted" ] && said "$text"; then
    pass "$what: exit code $wanted and tart's text"
  else
    fail "$what: exit code $code instead of $wanted, or another text: $(head -c 300 "$work/err" | tr '\n' ' ')"
  fi
}

state() { # of a VM, from the list
  within 30 tart list --format json 2>/dev/null | "$python" -c '
import json, sys
print(next((row["State"] for row in json.load(sys.stdin) if row["Name"] == sys.argv[1]), "absent"))' "$1"
}

until_true() { # seconds, command
  left="$(at_most "$1")"
  shift
  while [ "$left" -gt 0 ]; do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 1
    left=$((left - 1))
  done
  return 1
}

start() { # VM, options of run: its pid is in $started
  name="$1"
  shift
  tart run "$name" --no-graphics "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null &
  started=$!
}

is_running() { [ "$(state "$1")" = running ]; }
agent_answers() { within 10 tart exec "$1" true; }

ended() { # pid, seconds: waits for it, its code is in $code
  if ! until_true "$2" sh -c "! kill -0 $1"; then
    kill -KILL "$1" 2>/dev/null
  fi
  wait "$1"
  code=$?
}

runyard() { PYTHONPATH="$top/src" "$python" -m runyard.cli.main "$@"; }

run_up() { # data directory, options: `runyard up`, its pid is in $started; PATH of tart and HOME are this shell's
  data="$1"
  shift
  PYTHONPATH="$top/src" "$python" -m runyard.cli.main up --plain --driver tart --image "$image" \
    ${insecure:+--insecure-registry "$insecure"} --data "$data" "$@" >"$data.out" 2>&1 </dev/null &
  started=$!
  up_pid=$started
}

stop_up() { # asks it to stop; its code is in $code
  kill -INT "$up_pid" 2>/dev/null
  ended "$up_pid" 60
  up_pid=""
}

overview() { # a fact of the fleet, as an expression over the JSON of `runyard status`
  within 60 env PYTHONPATH="$top/src" "$python" -m runyard.cli.main status --json --data "$work/fleet" \
    2>/dev/null </dev/null | "$python" -c '
import json, sys
view = json.load(sys.stdin)
sys.exit(not eval(sys.argv[1], {"view": view, "hosts": view["hosts"] or [], "pools": view["pools"] or []}))' "$1"
}

agent_pid() { # of the fleet's host-1
  /bin/ps -axo pid=,ppid=,args= | awk -v up="$up_pid" '$2 == up && $NF == "host-1" {print $1}'
}

cleanup() {
  if [ -n "${joined_pid:-}" ]; then kill -TERM "$joined_pid" 2>/dev/null; fi
  if [ -n "${up_pid:-}" ]; then stop_up; fi
  if [ -n "${installed:-}" ]; then
    runyard up --uninstall --data "$work/service" >/dev/null 2>&1 </dev/null
  fi
  for name in "$one" "$two" "$three"; do
    within 60 tart stop "$name" --timeout 5 >/dev/null 2>&1
    within 60 tart delete "$name" >/dev/null 2>&1
  done
  if [ -n "${label:-}" ]; then
    launchctl bootout "gui/$(id -u)/$label" >/dev/null 2>&1
  fi
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# ------------------------------------------------------------------------------------------------- the host

mac=""
if [ "$(uname -s)" = Darwin ]; then
  mac=yes
  note "macOS $(sw_vers -productVersion), $(sysctl -n machdep.cpu.brand_string), $(sysctl -n hw.memsize) bytes of memory"
else
  note "$(uname -s): not a Mac; checks of macOS itself are left out"
fi
note "free disk: $(df -Pk "${TART_HOME:-${HOME:-/}}" 2>/dev/null | awk 'NR == 2 {print $4}') KB"
if ! command -v tart >/dev/null 2>&1; then
  fail "tart is missing; install it with: brew install cirruslabs/cli/tart"
  exit 1
fi
if [ ! -x "$python" ] && ! command -v "$python" >/dev/null 2>&1; then
  fail "there is no Python at $python; run: make .venv/ready"
  exit 1
fi
version="$(within 30 tart --version)"
if [ "$version" = 2.32.1 ]; then
  pass "tart 2.32.1"
else
  fail "tart is $version; the driver is written for 2.32.1"
fi

# ------------------------------------------------------------------------------------- messages, exit codes, JSON

missing="the specified VM \"$none\" does not exist"
expect "get of a missing VM" 2 "$missing" tart get "$none"
expect "ip of a missing VM" 2 "$missing" tart ip "$none"
expect "stop of a missing VM" 2 "$missing" tart stop "$none"
expect "set of a missing VM" 2 "$missing" tart set "$none" --cpu 4
expect "exec in a missing VM" 2 "$missing" tart exec "$none" true
expect "delete of a missing VM" 2 "$missing" tart delete "$none"
expect "clone of a missing VM" 2 "$missing" tart clone "$none" "$one"
expect "run of a missing VM" 1 "Error: $missing" tart run "$none" --no-graphics
ask 60 tart list --no-such-flag
check "an unknown flag ends with 64" [ "$code" -eq 64 ]

# ---------------------------------------------------------------------------------------------------- images

line "----" "pulling $image (this may take long; the percentage is in $work/pull)"
within "$pull_seconds" tart pull ${insecure:+--insecure} "$image" >"$work/pull" 2>&1 </dev/null
code=$?
if [ "$code" -ne 0 ]; then
  fail "pull ended with $code: $(tail -n 3 "$work/pull" | tr '\n' ' ')"
  exit 1
fi
pass "the image was pulled, or was there"
note "lines with a percentage: $(grep -c '%' "$work/pull"); the last lines: $(tail -n 2 "$work/pull" | tr '\n' ' ')"
ask 600 tart pull ${insecure:+--insecure} "$image"
check "a second pull finds it cached and linked" grep -q 'image is already cached and linked!' "$work/out"
ask 60 tart pull ${insecure:+--insecure} "${image%:*}:runyard-proof-no-such-tag"
if [ "$code" -eq 1 ] && grep -q 'UnexpectedHTTPStatusCode(.*code: 404' "$work/err"; then
  pass "a tag that does not exist is a 404"
else
  fail "a tag that does not exist: code $code, $(head -c 300 "$work/err" | tr '\n' ' ')"
fi
ask 60 tart list --format json
if "$python" -c '
import json, sys
rows = json.load(open(sys.argv[1]))
assert rows and all(set(row) >= {"Source", "Name", "Disk", "Size", "Accessed", "Running", "State"} for row in rows)
assert all(isinstance(row["Size"], int) and isinstance(row["Running"], bool) for row in rows)
assert any("@sha256:" in row["Name"] for row in rows)' "$work/out" 2>"$work/err"; then
  pass "the list has the keys and types that the driver reads, and the image by its digest"
else
  fail "the list has other keys or types: $(tail -n 1 "$work/err")"
fi

# --------------------------------------------------------------------------------------------------- one VM

ask 600 tart clone "$image" "$one"
check "clone" [ "$code" -eq 0 ]
ask 600 tart clone "$image" "$one"
check "a second clone replaces the first" [ "$code" -eq 0 ]
ask 60 tart set "$one" --cpu 4 --memory 8192 --random-mac --random-serial
check "set" [ "$code" -eq 0 ]
expect "stop of a stopped VM" 2 "VM \"$one\" is not running" tart stop "$one"
expect "exec in a stopped VM" 2 "VM \"$one\" is not running" tart exec "$one" true
ask 60 tart get "$one" --format json
check "get prints its size as text" grep -q '"Size" *: *"' "$work/out"

mkdir "$work/env" "$work/status"
echo "made up" >"$work/env/token"
start "$one" --vnc-experimental --dir "env:$work/env:ro" --dir "status:$work/status"
first="$started"
check "the VM is listed as running" until_true 60 is_running "$one"
expect "run of a running VM" 2 "VM \"$one\" is already running!" tart run "$one" --no-graphics
expect "delete of a running VM" 1 "VM \"$one\" is running" tart delete "$one"
check "a line names the VNC server" until_true 30 grep -q '^VNC server is running at vnc://:' "$work/$one.out"
check "the guest's agent answers within $boot_seconds s" until_true "$boot_seconds" agent_answers "$one"

ask 120 tart ip "$one" --wait 60
address="$(cat "$work/out")"
check "the VM has an address by DHCP" [ "$code" -eq 0 ]
ask 60 tart ip "$one" --resolver agent
check "the agent reports the same address" [ "$(cat "$work/out")" = "$address" ]
if [ -r "$leases" ] && grep -q "ip_address=$address" "$leases"; then
  pass "the address is in $leases"
  seconds="$("$python" -c '
import re, sys, time
block = next(b for b in re.findall(r"\{([^}]*)\}", open(sys.argv[1]).read()) if f"ip_address={sys.argv[2]}\n" in b)
assert re.search(r"hw_address=1,[0-9a-f:]+\n", block), block
print(int(int(re.search(r"lease=(0x[0-9a-f]+)", block)[1], 16) - time.time()))' "$leases" "$address" 2>&1 | tail -n 1)"
  note "the lease ends in $seconds s"
else
  fail "the address is not in $leases"
fi

# ---------------------------------------------------------------------------------------------------- exec

ask 60 tart exec "$one" sh -c 'echo out; echo err >&2; exit 7'
if [ "$code" -eq 7 ] && [ "$(cat "$work/out")" = out ] && said err; then
  pass "exec passes on both streams and the exit code"
else
  fail "exec: code $code, $(head -c 200 "$work/err" | tr '\n' ' ')"
fi
# The dollar signs are the guest's.
# shellcheck disable=SC2016
ask 60 tart exec "$one" sh -c 'kill -9 $$'
note "exec of a command that is killed by signal 9 ends with $code"
ask 60 tart exec "$one" runyard-no-such-program
note "exec of a program that does not exist ends with $code: $(head -c 200 "$work/err" | tr '\n' ' ')"
head -c 10000000 /dev/zero | within 120 tart exec -i "$one" wc -c >"$work/out" 2>"$work/err"
check "10 MB of input arrive" grep -q 10000000 "$work/out"
within 120 tart exec "$one" head -c 10000000 /dev/zero 2>/dev/null | (sleep 3 && wc -c) >"$work/out"
check "10 MB of output reach a slow reader" grep -q 10000000 "$work/out"
ask 60 tart exec -t "$one" stty size
check "exec -t has a terminal" [ "$code" -eq 0 ]
ask 60 tart exec "$one" sh -c 'cat "/Volumes/My Shared Files/env/token"'
check "a shared directory is in the guest" grep -q '^made up$' "$work/out"
ask 60 tart exec "$one" sh -c 'rm "/Volumes/My Shared Files/env/token"'
if [ "$code" -ne 0 ] && [ -e "$work/env/token" ]; then
  pass "a read-only share cannot be written"
else
  fail "a read-only share can be written"
fi
ask 60 tart exec "$one" sh -c 'echo 3 >"/Volumes/My Shared Files/status/runner-rc"'
check "a share without ro can be written" grep -q '^3$' "$work/status/runner-rc"
# The home directory is the guest's.
# shellcheck disable=SC2016
ask 60 tart exec "$one" sh -c 'id -un; ls -d "$HOME/actions-runner" 2>/dev/null'
note "the agent's user, and the runner in its home: $(tr '\n' ' ' <"$work/out")"
within 300 tart exec "$one" sh -c 'echo ready; sleep 300' >"$work/session" 2>&1 </dev/null &
session=$!
until_true 30 grep -q ready "$work/session"
kill -KILL "$session"
wait "$session" 2>/dev/null
sleep 2
ask 60 tart exec "$one" pgrep -f 'sleep 300'
note "after exec was killed, pgrep for its command ends with $code (1: it is gone)"

# ------------------------------------------------------------------------- the local network, from launchd

connects() { # host, port
  "$python" -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()' "$1" "$2"
}

if [ -n "$mac" ]; then
  if connects "$address" 22 2>"$work/err"; then
    pass "this terminal reaches port 22 of the guest"
  else
    fail "this terminal does not reach port 22 of the guest: $(tail -n 1 "$work/err")"
  fi
  label="dev.runyard.proof.$$"
  "$python" - "$label" "$python" "$address" "$work" <<'PLIST' >"$work/proof.plist"
import plistlib, sys
label, python, address, work = sys.argv[1:]
code = (
    "import socket, sys\n"
    f"try: socket.create_connection(({address!r}, 22), 5).close(); print('connected')\n"
    "except OSError as error: print('refused', error.errno, error.strerror)\n"
)
plistlib.dump(
    {
        "Label": label,
        "ProgramArguments": [python, "-c", code],
        "RunAtLoad": True,
        "StandardOutPath": f"{work}/launchd.out",
        "StandardErrorPath": f"{work}/launchd.err",
    },
    sys.stdout.buffer,
)
PLIST
  if launchctl bootstrap "gui/$(id -u)" "$work/proof.plist" 2>"$work/err"; then
    pass "launchd accepts an agent in the user's session"
    if until_true 60 grep -q '^connected' "$work/launchd.out"; then
      pass "a Python started by launchd reaches the guest: Local Network permission is given"
    else
      fail "a Python started by launchd does not reach the guest: $(head -n 1 "$work/launchd.out" 2>/dev/null); allow it in System Settings, Privacy & Security, Local Network"
    fi
  else
    fail "launchd refuses an agent: $(head -c 300 "$work/err")"
  fi
  real="$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')"
  note "signature of the Python: $(codesign -dv "$real" 2>&1 | grep -E '^(Identifier|Signature|TeamIdentifier)=|not signed' | tr '\n' ' ')"
  tart_path="$(command -v tart)"
  note "signature of tart: $(codesign -dv "$tart_path" 2>&1 | grep -E '^(Identifier|Signature)=|not signed' | tr '\n' ' ')"
  note "GUI session: $(launchctl print "gui/$(id -u)" 2>/dev/null | grep -m 1 'session =' | tr -d '\t')"
else
  skip "launchd, Local Network permission and codesign need a Mac"
fi

# ------------------------------------------------------------------------------------- the limit of two VMs

ask 600 tart clone "$image" "$two"
ask 600 tart clone "$image" "$three"
start "$two"
second="$started"
check "a second VM runs" until_true 60 is_running "$two"
ask 60 tart run "$three" --no-graphics
if [ "$code" -eq 1 ] && grep -q '^The number of VMs exceeds the system limit' "$work/err"; then
  pass "a third VM is refused: $(head -n 1 "$work/err")"
else
  fail "a third VM: code $code, $(head -c 300 "$work/err" | tr '\n' ' ')"
fi
kill -KILL "$second"
wait "$second" 2>/dev/null
check "a VM whose run was killed is stopped" until_true 30 sh -c "[ \"\$(tart list --format json | grep -c '\"running\"')\" -le 1 ]"
start "$two"
second="$started"
check "its slot is free" until_true 60 is_running "$two"
ask 90 tart stop "$two" --timeout 30
check "stop" [ "$code" -eq 0 ]
ended "$second" 60
check "a run that was stopped ends with 0" [ "$code" -eq 0 ]

# ---------------------------------------------------------------------------------------------- the ends

ask 60 tart exec "$one" sudo -n shutdown -h now
note "exec of shutdown ends with $code"
ended "$first" 180
check "a guest that shuts down ends its run with 0" [ "$code" -eq 0 ]
ask 60 tart ip "$one"
note "ip of the stopped VM ends with $code (0 while its lease lasts)"
expect "get of a VM that lacks a file" 1 "VM is missing some of its files (config.json, disk.img or nvram.bin)" \
  sh -c "rm \"\${TART_HOME:-\$HOME/.tart}/vms/$three/nvram.bin\" && tart get $three"
ask 60 tart delete "$one"
check "delete" [ "$code" -eq 0 ]
expect "a second delete" 2 "the specified VM \"$one\" does not exist" tart delete "$one"

# ----------------------------------------------------------------------------------------- runyard itself

cases="$top/tests/vm/tart/test_tart_on_a_mac.py"
if [ -n "${RUNYARD_SKIP_DRIVER:-}" ]; then
  skip "the driver's cases were not asked for"
elif RUNYARD_MAC_IMAGE="$image" within 7200 "$python" -m pytest -q -p no:randomly -p no:cacheprovider \
  --rootdir "$top" -c "$top/pyproject.toml" "$cases" >"$work/driver" 2>&1 </dev/null; then
  pass "the driver's cases: $(tail -n 1 "$work/driver")"
else
  fail "the driver's cases: $(tail -n 1 "$work/driver")"
  clean <"$work/driver" | tail -n 200 >>"$report"
fi

within 300 env PYTHONPATH="$top/src" "$python" -m runyard.cli.main doctor --json --data "$work/none" \
  >"$work/doctor" 2>"$work/err" </dev/null
code=$?
if "$python" -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/doctor" 2>/dev/null; then
  note "runyard doctor ends with $code; what it found:"
  clean <"$work/doctor" >>"$report"
else
  fail "runyard doctor ends with $code and prints no JSON: $(head -c 300 "$work/err" | tr '\n' ' ')"
fi

if [ -z "$fleet" ]; then
  skip "runyard up was not asked for: --up"
else
  run_up "$work/fleet" ${join:+--listen 127.0.0.1:0}
  check "runyard up starts" until_true 120 grep -q 'Ctrl-C stops it' "$work/fleet.out"
  check "its runners wait in VMs of the image" until_true "$boot_seconds" overview 'sum(p["idle"] for p in pools) == 2'
  note "VMs: $(within 30 tart list --source local 2>/dev/null | grep -c 'practice-runner-.*running')"
  within 180 env PYTHONPATH="$top/src" "$python" -m runyard.cli.main practice --data "$work/fleet" \
    'echo runyard-proof-job' >"$work/job" 2>&1 </dev/null
  code=$?
  if [ "$code" -eq 0 ] && grep -q '^runyard-proof-job' "$work/job"; then
    pass "a job of the practice GitHub ran in a VM"
  elif [ -n "$mac" ]; then
    note "a job of the practice GitHub ends with $code: it is on loopback, which a VM does not reach: $(tail -n 1 "$work/job")"
  else
    fail "a job of the practice GitHub ends with $code: $(tail -n 2 "$work/job" | tr '\n' ' ')"
  fi
  killed="$(agent_pid)"
  if [ -n "$killed" ] && kill -KILL "$killed"; then
    check "the agent is back after it was killed" until_true 60 grep -q 'host-1 is back' "$work/fleet.out"
    check "its runners are there again" until_true "$boot_seconds" overview 'sum(p["idle"] for p in pools) == 2'
  else
    fail "the agent's process was not found"
  fi
  if [ -n "$join" ]; then
    runyard host token --json --data "$work/fleet" >"$work/token" 2>"$work/err" </dev/null
    # The token is in a file of this script's own directory and on standard input, never among arguments.
    url="$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["url"])' "$work/token")"
    "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["token"])' "$work/token" |
      runyard host join "$url" - --name runyard-proof --driver process --no-service \
        --data "$work/joined" >"$work/out" 2>"$work/err"
    code=$?
    check "this machine joins itself over loopback: $(tail -n 1 "$work/err")" [ "$code" -eq 0 ]
    PYTHONPATH="$top/src" "$python" -m runyard.cli.main agent --joined --data "$work/joined" \
      >"$work/joined.out" 2>&1 </dev/null &
    joined_pid=$!
    check "the host that joined is ready" until_true 60 overview \
      'any(h["name"] == "runyard-proof" and h["state"] == "ready" for h in hosts)'
    kill -TERM "$joined_pid"
    ended "$joined_pid" 60
    joined_pid=""
    runyard host remove runyard-proof --force --data "$work/fleet" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    check "it is removed again" [ "$code" -eq 0 ]
  fi
  stop_up
  check "runyard up ends with 0 at Ctrl-C" [ "$code" -eq 0 ]
  check "no VM of its runners runs any more" until_true 30 sh -c "! tart list --source local | grep -q 'practice-runner-.*running'"
  clean <"$work/fleet.out" | sed 's/code=[0-9a-f]*/code=REDACTED/' >>"$report"
fi

if [ -z "$service" ]; then
  skip "the service was not asked for: --service"
else
  installed=yes
  runyard up --install --driver tart --image "$image" ${insecure:+--insecure-registry "$insecure"} \
    --data "$work/service" >"$work/out" 2>"$work/err" </dev/null
  code=$?
  check "the service is installed: $(tail -n 1 "$work/err")" [ "$code" -eq 0 ]
  note "$(head -n 1 "$work/out")"
  runyard up --status --data "$work/service" >"$work/out" 2>"$work/err" </dev/null
  code=$?
  check "the service runs" [ "$code" -eq 0 ]
  note "$(grep '^at boot' "$work/out")"
  runyard up --uninstall --data "$work/service" >"$work/out" 2>"$work/err" </dev/null
  code=$?
  check "the service is removed" [ "$code" -eq 0 ]
  runyard up --status --data "$work/service" >"$work/out" 2>"$work/err" </dev/null
  code=$?
  check "it is gone" [ "$code" -ne 0 ]
  installed=""
fi

line "----" "$failures failed; the report is in $report: read it, then send it with your issue"
if [ "$failures" -gt 100 ]; then failures=100; fi
exit "$failures"
