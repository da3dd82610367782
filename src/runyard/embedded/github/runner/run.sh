#!/bin/sh
# Replaces GitHub's runner: ./run.sh --jitconfig JIT --disableupdate
#
# The JIT configuration is a secret, and arguments of a process can be read by every user of the machine. So it is
# moved from the arguments into a file that only we can read, this process is replaced, and the program that
# replaces it removes the file after reading it. A caller that can write such a file itself passes
# --jitconfig-file PATH, and the secret is never in any process's arguments.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
jit=
file=
while [ "$#" -gt 0 ]; do
    case $1 in
    --jitconfig | --jitconfig-file)
        if [ "$#" -lt 2 ]; then
            echo "run.sh: $1 needs a value" >&2
            exit 2
        fi
        if [ "$1" = --jitconfig ]; then jit=$2; else file=$2; fi
        shift 2
        ;;
    --disableupdate)
        shift
        ;;
    *)
        echo "run.sh: unknown argument; usage: run.sh --jitconfig JIT | --jitconfig-file PATH [--disableupdate]" >&2
        exit 2
        ;;
    esac
done
if [ -n "$jit" ]; then
    file=$(umask 077 && mktemp "${TMPDIR:-/tmp}/jit.XXXXXXXX")
    printf '%s' "$jit" >"$file"
fi
if [ -z "$file" ]; then
    echo "run.sh: --jitconfig or --jitconfig-file is missing" >&2
    exit 2
fi
exec "${RUNYARD_PYTHON:-python3}" -I -S -B "$here/practice_runner.py" --jitconfig-file "$file"
