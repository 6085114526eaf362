#!/bin/busybox sh
# PID 1 of the software node. Twice: first from the initramfs, to build the root file system; then, as
# `init.sh node`, on it, to set the node up, run the command and report its status. It must never need a tool
# of the file tree: it only uses busybox.
#
#   kernel ── root: 9p of the host's / (read-only) + tmpfs overlay ── node: mounts, modules, command ── token on every port
#
# Ports (virtio-serial, by name): control, out, err. The launcher reads each up to a token, to be sure of all
# output.
set -u
bb=/bin/busybox
[ "${1:-}" = node ] && bb=/run/node/busybox

fail() {
    echo "node init: $*" >/dev/console
    $bb sync
    # QEMU runs with -no-reboot: this ends it.
    $bb reboot -f
    exit 1
}

load() {
    while read -r module; do
        $bb insmod "$1/$module" || echo "node init: $module does not load"
    done <"$1/$2" >/dev/console 2>&1
}

root() {
    $bb mount -t proc proc /proc
    $bb mount -t sysfs sys /sys
    $bb mount -t devtmpfs dev /dev 2>/dev/null
    . /request/settings
    load /modules boot
    $bb mount -t tmpfs -o "size=$UPPER_SIZE,mode=755" upper /root || fail "no tmpfs"
    $bb mkdir -p /root/lower /root/upper /root/work /merged
    # The tree below is read-only and not expected to change: cache all reads. Extended attributes would cost
    # a round trip each.
    $bb mount -t 9p -o "trans=virtio,version=9p2000.L,msize=$MSIZE,cache=loose,ro,noxattr,access=any" tree /root/lower ||
        fail "cannot mount the host's file tree"
    $bb mount -t overlay -o lowerdir=/root/lower,upperdir=/root/upper,workdir=/root/work tree /merged || fail "no overlay"
    for place in proc sys dev run; do
        [ -d "/merged/$place" ] || $bb mkdir "/merged/$place"
    done
    $bb mount -t tmpfs -o mode=755 run /merged/run
    $bb mkdir -p /merged/run/node /merged/run/lock /merged/run/netns
    $bb cp /bin/busybox /init /merged/run/node/
    $bb cp -r /request /modules /merged/run/node/
    $bb mount --move /dev /merged/dev
    $bb mount --move /sys /merged/sys
    $bb mount --move /proc /merged/proc
    exec $bb switch_root /merged /run/node/busybox sh /run/node/init node
}

control_groups() {
    $bb umount /sys/fs/cgroup 2>/dev/null
    $bb mount -t cgroup2 -o nsdelegate cgroup /sys/fs/cgroup || fail "no cgroup v2"
    for controller in $($bb cat /sys/fs/cgroup/cgroup.controllers); do
        echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
    done
}

mounts() {
    $bb mkdir -p /dev/pts /dev/shm /dev/hugepages /dev/mqueue /dev/net
    $bb mount -t devpts -o mode=620,ptmxmode=666,gid=5 devpts /dev/pts
    $bb mount -t tmpfs -o mode=1777 shm /dev/shm
    $bb mount -t mqueue mqueue /dev/mqueue
    $bb mount -t debugfs debug /sys/kernel/debug 2>/dev/null
    $bb mount -t tracefs trace /sys/kernel/tracing 2>/dev/null
    $bb mount -t securityfs security /sys/kernel/security 2>/dev/null
    $bb mount -t bpf bpf /sys/fs/bpf 2>/dev/null
    for link in fd:/proc/self/fd stdin:/proc/self/fd/0 stdout:/proc/self/fd/1 stderr:/proc/self/fd/2; do
        [ -e "/dev/${link%%:*}" ] || $bb ln -s "${link#*:}" "/dev/${link%%:*}"
    done
    # Modules requested later come from the cache, by the tree's own modprobe.
    version=$($bb uname -r)
    $bb mkdir -p "/lib/modules/$version"
    $bb mount --bind "$MODULES/lib/modules/$version" "/lib/modules/$version" 2>/dev/null
    if [ -n "$OUT" ]; then
        $bb mkdir -p "$OUT"
        $bb mount -t 9p -o "trans=virtio,version=9p2000.L,msize=$MSIZE,cache=mmap,access=any" out "$OUT" || fail "cannot share $OUT"
    fi
    $bb mount --make-rshared /
}

network() {
    $bb ip link set lo up
    echo 1 >/proc/sys/net/ipv4/ip_forward
    echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
    $bb hostname node
    # Programs such as sudo can resolve the node's own name.
    echo "127.0.1.1 node" >>/etc/hosts
}

# See hold.py. Without it the node works, but may die when VMs come and go.
hold() {
    "$PYTHON" "$HOLD" </dev/null >/run/node/held 2>/dev/console &
    tries=0
    while [ ! -s /run/node/held ] && [ $tries -lt 100 ]; do
        $bb sleep 0.1
        tries=$((tries + 1))
    done
    [ -s /run/node/held ] || echo "node init: hold.py does not answer" >/dev/console
}

# The node begins with one processor: loading modules and hold.py patch the kernel's code, and no other
# processor runs it meanwhile.
processors() {
    for place in /sys/devices/system/cpu/cpu[1-9]*/online; do
        [ ! -e "$place" ] || echo 1 >"$place" || fail "no second processor"
    done
}

# Finds a virtio-serial port by its name.
port() {
    for place in /sys/class/virtio-ports/*; do
        [ "$($bb cat "$place/name")" = "$1" ] && echo "/dev/${place##*/}" && return
    done
    fail "no port $1"
}

# A command gets pipes, not the ports: a port can be opened once, and /dev/stdout must work as well.
pump() {
    $bb mkfifo "/run/node/$1"
    $bb cat "/run/node/$1" >"$(port "$1")" &
}

# Reports to the launcher, with few instructions, that this node is alive: nothing writes to the file.
alive() {
    $bb mkfifo /run/node/never
    while ! read -r -t 1 _; do echo alive >&6; done <>/run/node/never
}

node() {
    . /run/node/request/settings
    load /run/node/modules node
    mounts
    control_groups
    network
    hold
    processors
    pump out
    exec 4>/run/node/out
    if [ "$MERGED" = 1 ]; then
        exec 5>&4
    else
        pump err
        exec 5>/run/node/err
    fi
    exec 6<>"$(port control)"
    # Input from the launcher is only meant to interrupt.
    $bb cat <&6 >/dev/null &
    echo started >&6
    alive &
    alive=$!
    $bb setsid $bb sh /run/node/request/command </dev/null >&4 2>&5 4>&- 5>&- 6>&- &
    wait $!
    status=$?
    $bb sync
    $bb kill $alive
    wait $alive
    # After the command's last byte, in the same pipes: its remaining background processes do not delay the
    # end.
    printf %s "$TOKEN" >&4
    [ "$MERGED" = 1 ] || printf %s "$TOKEN" >&5
    echo "exit $status" >&6
    # The launcher ends QEMU when it has it all.
    while :; do $bb sleep 3600; done
}

if [ "${1:-}" = node ]; then node; else root; fi
