#!/bin/sh
# Turn the staged environment into exports, and the staged token into the header of a request.
#
# A line of tuist.env is KEY=value, as tart-kubelet writes it: in a value \n and \r stand for newline and carriage
# return, and a backslash for itself. KEY;eval export KEY=$'value' is a value that this format cannot hold, with
# backslash, quote and control characters in octal; it is read as data, never run. Other lines are skipped.
# The token is copied from file to file, never into a variable, and the staged files are removed.
set -u
umask 077
here=$(cd "$(dirname "$0")" && pwd) || exit 1
# shellcheck source=src/runyard/vm/guest/lib.sh
. "$here/lib.sh"

exports() {
    LC_ALL=C awk '
        function plain(text,    out, at, two) {
            out = ""
            while ((at = index(text, "\\")) > 0) {
                two = substr(text, at, 2)
                out = out substr(text, 1, at - 1) (two == "\\n" ? "\n" : two == "\\r" ? "\r" : "\\")
                text = substr(text, at + (two == "\\n" || two == "\\r" ? 2 : 1))
            }
            return out text
        }
        function exact(text,    out, at) {
            out = ""
            while (match(text, /\\[0-3][0-7][0-7]/)) {
                at = RSTART
                out = out substr(text, 1, at - 1) byte[substr(text, at + 1, 3)]
                text = substr(text, at + 4)
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
        BEGIN { for (i = 1; i < 256; i++) byte[sprintf("%03o", i)] = sprintf("%c", i) }
        {
            at = index($0, "=")
            key = substr($0, 1, at - 1)
            value = substr($0, at + 1)
            end = index(key, ";eval export ")
            octal = end > 0 && substr(key, end + 13) == substr(key, 1, end - 1) && value ~ /^[$]\047[^\047]*\047$/
            if (octal) key = substr(key, 1, end - 1)
            if (at < 2 || key !~ /^[A-Za-z_][A-Za-z0-9_]*$/) next
            if (key ~ /^RUNYARD_(VM|PYTHON|JOB_USER|[A-Z]*_(DIR|SOCKET))$/) next  # set by the host, not by the Pod
            print "export " key "=" quoted(octal ? exact(substr(value, 3, length(value) - 3)) : plain(value))
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
for token in "$RUNYARD_TOKEN_DIR/sa_token" "$RUNYARD_ENV_DIR/sa_token"; do
    if [ -s "$token" ]; then
        {
            printf 'Authorization: Bearer '
            tr -d '\r\n' <"$token"
            printf '\n'
        } >"$RUNYARD_RUN_DIR/headers" || exit 1
        break
    fi
done
# A host that shares env read-only wipes its copy there as soon as the other one is gone.
rm -f "$RUNYARD_TOKEN_DIR/sa_token" "$RUNYARD_ENV_DIR/sa_token" 2>/dev/null
exit 0
