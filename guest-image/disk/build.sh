#!/bin/bash
# Builds the empty file system that a pod's disks of one kind start from, as $1/$2.ext4.
#
#   scratch   the disk that writable layers are on. It ends with its VM, hence no journal, and nothing is flushed
#   volume    the disk of an emptyDir. It outlives its VM, which may end at any moment, hence a journal
#
# The image is small and sparse, so that copying it costs the daemon nothing; the daemon makes the file as long as the disk shall be, and
# the agent grows the mounted file system to it (EXT4_IOC_RESIZE_FS). The node checks nothing of what is on it, hence no checksums.
set -euo pipefail

# Room in the smallest disk.
logical_size=64M

# uninit_bg lets groups stay unwritten, also those that growing adds. There is no resize_inode, which sets room for descriptors aside:
# growing to 1 GiB would read and write each of its 128 blocks, one after the other. One block of descriptors is enough for 8 GiB, and
# beyond that ext4 puts them among the groups that they describe (meta_bg).
features=none,ext_attr,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file
features+=,uninit_bg,dir_nlink,extra_isize

scratch() {
    # Projects count what each container's writable layer takes.
    features+=,quota,project
    uuid=706f6476-6973-6f72-0000-000000000001
    extended=quotatype=prjquota,
    mount_options=discard,nobarrier
    more=()
}

volume() {
    features+=,has_journal
    uuid=706f6476-6973-6f72-0000-000000000002
    extended=lazy_journal_init=1,
    mount_options=discard
    # The smallest that ext4 takes: its blocks count as the volume's.
    more=(-J size=4)
}

# Programs expect an empty directory. Without any permission it is one that the agent has not set up yet.
empty() {
    E2FSPROGS_FAKE_TIME=1 debugfs -w -f - "$1" >/dev/null 2>&1 <<COMMANDS
rmdir lost+found
set_inode_field <2> mode 040000
COMMANDS
}

main() {
    local image=$1/$2.ext4
    "$2"
    PATH="$PATH:/usr/sbin:/sbin"
    command -v mke2fs >/dev/null || {
        echo "$2: missing: mke2fs (e2fsprogs); run \`make deps\`" >&2
        exit 1
    }
    truncate -s "$logical_size" "$image"
    # A new file reads as zeros: nothing needs to be zeroed, now or by the guest later.
    extended+=lazy_itable_init=0,assume_storage_prezeroed=1,nodiscard,root_owner=0:0,hash_seed=$uuid
    E2FSPROGS_FAKE_TIME=1 mke2fs -q -F -t ext4 -b 4096 -I 256 -i 8192 -m 0 -O "$features" -U "$uuid" -L "$2" "${more[@]}" -E "$extended" "$image" >&2
    [ "$2" = scratch ] || empty "$image"
    # The guest zeroes no inode tables either, and gives freed blocks back.
    E2FSPROGS_FAKE_TIME=1 tune2fs -o "$mount_options" -E mount_opts=noinit_itable "$image" >/dev/null
    fallocate --dig-holes "$image"
    echo "$2: $(stat -c %s "$image") bytes, $(($(stat -c %b "$image") / 2)) KiB on disk" >&2
}

main "$@"
