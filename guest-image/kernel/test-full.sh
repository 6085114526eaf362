# What the full kernel has besides. Read by test-init.sh, which has `check`.

# In the legacy form; its rules are apart from those of nf_tables.
legacy_iptables() {
    for family in iptables ip6tables; do
        run() { xtables-legacy-multi "$family" -w "$@" || { echo "$family $*"; return 1; }; }
        run -A INPUT -m policy --dir in --pol none -j ACCEPT && run -A INPUT -m helper --helper ftp -j ACCEPT &&
            run -A INPUT -m time --weekdays Mon -j ACCEPT && run -t nat -A POSTROUTING -j MASQUERADE &&
            run -t nat -A PREROUTING -p tcp --dport 8080 -j REDIRECT --to-ports 80 &&
            run -t mangle -A PREROUTING -m dscp --dscp 1 -j DSCP --set-dscp 0 && run -t raw -A PREROUTING -j TRACE &&
            run -A INPUT -m ipvs --ipvs -j ACCEPT || return 1
    done
}

ipvs() {
    for scheduler in rr wrr lc wlc sh; do
        ipvsadm -A -t "10.1.1.1:8$((at = at + 1))" -s "$scheduler" || return 1
    done
    ipvsadm -A -f 7 -6 -s rr && ipvsadm -a -t 10.1.1.1:81 -r 10.1.1.2:80 -m && ipvsadm -Ln | grep -q 10.1.1.2
}

# A new network has none that nobody asked for.
tunnels() {
    ip link add g0 type gre local 10.9.9.1 remote 10.9.9.2 && ip link add g1 type ip6gre local fd00::1 remote fd00::2 &&
        ip link add g2 type ipip local 10.9.9.1 remote 10.9.9.2 && ip link add g3 type geneve id 1 remote 10.9.9.3 || return 1
    [ "$(unshare -n cat /proc/net/dev | grep -c :)" = 1 ] || { unshare -n cat /proc/net/dev; return 1; }
}

ipsec() {
    ip xfrm state add src 10.9.9.1 dst 10.9.9.2 proto esp spi 1 mode tunnel \
        aead 'rfc4106(gcm(aes))' 0x0123456789abcdef0123456789abcdef01234567 128 &&
        ip xfrm state add src fd00::1 dst fd00::2 proto esp spi 2 mode transport \
            enc 'cbc(aes)' 0x0123456789abcdef0123456789abcdef auth-trunc 'hmac(sha256)' 0x0123456789abcdef0123456789abcdef 128 &&
        ip xfrm policy add src 10.9.9.1 dst 10.9.9.2 dir out tmpl src 10.9.9.1 dst 10.9.9.2 proto esp mode tunnel &&
        ip link add x1 type xfrm dev lo if_id 7
}

# file_system TYPE SIZE COMMAND…: made in a file of the scratch disk, mounted, written to.
file_system() {
    local type=$1 image=/mnt/scratch/$1
    truncate -s "$2" "$image"
    shift 2
    mkdir "/mnt/$type" && "$@" "$image" && mount -o loop -t "$type" "$image" "/mnt/$type" && echo "$type" >"/mnt/$type/file" &&
        umount "/mnt/$type" && mount -o loop -t "$type" "$image" "/mnt/$type" && [ "$(cat "/mnt/$type/file")" = "$type" ] && umount "/mnt/$type"
}

xfs() { file_system xfs 320M mkfs.xfs -q; }
btrfs() { file_system btrfs 128M mkfs.btrfs -q; }
vfat() { file_system vfat 16M mkfs.vfat; }

# read_only TYPE COMMAND…: of a folder with a file.
read_only() {
    local type=$1 image=/mnt/scratch/$1
    shift
    mkdir -p /tmp/tree "/mnt/$type" && echo content >/tmp/tree/file && "$@" && mount -o loop,ro -t "$type" "$image" "/mnt/$type" &&
        [ "$(cat "/mnt/$type/file")" = content ] && umount "/mnt/$type"
}

squashfs() {
    for compressor in gzip lz4 lzo xz zstd; do
        rm -f /mnt/scratch/squashfs
        read_only squashfs mksquashfs /tmp/tree /mnt/scratch/squashfs -quiet -no-progress -comp "$compressor" || { echo "$compressor"; return 1; }
    done
}
iso9660() { read_only iso9660 genisoimage -quiet -J -r -o /mnt/scratch/iso9660 /tmp/tree; }

device_mapper() {
    local disk hashes root
    truncate -s 32M /mnt/scratch/disk && disk=$(losetup -f) && losetup "$disk" /mnt/scratch/disk || return 1
    dmsetup --noudevsync create part --table "0 2048 linear $disk 0" && dmsetup --noudevsync remove part || return 1
    dmsetup targets | grep -q '^thin-pool' && dmsetup targets | grep -q '^snapshot' || return 1
    printf key | DM_DISABLE_UDEV=1 cryptsetup open --type plain --cipher aes-xts-plain64 --key-size 256 --hash sha256 "$disk" secret &&
        dd if=/dev/urandom of=/dev/mapper/secret bs=1M count=1 && DM_DISABLE_UDEV=1 cryptsetup close secret || return 1
    truncate -s 8M /mnt/scratch/hashes && hashes=/mnt/scratch/hashes || return 1
    root=$(veritysetup format "$disk" "$hashes" | awk '/^Root hash/ {print $3}') && [ -n "$root" ] &&
        DM_DISABLE_UDEV=1 veritysetup open "$disk" checked "$hashes" "$root" && cat /dev/mapper/checked >/dev/null &&
        DM_DISABLE_UDEV=1 veritysetup close checked
}

probes() {
    zcat /proc/config.gz | grep -q '^CONFIG_IKCONFIG=y' && [ -s /sys/kernel/btf/vmlinux ] && mount -t tracefs trace /sys/kernel/tracing || return 1
    cd /sys/kernel/tracing && echo 'p:opened do_sys_openat2' >kprobe_events && echo 1 >events/kprobes/opened/enable && cat /init >/dev/null &&
        grep -q opened trace && [ -d events/syscalls/sys_enter_openat ]
}

mitigations() {
    # What the processor's microcode lacks is the node's matter.
    grep -H . /sys/devices/system/cpu/vulnerabilities/* | grep -i ': *vulnerable' | grep -v 'no microcode' && return 1
    grep -qi mitigation /sys/devices/system/cpu/vulnerabilities/spectre_v2
}

# In a network without the rules that were made before, some of which drop what they see at random.
apart() { unshare -n sh -c 'ip link set lo up && timeout 20 calls "$1"' sh "$1"; }

# IPVS asks the table of local addresses, which the first address makes.
ip link set lo up
check "SCTP" apart sctp
check "iptables in its legacy form" legacy_iptables
check "IPVS" ipvs
check "tunnels" tunnels
check "IPsec" ipsec
check "the kernel's ciphers" calls hash
check "AES by instructions" grep -q '^driver.*aesni' /proc/crypto
# Nobody serves here; a kernel without the client says so before it asks.
check "clients of network file systems" apart network_file_systems
check "XFS" xfs
check "btrfs" btrfs
check "FAT" vfat
check "squashfs" squashfs
check "ISO 9660" iso9660
check "device-mapper" device_mapper
check "configuration, probes and types" probes
check "mitigations" mitigations
