#!/bin/sh
# What the whole test run needs of the system beyond Python: each is looked for, installed where that is
# possible (Debian's packages, as root), and named with the fix where it is not. Never fails: the tests
# count what was absent.
set -u

need() { # a program, Debian's package
  if command -v "$1" >/dev/null 2>&1; then
    return
  fi
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "runyard: installing $2" >&2
    if ! DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null 2>&1; then
      apt-get update -qq >/dev/null 2>&1
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null 2>&1
    fi
  fi
  if ! command -v "$1" >/dev/null 2>&1; then
    echo "runyard: $1 is absent; its tests are not run. Fix: apt-get install $2" >&2
  fi
}

need bwrap bubblewrap
need slirp4netns slirp4netns
need ip iproute2
need chromium chromium
need pgbouncer pgbouncer
need docker-registry docker-registry
need zsh zsh
