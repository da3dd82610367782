#!/bin/sh
# Pins a version of Kubernetes for kube_assets.sh: `kube_pin.sh 1.36.4`. For maintainers; needs go and the network.
#
# Kubernetes requires its own staging modules at v0.0.0 and replaces them by directories, which does not hold
# for a module that depends on it. Each is published as v0.MINOR.PATCH: the replacements say so. The result is
# a go.mod and a go.sum with the hash of every module that the four programs are made of; kube_assets.sh builds
# from these and from nothing else.
set -eu
cd "$(dirname "$0")/kube-assets"
version="$1"
programs="kube-apiserver kube-controller-manager kube-scheduler"

rm -rf "$version"
mkdir "$version"
cd "$version"
go mod init runyard.dev/kube-assets
manifest=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^.*"GoMod": "\(.*\)".*$/\1/p')
awk '$1 ~ /^k8s.io\// && $2 == "v0.0.0" {print $1}' "$manifest" | sort -u | while read -r module; do
  go mod edit -replace "$module=$module@v0.${version#1.}"
done
for program in $programs; do
  go get "k8s.io/kubernetes/cmd/$program@v$version"
done
go get "go.etcd.io/etcd/server/v3@$(awk '$1 == "go.etcd.io/etcd/client/v3" {print $2}' "$manifest")"
# The language version that Kubernetes asks for, not the one of the go at hand: older patch releases can build it too.
go mod edit -toolchain=none -go="$(awk '$1 == "go" {print $2}' "$manifest")"
for program in $programs; do
  CGO_ENABLED=0 GOFLAGS=-mod=readonly go list -deps "k8s.io/kubernetes/cmd/$program" >/dev/null
done
echo "pinned Kubernetes $version: $(wc -l <go.sum) hashes; remember the version in tools/kube_assets.sh"
