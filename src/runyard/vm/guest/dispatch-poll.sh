#!/bin/sh
# Poll the dispatch server until there is a job, run exactly one job, halt.
#
#   200 with a JIT configuration  run the runner; its exit code is ours
#   200 without one, 204          poll again
#   401, 403                      exit 1: this machine's identity is not accepted
#   410                           exit 0: this machine is to be replaced
#   anything else, no response    poll again, for ever
#
# The token is in no variable, no argument and no environment of any process here: the HTTP client reads it
# from a file, and the file is gone before the job starts. TERM is forwarded to the runner, and the script waits
# until the runner has ended: the exit code is then 143.
set -u
umask 077
here=$(cd "$(dirname "$0")" && pwd) || exit 1
# shellcheck source=src/runyard/vm/guest/lib.sh
. "$here/lib.sh"

child=''    # the process that is waited for: a poll, a pause, or the runner
ending=''   # the exit code, once TERM has arrived
running=''  # whether the child is the runner, whose end may take long
listener='' # the process that keeps the runner's newest output

# shellcheck disable=SC2329 # called by the traps below
forward_signal() {
    ending=$1
    if [ -n "$child" ]; then
        kill -TERM "$child" 2>/dev/null
    fi
    if [ -z "$running" ]; then
        exit "$ending"
    fi
}
trap 'leave $?' EXIT
trap 'forward_signal 143' TERM
trap 'forward_signal 130' INT
trap 'forward_signal 129' HUP

# On every exit path, let the listener write the runner's last output and end it.
# shellcheck disable=SC2329 # called by the trap above
leave() {
    if [ -n "$listener" ]; then
        "$RUNYARD_PYTHON" -I -S "$here/newest.py" end "$listener" "$log"
    fi
    finish "$1"
}

# Wait for the child; a signal that we catch interrupts the waiting and nothing else.
join() {
    while :; do
        wait "$child"
        code=$?
        if [ "$code" -le 128 ] || ! kill -0 "$child" 2>/dev/null; then
            break
        fi
    done
    child=''
    return "$code"
}

# shellcheck disable=SC2329 # called by its name, as the client
with_curl() {
    exec curl -q ${RUNYARD_DISPATCH_SOCKET:+--noproxy "*" --unix-socket "$RUNYARD_DISPATCH_SOCKET"} \
        --silent --output "$body" --write-out '%{http_code}' --max-time "$RUNYARD_POLL_TIMEOUT" \
        --max-filesize 1048576 --request POST --header @"$headers" --header 'Content-Type: application/json' \
        --header 'Prefer: wait=25' --header 'Expect:' --data '{}' "$url" >"$status"
}

# shellcheck disable=SC2329 # as above
with_python() {
    exec "$RUNYARD_PYTHON" -I -S "$here/post.py" "$url" "$headers" "$body" \
        "$RUNYARD_POLL_TIMEOUT" "$RUNYARD_DISPATCH_SOCKET" >"$status"
}

# One poll; the status goes to $answer, 000 if there was none.
poll() {
    rm -f "$body" "$status"
    "$client" &
    child=$!
    join
    answer=000
    if [ -s "$status" ]; then
        answer=$(cat "$status")
    fi
}

pause() {
    if [ "$RUNYARD_POLL_PAUSE" != 0 ]; then
        chance=$(od -An -N2 -tu2 /dev/urandom 2>/dev/null | tr -d ' ')
        sleep "$(awk -v mean="$RUNYARD_POLL_PAUSE" -v chance="${chance:-32768}" \
            'BEGIN { print mean * (0.75 + chance / 131072) }')" &
        child=$!
        join
    fi
}

# Return when there is a JIT configuration in $jit; every other outcome ends the script or polls again.
await_work() {
    while :; do
        poll
        case $answer in
        200)
            if [ -s "$body" ] && "$here/json-field.sh" encoded_jit_config <"$body" >"$jit"; then
                return
            fi
            say "the server's response has no usable JIT configuration"
            ;;
        204) ;;
        401 | 403)
            say "the server refused this machine's token with $answer"
            exit 1
            ;;
        410)
            say "the server drains this runner (410): it is replaced"
            exit 0
            ;;
        *) say "the poll failed with $answer: polling again" ;;
        esac
        pause
    done
}

# The other fields of the answer that a job may use.
take_extras() {
    if cache=$("$here/json-field.sh" cache_endpoint_url <"$body"); then
        TUIST_CACHE_ENDPOINT=$cache
        export TUIST_CACHE_ENDPOINT
    fi
    if grant=$("$here/json-field.sh" cache_signing_grant <"$body"); then
        TUIST_CACHE_SIGNING_GRANT=$grant
        export TUIST_CACHE_SIGNING_GRANT
    fi
}

# After this no file that a job could open holds the token.
forget_token() {
    rm -f "$headers" "$body" "$status"
    rm -f "$RUNYARD_TOKEN_DIR/sa_token" "$RUNYARD_ENV_DIR/sa_token" 2>/dev/null
    if [ -d "$RUNYARD_TOKEN_DIR" ]; then
        left=$RUNYARD_WIPE_SECONDS
        while [ -e "$RUNYARD_ENV_DIR/sa_token" ] && [ "$left" -gt 0 ]; do
            sleep 1
            left=$((left - 1))
        done
    fi
    if [ -e "$RUNYARD_ENV_DIR/sa_token" ] && [ -n "$RUNYARD_ENV_RELEASE" ]; then
        eval "$RUNYARD_ENV_RELEASE"
    fi
    if [ -e "$RUNYARD_ENV_DIR/sa_token" ] || [ -e "$RUNYARD_TOKEN_DIR/sa_token" ]; then
        say "the token cannot be removed: no job is run while it can be read"
        exit 1
    fi
}

# Background processes of a shell ignore INT, which a runner uses to cancel a step: Python undoes that.
as_job() {
    if [ -n "$RUNYARD_PYTHON" ]; then
        exec "$RUNYARD_PYTHON" -I -S "$here/become.py" "${RUNYARD_JOB_USER:--}" "$@"
    elif [ -n "$RUNYARD_JOB_USER" ]; then
        say "no Python to switch to the user $RUNYARD_JOB_USER with"
        exit 1
    fi
    exec "$@"
}

# The runner's output goes through a pipe to a listener that keeps the newest part. Without a Python there is no
# listener, and the output goes into a file of unlimited size.
open_log() {
    output=$log
    if [ -n "$RUNYARD_PYTHON" ] && rm -f "$log.pipe" && mkfifo "$log.pipe" &&
        listener=$("$RUNYARD_PYTHON" -I -S "$here/newest.py" listen "$log.pipe" "$log" "$RUNYARD_LOG_BYTES"); then
        output=$log.pipe
    fi
}

start_runner() {
    rm -f "$RUNYARD_WORK_DIR/.job-started"
    ACTIONS_RUNNER_HOOK_JOB_STARTED="$here/job-started.sh"
    export ACTIONS_RUNNER_HOOK_JOB_STARTED
    cd "$RUNYARD_WORK_DIR/runner" || exit 1
    # Every user of the machine can read arguments: pass a file where the runner takes one.
    if [ -n "$RUNYARD_JIT_FILE" ] || grep -q -e '--jitconfig-file' run.sh; then
        mv -f "$jit" "$RUNYARD_WORK_DIR/.jit" || exit 1
        if [ -n "$RUNYARD_JOB_USER" ]; then
            chown "$RUNYARD_JOB_USER" "$RUNYARD_WORK_DIR/.jit" || exit 1
        fi
        as_job ./run.sh --jitconfig-file "$RUNYARD_WORK_DIR/.jit" --disableupdate >"$output" 2>&1 &
    else
        config=$(cat "$jit")
        rm -f "$jit"
        as_job ./run.sh --jitconfig "$config" --disableupdate >"$output" 2>&1 &
    fi
    child=$!
    if [ -n "$ending" ]; then # it arrived while there was no runner to forward it to
        kill -TERM "$child" 2>/dev/null
    fi
}

# End a runner that got no job in time. It is not idle once the hook has run or a worker exists.
watch_idleness() {
    limit=${TUIST_RUNNER_IDLE_TIMEOUT_SECONDS:-0}
    case $limit in
    '' | *[!0-9]* | 0) return ;;
    esac
    runner=$child
    (
        trap - EXIT HUP INT TERM
        sleep "$limit"
        if [ ! -e "$RUNYARD_WORK_DIR/.job-started" ] && ! worker_of "$runner"; then
            : >"$RUNYARD_RUN_DIR/idle"
            kill -TERM "$runner" 2>/dev/null
        fi
    ) >/dev/null 2>&1 &
    watchdog=$!
}

# Whether a descendant of the runner is one of its workers: for the moment before the hook has run.
worker_of() {
    ps -A -o pid= -o ppid= -o args= 2>/dev/null | awk -v root="$1" '
        { pid[NR] = $1; parent[$1] = $2; worker[$1] = index($0, "Runner.Worker") > 0 }
        END {
            for (n = 1; n <= NR; n++) {
                if (!worker[pid[n]]) continue
                for (p = pid[n]; p > 1; p = parent[p]) if (p == root) exit 0
            }
            exit 1
        }
    '
}

body=$RUNYARD_RUN_DIR/answer
status=$RUNYARD_RUN_DIR/status
headers=$RUNYARD_RUN_DIR/headers
jit=$RUNYARD_RUN_DIR/jit
log=$RUNYARD_RUN_DIR/runner.log
watchdog=''

if [ ! -s "$headers" ] || [ -z "${TUIST_RUNNER_DISPATCH_URL:-}" ]; then
    say "no token was staged, or TUIST_RUNNER_DISPATCH_URL is empty"
    exit 1
fi
url=$TUIST_RUNNER_DISPATCH_URL
if [ -n "$RUNYARD_DISPATCH_SOCKET" ]; then
    url=http://${url#*://} # TLS, if any, begins behind the socket
fi
if [ -z "${RUNYARD_NO_CURL:-}" ] && curl --version >/dev/null 2>&1; then
    client=with_curl
elif [ -n "$RUNYARD_PYTHON" ]; then
    client=with_python
else
    say "there is neither curl nor a Python to poll with"
    exit 1
fi

await_work
take_extras
forget_token
running=yes
open_log
start_runner
watch_idleness
join
rc=$?
if [ -n "$watchdog" ]; then
    kill "$watchdog" 2>/dev/null
fi
if [ -n "$ending" ]; then
    exit "$ending"
fi
if [ -e "$RUNYARD_RUN_DIR/idle" ]; then
    say "the runner got no job within ${TUIST_RUNNER_IDLE_TIMEOUT_SECONDS} s"
    exit 0
fi
exit "$rc"
