#!/bin/bash
# Builds the guest's root into the directory $1, as $1/root.erofs, with the agent $2 as /podvisor-agent.
#
# Read-only and the same for every VM: it lies on a pmem slot and is mapped from the host's page cache (DAX), so file contents are
# uncompressed and aligned to 4 KiB blocks, and the image fills whole 2 MiB pages, which the slot's mapping needs.
set -euo pipefail

align=$((2 * 1024 * 1024))
size_limit=$((12 * 1024 * 1024))
# Empty directories to mount on. What the agent makes at run time is below /run, a tmpfs.
mount_points=(dev proc sys run tmp etc var)

die() {
    echo "root: $*" >&2
    exit 1
}

main() {
    local output=$1 agent=$2 tree size uuid
    command -v mkfs.erofs >/dev/null || die "missing: mkfs.erofs (erofs-utils); run \`make deps\`"
    ! readelf -lW "$agent" | grep -q INTERP || die "$agent is not static: nothing in the guest could load it"
    tree=$output/tree
    mkdir "$tree"
    (cd "$tree" && mkdir -m 755 "${mount_points[@]}")
    install -m 755 "$agent" "$tree/podvisor-agent"
    # A debugger reads the copy in target; the guest has no use for symbols.
    strip --strip-all "$tree/podvisor-agent"
    # The daemon knows an image by its UUID: the same agent, built the same way, gives the same UUID and the same bytes.
    uuid=$(cat "$tree/podvisor-agent" "${BASH_SOURCE[0]}" | sha256sum |
        sed -E 's/^(.{8})(.{4})(.{4})(.{4})(.{12}).*/\1-\2-\3-\4-\5/')
    # With the rest of its last block beside the inode, EROFS would map nothing of a file directly.
    mkfs.erofs --quiet -Enoinline_data -T 0 --all-root -U "$uuid" -x -1 "$output/root.erofs" "$tree" >&2 ||
        die "mkfs.erofs failed"
    rm -rf "$tree"
    size=$(stat -c %s "$output/root.erofs")
    truncate -s $(((size + align - 1) / align * align)) "$output/root.erofs"
    size=$(stat -c %s "$output/root.erofs")
    [ "$size" -le "$size_limit" ] || die "root.erofs has $size bytes, more than $size_limit; is the agent a release build?"
    echo "root: $size bytes" >&2
}

main "$@"
