#!/bin/sh
# Says, before anything is installed, what this machine lacks and how to get it.
#
# Prints the chosen Python on stdout and everything for people on stderr, so that make can use the
# answer. Plain `python3` wins when it is good enough, else the newest python3.x from 3.11 on that can
# make virtual environments. PYTHON=/path/to/python overrides the choice and is then checked.
set -eu

fix() { # what, Debian's package, Fedora's package, macOS command
  {
    echo "runyard: $1"
    echo "  Debian, Ubuntu:  apt-get install $2"
    echo "  Fedora:          dnf install $3"
    echo "  macOS:           $4"
  } >&2
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
has_venv() { "$1" -c 'import ensurepip, ssl, venv' >/dev/null 2>&1; }

choose() {
  without_venv=""
  for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
    if new_enough "$candidate"; then
      if has_venv "$candidate"; then
        printf '%s\n' "$candidate"
        return 0
      fi
      without_venv="${without_venv:-$candidate}"
    fi
    # An explicit choice is not silently replaced by another interpreter.
    if [ -n "${PYTHON:-}" ]; then break; fi
  done
  if [ -n "$without_venv" ]; then
    fix "$without_venv cannot make virtual environments (venv, ensurepip or ssl is missing)" \
      "python3-venv" "python3" "brew install python@3.13"
  elif [ -n "${PYTHON:-}" ]; then
    fix "PYTHON=$PYTHON is not a working Python 3.11 or later" \
      "python3 python3-venv" "python3" "brew install python@3.13"
  else
    fix "no Python 3.11 or later was found on PATH" \
      "python3 python3-venv" "python3" "brew install python@3.13"
  fi
  return 1
}

status=0
choose || status=2

if ! command -v "${MAKE:-make}" >/dev/null 2>&1; then
  fix "make is missing" "make" "make" "xcode-select --install"
  status=2
fi

# Every dependency has a wheel for Linux and macOS on common processors: a compiler is needed elsewhere only.
if ! command -v cc >/dev/null 2>&1 && ! command -v gcc >/dev/null 2>&1 && ! command -v clang >/dev/null 2>&1; then
  fix "note: no C compiler; needed only where a dependency has no ready-made wheel" \
    "build-essential python3-dev" "gcc python3-devel" "xcode-select --install"
fi
exit "$status"
