#!/bin/sh
# Resolves the ranges of pyproject.toml into the two lock files (requirements.lock: the extra `all`): hashes only, no
# addresses, for every Python from 3.11 on and every platform. Needs uv; installing from the locks does not.
set -eu
cd "$(dirname "$0")/.."
UV="${UV:-uv}"
if ! command -v "$UV" >/dev/null 2>&1; then
  echo "make lock: uv is needed to resolve for all platforms (set UV=/path/to/uv)" >&2
  exit 2
fi
compile() {
  "$UV" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@" pyproject.toml
}
compile --extra all --output-file requirements.lock
compile --extra dev --constraint requirements.lock --output-file requirements-dev.lock
if grep -l '://' requirements.lock requirements-dev.lock; then
  echo "make lock: an address crept into a lock file" >&2
  exit 1
fi
