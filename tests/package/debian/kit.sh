# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of packages: bare Debian roots, and commands in them. Needs root, and the
# network of the package archive.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
build=$PWD/build/debian
mkdir -p "$build"
scratch=$(mktemp -d "$build/scratch.XXXXXX")
trap 'rm -rf --one-file-system "$scratch"' EXIT

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}
for tool in mmdebstrap unshare dpkg-deb; do
    command -v $tool >/dev/null || {
        echo "${0##*/}: needs $tool: run tools/setup package" >&2
        exit 2
    }
done
[ "$(id -u)" = 0 ] || {
    echo "${0##*/}: needs root, to mount and to change roots" >&2
    exit 2
}

# debootstrap's minbase of the release that runs here: no compiler, Python or systemd.
bare=$build/bare.tar
[ -s "$bare" ] || {
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mmdebstrap --quiet --variant=minbase --dpkgopt=force-unsafe-io "$release" "$scratch/bare.tar"
    mv "$scratch/bare.tar" "$bare"
}
make_root() { # DIRECTORY
    mkdir -p "$1"
    tar -C "$1" -xf "$bare" --exclude='./dev/*'
    cp -L /etc/resolv.conf /etc/hosts "$1/etc/"
}

# Run a command in a root with processes and mounts of its own: they end with it.
within() { # DIRECTORY COMMAND...
    root=$1 unshare --mount --pid --fork --kill-child=KILL bash -c '
        mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && shift &&
            exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
                DEBIAN_FRONTEND=noninteractive "$@"' bash "$@"
}

# The packages of this tree: made once, and again after a commit, whose time they have, or a change.
debs=$build/packages
make_packages() {
    local made_of
    made_of=$(git rev-parse HEAD && git diff HEAD | sha256sum)
    [ "$(cat "$build/made-of" 2>/dev/null)" != "$made_of" ] || return 0
    rm -rf "$debs" "$build/made-of"
    tools/package/deb "$debs" >/dev/null
    echo "$made_of" >"$build/made-of"
}
