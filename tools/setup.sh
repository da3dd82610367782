#!/bin/sh
# Makes .venv from the lock file: exactly those versions, each checked by its hash, and nothing else.
# Argument: the Python to use. uv is used when present; pip always works and is tried if uv cannot
# reach its index (uv does not read pip's configuration).
set -eu
cd "$(dirname "$0")/.."
python="$1"

echo "runyard: setting up .venv with $("$python" --version 2>&1) (once; needs the network)" >&2
rm -rf .venv
"$python" -m venv .venv

install_with_uv() {
  command -v uv >/dev/null 2>&1 || return 1
  # A company's own certificates are in the system's store, where pip's users have them too.
  UV_SYSTEM_CERTS=1 uv pip install --quiet --python .venv/bin/python --require-hashes -r requirements-dev.lock && return 0
  echo "runyard: uv could not install the locked packages; trying pip" >&2
  return 1
}
install_with_uv ||
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
    --require-hashes -r requirements-dev.lock
