#!/bin/sh
# Turn the staged environment into exports, and the staged token into the header of a request.
#
# A line of tuist.env is KEY=value; in a value \\ \n \r stand for backslash, newline and carriage return,
# so every value is decoded exactly. Lines that are blank, comments or have no proper key are skipped.
# The token is copied from file to file, never into a variable, and the staged file is removed.
set -u
umask 077
here=$(cd "$(dirname "$0")" && pwd) || exit 1
# shellcheck source=src/runyard/vm/guest/lib.sh
. "$here/lib.sh"

exports() {
    LC_ALL=C awk '
        function plain(text,    out, at) {
            out = ""
            while ((at = index(text, "\\")) > 0) {
                out = out substr(text, 1, at - 1)
                two = substr(text, at, 2)
                if (two == "\\n") out = out "\n"
                else if (two == "\\r") out = out "\r"
                else if (two == "\\\\") out = out "\\"
                else out = out two
                text = substr(text, at + 2)
            }
            return out text
        }
        function quoted(text,    out, at) {
            out = ""
            while ((at = index(text, "\047")) > 0) {
                out = out substr(text, 1, at - 1) "\047\\\047\047"
                text = substr(text, at + 1)
            }
            return "\047" out text "\047"
        }
        {
            at = index($0, "=")
            key = substr($0, 1, at - 1)
            if (at < 2 || key !~ /^[A-Za-z_][A-Za-z0-9_]*$/) next
            if (key ~ /^RUNYARD_(VM|PYTHON|JOB_USER|[A-Z]*_DIR)$/) next  # set by the host, not by the Pod
            print "export " key "=" quoted(plain(substr($0, at + 1)))
        }
    ' "$1"
}

rm -f "$RUNYARD_RUN_DIR/env.sh" "$RUNYARD_RUN_DIR/headers"
if [ -f "$RUNYARD_ENV_DIR/tuist.env" ]; then
    exports "$RUNYARD_ENV_DIR/tuist.env" >"$RUNYARD_RUN_DIR/env.sh" || exit 1
else
    say "no environment was staged: $RUNYARD_ENV_DIR/tuist.env is missing"
    : >"$RUNYARD_RUN_DIR/env.sh"
fi
if [ -s "$RUNYARD_ENV_DIR/sa_token" ]; then
    {
        printf 'Authorization: Bearer '
        tr -d '\r\n' <"$RUNYARD_ENV_DIR/sa_token"
        printf '\n'
    } >"$RUNYARD_RUN_DIR/headers" || exit 1
    rm -f "$RUNYARD_ENV_DIR/sa_token" 2>/dev/null
fi
exit 0
