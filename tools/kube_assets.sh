#!/bin/sh
# Builds a real Kubernetes control plane for the conformance tests: etcd, kube-apiserver, kube-controller-manager
# and kube-scheduler; once, into the user's cache. The last line on stdout is the directory that holds them.
#
#   with go 1.24 or later     a current version, from the modules that tools/kube-assets/<version> pins by hash
#   else, on Debian           1.20.2, from Debian's source package, with Debian's own go (kube_assets_debian.sh)
#
# KUBEBUILDER_ASSETS names a directory that is there already and is then only checked. KUBE_VERSION chooses
# another pinned version. Nothing is installed into the system; a build that was interrupted leaves no trace
# except in go's own caches.
set -eu
PATH="$PATH:/usr/local/go/bin" # where go's own archive is unpacked to, and not every shell looks

here=$(cd "$(dirname "$0")" && pwd)
programs="etcd kube-apiserver kube-controller-manager kube-scheduler"
packages="go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-apiserver \
  k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kube-scheduler"
cache="${XDG_CACHE_HOME:-${HOME:?}/.cache}/runyard/kube-assets"
needed_mb=6000 # modules 1.2 GB, go's build cache 3 GB, the result 0.3 GB, and some spare space

say() { echo "kube-assets: $*" >&2; }
fail() { # what failed, how to fix it
  say "$1"
  say "  fix: $2"
  exit 2
}

# The newest pinned version that this go can build; empty if none. Kubernetes says which go it needs.
version_for() { # 1.26
  case "${1#1.}" in
    '' | *[!0-9]*) return ;;
  esac
  minor="${1#1.}"
  if [ "$minor" -ge 26 ]; then
    echo 1.36.4
  elif [ "$minor" -ge 25 ]; then
    echo 1.35.4
  elif [ "$minor" -ge 24 ]; then
    echo 1.34.4
  fi
}

go_release() { # 1.26 of "go version go1.26.8 linux/amd64"
  command -v go >/dev/null 2>&1 || return 0
  GOTOOLCHAIN=local go env GOVERSION 2>/dev/null | sed -n 's/^go\([0-9]*\.[0-9]*\).*/\1/p'
}

check_space() {
  free=$(df -Pm "$cache" | awk 'NR == 2 {print $4}')
  if [ "$free" -lt "$needed_mb" ]; then
    fail "only $free MB are free at $cache; a build needs $needed_mb MB" \
      "free some space, or set XDG_CACHE_HOME to another disk"
  fi
}

take_lock() {
  lock="$cache/building"
  if ! mkdir "$lock" 2>/dev/null; then
    owner=$(cat "$lock/pid" 2>/dev/null || echo)
    if [ -n "$owner" ] && kill -0 "$owner" 2>/dev/null; then
      fail "process $owner is building already" "wait for it, then call this again"
    fi
    rm -rf "$lock" # its owner was killed
    mkdir "$lock"
  fi
  echo $$ >"$lock/pid"
  # A compiler whose go was killed writes its last file before it notices.
  trap 'rm -rf "$lock" 2>/dev/null || { sleep 3; rm -rf "$lock"; }' EXIT
  trap 'exit 130' INT TERM HUP
}

# Runs a long command and says every now and then that it is alive: go lists each package that it compiles.
with_progress() { # log, command...
  log="$1"
  shift
  began=$(date +%s)
  "$@" >"$log" 2>&1 &
  child=$!
  trap 'kill "$child" 2>/dev/null; exit 130' INT TERM HUP
  while kill -0 "$child" 2>/dev/null; do
    sleep 1
    waited=$(($(date +%s) - began))
    if [ $((waited % 20)) -eq 0 ] && [ "$waited" -gt 0 ]; then
      say "  $waited s, $(grep -c / "$log" || true) packages"
    fi
  done
  wait "$child"
}

build_with_go() { # version; into $lock/bin
  cp "$here/kube-assets/$1/go.mod" "$here/kube-assets/$1/go.sum" "$lock/"
  say "fetching the modules of Kubernetes $1, each checked by its hash"
  (
    cd "$lock"
    # shellcheck disable=SC2086  # the packages are words of their own
    CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=readonly go list -deps $packages >/dev/null 2>"$lock/fetch.log"
  ) || {
    tail -n 5 "$lock/fetch.log" >&2
    fail "the modules cannot be fetched" "check the network, or GOPROXY in 'go env'"
  }
  say "compiling (about eleven minutes of one core; two cores halve it)"
  mkdir "$lock/tmp" # where go works; go that is killed leaves it
  minor=$(echo "$1" | cut -d. -f2)
  info="k8s.io/component-base/version"
  flags="-s -w -X $info.gitVersion=v$1 -X $info.gitMajor=1 -X $info.gitMinor=$minor"
  (
    cd "$lock"
    export CGO_ENABLED=0 GOTOOLCHAIN=local GOTMPDIR="$lock/tmp" GOFLAGS="-mod=readonly -trimpath -buildvcs=false"
    # shellcheck disable=SC2086  # the packages are words of their own
    with_progress "$lock/build.log" go build -v -ldflags "$flags" -o "$lock/bin/" $packages &&
      mv "$lock/bin/server" "$lock/bin/etcd" # go names it after the path of its package
  ) || {
    tail -n 15 "$lock/build.log" >&2
    fail "the compiler failed" "see above; 'go clean -cache' and once more, if the disk was full"
  }
}

main() {
  if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
    for program in etcd kube-apiserver; do
      if [ ! -x "$KUBEBUILDER_ASSETS/$program" ]; then
        fail "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS has no $program" \
          "unset it to have one built, or name a directory that has it"
      fi
    done
    say "using $("$KUBEBUILDER_ASSETS/kube-apiserver" --version) of KUBEBUILDER_ASSETS"
    echo "$KUBEBUILDER_ASSETS"
    return
  fi
  release=$(go_release)
  version="${KUBE_VERSION:-$(version_for "$release")}"
  version="${version:-1.20.2}"
  target="$cache/$version"
  if [ -f "$target/complete" ]; then
    say "Kubernetes $version is there: $target"
    echo "$target"
    return
  fi
  mkdir -p "$cache"
  check_space
  take_lock
  mkdir "$lock/bin"
  if [ -d "$here/kube-assets/$version" ]; then
    build_with_go "$version"
  elif [ "$version" = 1.20.2 ]; then
    if [ -z "${KUBE_VERSION:-}" ]; then say "no go 1.24 or later (found: ${release:-none})"; fi
    say "building 1.20.2 from Debian's sources, which is not modern"
    sh "$here/kube_assets_debian.sh" "$lock" "$lock/bin" ||
      fail "a real Kubernetes cannot be built here" "install go 1.26 or later and call this again"
  else
    fail "Kubernetes $version is not pinned" "choose a directory of tools/kube-assets, or see tools/kube_pin.sh"
  fi
  for program in $programs; do
    chmod 755 "$lock/bin/$program"
  done
  "$lock/bin/kube-apiserver" --version >"$lock/bin/complete"
  rm -rf "$target"
  mv "$lock/bin" "$target" # complete, or not there at all
  say "built $(cat "$target/complete") in $target"
  echo "$target"
}

main; exit # on one line: what is written into this file meanwhile is not read
