#!/bin/sh
# Builds Kubernetes 1.20.2 from Debian bookworm's source package with Debian's own go; kube_assets.sh calls it
# where no recent go is found. Arguments: a scratch directory and where the programs shall lie.
#
# It needs apt, dpkg and a Debian mirror, no root: the packages are fetched through apt (with its signatures)
# into directories of its own and unpacked, never installed. Why each step:
# - GOPATH mode: the module mode of go 1.17 and later refuses this tree's vendor directory.
# - reflect2 is replaced by Debian's 1.0.2: with the vendored 1.0.1 and go 1.18 or later the server dies at the
#   first custom object.
# - Debian removed one generated file, the OpenAPI definitions: it is generated again with the vendored tool.
set -eu
scratch="$1"
target="$2"
suite=bookworm
version=1.20.2

say() { echo "kube-assets: $*" >&2; }
for tool in apt-get dpkg dpkg-deb tar xz; do
  command -v "$tool" >/dev/null 2>&1 || {
    say "$tool is missing: this is no Debian"
    exit 1
  }
done

# An apt of its own, on the mirror that this machine uses.
mirror=$(apt-get indextargets --format "\$(SITE)" 'Created-By: Packages' 2>/dev/null | grep -v security | head -n 1)
if [ -z "$mirror" ]; then
  say "apt knows no mirror; run 'apt-get update' first"
  exit 1
fi
mkdir -p "$scratch/apt/lists/partial" "$scratch/apt/cache/archives/partial" "$scratch/debs" "$scratch/root"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
signed=""
if [ -f "$keys" ]; then signed="[signed-by=$keys]"; fi
{
  echo "deb $signed $mirror $suite main"
  echo "deb-src $signed $mirror $suite main"
} >"$scratch/apt/sources.list"
own_apt() {
  apt-get -qq -o "Dir::Etc::sourcelist=$scratch/apt/sources.list" -o Dir::Etc::sourceparts=- \
    -o "Dir::State::lists=$scratch/apt/lists" -o "Dir::Cache=$scratch/apt/cache" \
    -o APT::Sandbox::User= "$@"
}
cd "$scratch/debs"
say "fetching Debian's packages"
own_apt update
own_apt download golang-1.19-go golang-1.19-src etcd-server golang-github-modern-go-reflect2-dev
own_apt source --download-only kubernetes
for package in ./*.deb; do
  dpkg -x "$package" "$scratch/root"
done

# Debian splits go over two trees with links from one into the other; one GOROOT has both.
export GOROOT="$scratch/goroot"
cp -RL "$scratch/root/usr/lib/go-1.19" "$GOROOT"

mkdir "$scratch/tmp"
export GOPATH="$scratch/gopath" GO111MODULE=off CGO_ENABLED=0 GOFLAGS="" GOTOOLCHAIN=local GOTMPDIR="$scratch/tmp"
export PATH="$GOROOT/bin:$PATH"
tree="$GOPATH/src/k8s.io/kubernetes"
mkdir -p "$tree"
tar -xf kubernetes_*.orig.tar.* -C "$tree" --strip-components=1
reflect=vendor/github.com/modern-go/reflect2
rm -rf "${tree:?}/$reflect"
cp -R "$scratch/root/usr/share/gocode/src/github.com/modern-go/reflect2" "$tree/$reflect"
cd "$tree"

say "generating the OpenAPI definitions"
mkdir -p "$scratch/tools"
go build -o "$scratch/tools/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
inputs=$(grep -rlR --include='*.go' '+k8s:openapi-gen=true' pkg vendor/k8s.io 2>/dev/null |
  grep -v -e _test.go -e /testdata/ -e zz_generated -e /code-generator/ -e /sample- -e /kube-openapi/ |
  xargs -n 1 dirname | sort -u |
  sed -e 's,^vendor/,,' -e 's,^pkg,k8s.io/kubernetes/pkg,' | paste -s -d, -)
"$scratch/tools/openapi-gen" -v 1 --logtostderr -i "$inputs" -O zz_generated.openapi \
  -p k8s.io/kubernetes/pkg/generated/openapi -o "$GOPATH/src" \
  --go-header-file hack/boilerplate/boilerplate.generatego.txt -r "$scratch/violations" >"$scratch/openapi.log" 2>&1

say "compiling Kubernetes $version (about seven minutes of one core)"
flags="-s -w"
for info in component-base/version client-go/pkg/version; do # the first tells it by a flag, the second over HTTP
  info="k8s.io/kubernetes/vendor/k8s.io/$info"
  flags="$flags -X $info.gitVersion=v$version -X $info.gitMajor=1 -X $info.gitMinor=20"
done
for program in kube-apiserver kube-controller-manager kube-scheduler; do
  go build -trimpath -ldflags "$flags" -o "$target/$program" "./cmd/$program"
  say "  $program"
done
cp "$scratch/root/usr/bin/etcd" "$target/etcd"
