#!/bin/bash
# Builds the guest kernel $2, `small` or `full`, into the directory $1, as $1/vmlinux or $1/vmlinux-full (stripped
# ELF), with $1/config and $1/System.map beside it. Called by ../build, which caches; the source is the distribution's package.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source_archive=${PODVISOR_KERNEL_SOURCE:-/usr/src/linux-source-6.12.tar.xz}
# How many lines `make` says in a whole build, for the progress alone; off by a few when the fragment changes.
declare -A steps_in_all=([small]=2100 [full]=3400)
declare -A file=([small]=vmlinux [full]=vmlinux-full)
declare -A size_limit=([small]=$((20 * 1024 * 1024)) [full]=$((48 * 1024 * 1024)))

# Sources that no configuration of ours compiles; their Kconfig and Makefile are read all the same.
unused=()
for folder in drivers/{gpu,media,staging,infiniband,scsi,usb,iio,hwmon,pinctrl,soc,clk,mtd,mmc,input,video} \
    drivers/net/{ethernet,wireless,usb,can,dsa} sound arch/{arm,arm64,powerpc,mips,s390,sparc,riscv,loongarch,m68k,parisc,sh}; do
    unused+=("--exclude=linux-source-*/$folder/*.[chS]")
done

die() {
    echo "kernel: $*" >&2
    exit 1
}

check_tools() {
    local missing=() tool
    for tool in make gcc flex bison bc perl xz strip; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    [ -e /usr/include/gelf.h ] || missing+=("gelf.h (libelf-dev)")
    [ "$kernel" = small ] || command -v pahole >/dev/null || missing+=("pahole (dwarves)")
    [ -f "$source_archive" ] || missing+=("$source_archive (linux-source-6.12)")
    [ ${#missing[@]} -eq 0 ] || die "missing: ${missing[*]}; run \`make deps\`"
}

# edit FILE LINE SCRIPT: changes a source where the kernel has no setting; fails where the line is not there any more.
edit() {
    grep -qxF -- "$2" "$tree/$1" || die "$1 has no line '$2'"
    sed -i "$3" "$tree/$1"
}

edit_sources() {
    # Unlocking is a function, as in kernels that preempt themselves. Inline, it is 3,500 calls of a paravirtual function with two
    # alternatives each, and a boot spends a fifth of itself on decoding and patching these.
    edit kernel/Kconfig.locks 'config UNINLINE_SPIN_UNLOCK' '/^config UNINLINE_SPIN_UNLOCK$/,/^$/s/bool/def_bool y/'
    edit kernel/Kconfig.locks 'config INLINE_SPIN_UNLOCK_IRQ' '/^config INLINE_SPIN_UNLOCK_IRQ$/,/^$/s/def_bool y/def_bool n/'
    # No directory in sysfs for each of a hundred slab caches, with twenty files each.
    edit mm/slab.h '#define SLAB_SUPPORTS_SYSFS 1' '/^#if /{N;/SLAB_SUPPORTS_SYSFS/s/^#if[^\n]*/#if 0/}'
    # Podvisor's devices have a vendor of their own ("pod2"). They need no acknowledgement of used buffers, which would be an exit, and
    # have their notifications at I/O ports: KVM decodes an instruction for each write to memory.
    local driver=drivers/virtio/virtio_mmio.c own='vm_dev->vdev.id.vendor == 0x32646f70'
    edit $driver $'\twritel(status, vm_dev->base + VIRTIO_MMIO_INTERRUPT_ACK);' \
        "/^\twritel(status, .*_INTERRUPT_ACK/s/^\t/\tif (!($own \&\& status == VIRTIO_MMIO_INT_VRING))\n\t\t/"
    edit $driver $'\twritel(vq->index, vm_dev->base + VIRTIO_MMIO_QUEUE_NOTIFY);' \
        "/^\twritel(vq->index, .*_QUEUE_NOTIFY/s/^\t/\tif ($own)\n\t\toutl(vq->index, 0x6000 + (vm_dev->pdev->resource->start >> 12 \& 63) * 4);\n\telse\n\t\t/"
    # Each volume is a file system below the share, and has what the share has: access control lists, and no question for capabilities
    # of the file before each write.
    edit fs/fuse/inode.c $'\tsb->s_xattr = parent_sb->s_xattr;' \
        '/^\tsb->s_xattr = parent_sb/s/$/\n\tsb->s_flags |= parent_sb->s_flags \& (SB_POSIXACL | SB_NOSEC);/'
    # What is read past the cache is sent past it, too (sendfile(2), splice(2)): others change the file.
    edit fs/fuse/file.c $'\t\treturn filemap_splice_read(in, ppos, pipe, len, flags);' \
        '/^\t\treturn filemap_splice_read/s/return \(filemap\)\(_.*\);/return ff->open_flags \& FOPEN_DIRECT_IO ? copy\2 : \1\2;/'
    # A container's root is an image and a scratch disk, and both together number their inodes below 2^32, as on one file system. From 2^63
    # on, 32-bit programs cannot stat a file, and JavaScript's numbers take different files for one.
    local overlay=fs/overlayfs
    edit $overlay/inode.c $'\tunsigned int xinoshift = 64 - xinobits;' 's/\(xinoshift = \)64/\132/'
    edit $overlay/inode.c $'\t\t\tinode->i_ino &= ~0UL >> xinobits;' 's/\(i_ino &= \)~0UL >> xinobits/\1(1UL << xinoshift) - 1/'
    edit $overlay/readdir.c $'\tunsigned int xinoshift = 64 - xinobits;' 's/\(xinoshift = \)64/\132/'
    edit $overlay/super.c $'\t\tofs->xino_mode = BITS_PER_LONG - 32;' 's/BITS_PER_LONG - 32;$/-1;/'
    # Programs are mapped from the image's memory. A core dump has their variables all the same, as with an ordinary file.
    edit fs/coredump.c $'\tif (vma_is_dax(vma)) {' 's/^\tif (vma_is_dax(vma))/\tif (vma_is_dax(vma) \&\& (vma->vm_flags \& VM_SHARED))/'
    # A frame of a stream takes four buffers of 16 KiB and not sixteen of 4 KiB. A part of memory may be smaller than a buffer then.
    edit drivers/net/virtio_net.c $'\t\t\t\trq->min_buf_len, PAGE_SIZE - hdr_len);' 's/rq->min_buf_len, PAGE_SIZE - hdr_len/rq->min_buf_len, 4 * PAGE_SIZE - hdr_len/'
    edit drivers/net/virtio_net.c $'\t\tlen -= sizeof(struct virtnet_rq_dma);' 's/^\t\tlen -= \(sizeof(struct virtnet_rq_dma)\);/\t\tlen = alloc_frag->size - room - \1;/'
}

# Fails if the kernel's own rules drop a line of the fragment: a feature must not vanish unseen with a new version.
configure() {
    make -s -C "$tree" tinyconfig >/dev/null
    "$here/settings" "$kernel" >>"$tree/.config"
    # Later lines win; `make` complains of each.
    make -s -C "$tree" olddefconfig >/dev/null 2>&1
    local line key lost=()
    while read -r line; do
        case $line in
        CONFIG_*=*)
            grep -qxF -- "$line" "$tree/.config" || lost+=("${line%%=*}")
            ;;
        "# CONFIG_"*" is not set")
            key=${line#\# }
            key=${key%% *}
            if grep -q "^$key=" "$tree/.config"; then lost+=("no $key"); fi
            ;;
        esac
    done < <("$here/settings" "$kernel")
    [ ${#lost[@]} -eq 0 ] || die "the kernel's rules do not allow: ${lost[*]}"
}

# Turns make's lines into one line every few seconds.
progress() {
    local done=0 next=0 line
    while read -r line; do
        done=$((done + 1))
        if [ "$SECONDS" -ge "$next" ]; then
            echo "kernel: $done of about ${steps_in_all[$kernel]} steps, ${SECONDS} s" >&2
            next=$((SECONDS + 10))
        fi
    done
    echo "kernel: $done steps, ${SECONDS} s" >&2
}

compile() {
    # The same bytes wherever and whenever it is built.
    export KBUILD_BUILD_TIMESTAMP='1970-01-01' KBUILD_BUILD_USER=podvisor KBUILD_BUILD_HOST=podvisor KBUILD_BUILD_VERSION=1
    unset MAKEFLAGS MFLAGS
    SECONDS=0
    # -w: nobody reads the warnings, and looking for them takes a tenth of the compiler's time. The code is the same.
    if ! make -C "$tree" -j"$(nproc)" KCFLAGS=-w vmlinux 2>"$output/errors" | progress; then
        tail -n 40 "$output/errors" >&2
        die "the build failed"
    fi
    rm "$output/errors"
}

main() {
    output=$1 kernel=$2
    check_tools
    mkdir -p "$output"
    tree=$output/tree
    rm -rf "$tree"
    mkdir "$tree"
    echo "kernel: unpacking $source_archive" >&2
    # Most of the archive is of no use here: documentation, other architectures, and drivers.
    tar -xf "$source_archive" -C "$tree" --strip-components=1 --exclude='*.rst' --exclude='*.dts*' "${unused[@]}"
    edit_sources
    configure
    compile
    strip --strip-all -o "$output/${file[$kernel]}" "$tree/vmlinux"
    cp "$tree/.config" "$output/config"
    cp "$tree/System.map" "$output/System.map"
    local size
    size=$(stat -c %s "$output/${file[$kernel]}")
    [ "$size" -le "${size_limit[$kernel]}" ] || die "${file[$kernel]} has $size bytes, more than ${size_limit[$kernel]}"
    rm -rf "$tree"
    echo "kernel: $size bytes" >&2
}

main "$@"
