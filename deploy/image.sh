#!/usr/bin/env bash
# Build and start the image without Docker: `make image`, as root on Debian with the packages buildah, debootstrap and
# iproute2. All files are in one directory, which is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(realpath --no-symlinks "$1")
extras=$2
base=$(sed -n 's/^ARG BASE=//p' Dockerfile)
revision=$(git describe --always --dirty)

folder=$(mktemp --directory)
trap 'rm --recursive --force --one-file-system "$folder"' EXIT
printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/images"\nrunroot = "%s/run"\n' "$folder" "$folder" \
    >"$folder/storage.conf"
export CONTAINERS_STORAGE_CONF=$folder/storage.conf BUILDAH_ISOLATION=chroot TMPDIR=$folder

step() { printf '\n== %s\n' "$*"; }

step "$(buildah --version), debootstrap $(dpkg-query --show --showformat '${Version}' debootstrap), revision $revision"

step "a stand-in for $base, of Debian ${base##*-}'s own packages"
container=$(buildah from scratch)
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
    "${base##*-}" "$(buildah mount "$container")" >"$folder/debootstrap.log" || { cat "$folder/debootstrap.log"; exit 1; }
buildah run "$container" python3 --version
buildah commit --quiet --rm "$container" "$base"

# The build uses this machine's certificates and package index.
step "the image, with EXTRAS=$extras"
settings=$folder/pip.conf
cat /etc/pip.conf >"$settings" 2>/dev/null || true
buildah build --quiet --format docker --pull=never --tag mmhash --secret "id=pip.conf,src=$settings" \
    --volume /etc/ssl/certs:/etc/ssl/certs:ro --build-arg "EXTRAS=$extras" --build-arg "REVISION=$revision" .
buildah images --format '{{.Name}}:{{.Tag}} {{.Size}}'

step "the image's environment, as mmhash env reports it"
container=$(buildah from --pull=never mmhash)
buildah run "$container" mmhash env

step "the image's root file system, run read-only, without a network, as its user"
buildah inspect --type image mmhash >"$folder/image.json"
IMAGE_ROOT=$(buildah mount "$container") IMAGE_CONFIG=$folder/image.json IMAGE_EXTRAS=$extras
export IMAGE_ROOT IMAGE_CONFIG IMAGE_EXTRAS
# Use a new mount namespace: the mounts disappear with the command.
unshare --mount --net bash -euc '
    mount --bind "$IMAGE_ROOT" "$IMAGE_ROOT"
    mount --options remount,bind,ro "$IMAGE_ROOT"
    mount --rbind /dev "$IMAGE_ROOT/dev"
    mount --types tmpfs --options mode=1777 tmpfs "$IMAGE_ROOT/tmp"
    ip link set lo up
    exec "$@"' - "$python" -m pytest -p no:randomly -p no:cacheprovider --verbose tests/packaging/test_image.py
