#!/bin/sh
# Installs runyard with pip into clean environments, without extras and with [all], at the locked versions, and prints what
# each brings: size, distributions, and the time of --help. Needs pip's index; `make package` runs it.
set -eu
cd "$(dirname "$0")/.."
python="${1:-.venv/bin/python}"
home="$(mktemp -d)"
trap 'rm -rf "$home"' EXIT INT TERM

# The locked versions as constraints: pip refuses hashes for a wheel that was just built.
sed -e 's/ *\\$//' -e '/--hash=/d' requirements.lock >"$home/constraints.txt"
"$python" -m pip wheel --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation -w "$home" .
rm -rf build

for extra in "" "[all]"; do
  "$python" -m venv "$home/venv"
  "$home/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    -c "$home/constraints.txt" "$(ls "$home"/*.whl)$extra"
  "$home/venv/bin/python" -m pip uninstall --quiet --yes setuptools pip >/dev/null 2>&1 || true
  "$home/venv/bin/runyard" --help >/dev/null
  site="$(ls -d "$home"/venv/lib/python*/site-packages)"
  echo "pip install 'runyard$extra': $(du -sm "$site" | cut -f1) MB, $(ls -d "$site"/*.dist-info | wc -l) distributions"
  ( time -p "$home/venv/bin/runyard" --help >/dev/null ) 2>&1 | tr '\n' ' '
  echo "seconds for runyard --help"
  if [ -z "$extra" ]; then
    "$home/venv/bin/runyard" server 2>&1 || true
  fi
  rm -rf "$home/venv"
done
