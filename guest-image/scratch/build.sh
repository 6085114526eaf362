#!/bin/bash
# Builds the empty file system that every pod's scratch disk starts from, as $1/scratch.ext4.
#
# It is small and sparse, so that copying it costs the daemon nothing; the daemon makes the file as long as the disk shall be, and the
# agent grows the mounted file system to it (EXT4_IOC_RESIZE_FS). What is on it ends with its VM, hence no journal and no checksums.
set -euo pipefail

# Room in the smallest disk, and the size up to which it grows by descriptors set aside here (beyond that ext4 finds other room).
logical_size=64M
grows_to_blocks=$((1024 * 1024 * 1024 / 4)) # 1 TiB in blocks of 4 KiB

# uninit_bg lets groups stay unwritten, also those that growing adds.
features=none,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file
features+=,uninit_bg,dir_nlink,extra_isize
# Projects count what each container's writable layer takes.
features+=,quota,project
uuid=706f6476-6973-6f72-0000-000000000001

main() {
    local image=$1/scratch.ext4
    PATH="$PATH:/usr/sbin:/sbin"
    command -v mke2fs >/dev/null || {
        echo "scratch: missing: mke2fs (e2fsprogs); run \`make deps\`" >&2
        exit 1
    }
    truncate -s "$logical_size" "$image"
    # A new file reads as zeros: nothing needs to be zeroed, now or by the guest later.
    E2FSPROGS_FAKE_TIME=1 mke2fs -q -F -t ext4 -b 4096 -I 256 -i 8192 -m 0 -O "$features" -U "$uuid" -L scratch \
        -E "quotatype=prjquota,resize=$grows_to_blocks,lazy_itable_init=0,assume_storage_prezeroed=1,nodiscard,root_owner=0:0,hash_seed=$uuid" "$image" >&2
    # The guest zeroes no inode tables either, gives freed blocks back, and flushes nothing: no disk survives the host's crash.
    E2FSPROGS_FAKE_TIME=1 tune2fs -o discard,nobarrier -E mount_opts=noinit_itable "$image" >/dev/null
    fallocate --dig-holes "$image"
    echo "scratch: $(stat -c %s "$image") bytes, $(($(stat -c %b "$image") / 2)) KiB on disk" >&2
}

main "$@"
