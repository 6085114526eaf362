#!/bin/busybox sh
# PID 1 of the guest that `test` boots: tries what Podvisor needs of the kernel, one line each.
bb=/bin/busybox
export PATH=/bin LD_LIBRARY_PATH=/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu
$bb --install -s /bin
# busybox has smaller ones, which its shell would prefer.
ip() { /bin/ip "$@"; }
tc() { /bin/tc "$@"; }

check() {
    name=$1
    shift
    if "$@" >/tmp/log 2>&1; then
        echo "ok      $name"
    else
        echo "FAILED  $name: $($bb tail -n 3 /tmp/log | tr '\n' ' ')"
    fi
}

controllers() {
    mount -t cgroup2 cgroup /sys/fs/cgroup || return 1
    for controller in cpuset cpu io memory hugetlb pids rdma misc; do
        grep -qw "$controller" /sys/fs/cgroup/cgroup.controllers || { echo "no $controller"; return 1; }
        echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control || return 1
    done
    mkdir /sys/fs/cgroup/pod && echo 100000000 >/sys/fs/cgroup/pod/memory.max && echo "50000 100000" >/sys/fs/cgroup/pod/cpu.max &&
        [ -e /sys/fs/cgroup/pod/memory.pressure ] && [ -e /sys/fs/cgroup/pod/cgroup.freeze ] && [ -e /sys/fs/cgroup/pod/io.max ]
}

namespaces() {
    for kind in cgroup ipc mnt net pid time user uts; do
        [ -e "/proc/self/ns/$kind" ] || { echo "no $kind"; return 1; }
    done
    unshare -m -u -i -n -p -U -r -f true
}

erofs() {
    mkdir /mnt/root && mount -t erofs -o ro /dev/vda /mnt/root && [ -x /mnt/root/podvisor-agent ]
}

# The template grows, once mounted, to the disk that it was copied to.
scratch() {
    mkdir /mnt/scratch && mount -t ext4 /dev/vdb /mnt/scratch && resize2fs /dev/vdb || return 1
    echo "grown to $(df -m /mnt/scratch | tail -n 1 | awk '{print $2}') MiB"
    [ "$(df -m /mnt/scratch | tail -n 1 | awk '{print $2}')" -gt 7900 ] || return 1
    dd if=/dev/zero of=/mnt/scratch/file bs=1M count=100 && rm /mnt/scratch/file && fstrim /mnt/scratch
}

overlay() {
    mkdir -p "$1/upper" "$1/work" "/mnt/merged-$2" &&
        mount -t overlay -o "lowerdir=/mnt/root,upperdir=$1/upper,workdir=$1/work" overlay "/mnt/merged-$2" &&
        echo x >"/mnt/merged-$2/new" && rm -r "/mnt/merged-$2/tmp" && [ -c "$1/upper/tmp" ]
}

tmpfs_overlay() {
    mkdir /mnt/memory && mount -t tmpfs -o size=10m tmpfs /mnt/memory && overlay /mnt/memory memory
}

nf_tables() {
    nft -f - <<'RULES'
table inet t {
    set s { type ipv4_addr; flags interval; elements = { 10.0.0.0/8 } }
    chain in { type filter hook input priority 0; ct state established,related accept; ip saddr @s tcp dport { 80, 443 } limit rate 5/second log counter reject; }
    chain post { type nat hook postrouting priority 100; oifname "lo" masquerade; }
    chain pre { type nat hook prerouting priority -100; tcp dport 8080 redirect to :80; tcp dport 81 dnat ip to 10.0.0.1:80; fib daddr type local accept; }
    chain mangle { type filter hook prerouting priority -150; meta l4proto tcp tproxy ip to 127.0.0.1:15001; numgen random mod 2 0 accept; }
}
RULES
}

# One rule each, as kube-proxy, service meshes and container engines write them.
iptables() {
    for family in iptables ip6tables; do
        run() { xtables-nft-multi "$family" -w "$@" || { echo "$family $*"; return 1; }; }
        run -A INPUT -m conntrack --ctstate NEW -m comment --comment c -j ACCEPT &&
            run -A INPUT -p tcp -m multiport --dports 1,2 -m mark --mark 1/1 -j REJECT &&
            run -A OUTPUT -m owner --uid-owner 1337 -j RETURN &&
            run -A INPUT -m state --state INVALID -m limit --limit 1/s -j LOG &&
            run -A INPUT -m statistic --mode random --probability 0.5 -m addrtype --dst-type LOCAL -j DROP &&
            run -A INPUT -m physdev --physdev-is-bridged -j ACCEPT &&
            run -A INPUT -m recent --name r --set -m hashlimit --hashlimit-above 5/s --hashlimit-name h -j DROP &&
            run -t nat -A POSTROUTING -j MASQUERADE --random-fully &&
            run -t nat -A PREROUTING -p tcp --dport 8080 -j REDIRECT --to-ports 80 &&
            run -t mangle -A PREROUTING -p tcp -m socket -j MARK --set-mark 1 &&
            run -t mangle -A PREROUTING -j CONNMARK --save-mark &&
            run -t mangle -A PREROUTING -p tcp -j TPROXY --on-port 15001 --tproxy-mark 1 &&
            run -t mangle -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu &&
            run -t raw -A PREROUTING -p tcp -j CT --notrack || return 1
    done
}

links() {
    ip link add b0 type bridge && ip link add v0 type veth peer name v1 && ip link set v0 master b0 &&
        ip link add d0 type dummy && ip link set d0 up && ip link add link d0 name d0.5 type vlan id 5 && ip link add m0 link d0 type macvlan &&
        ip link add x0 type vxlan id 1 dstport 4789 && ip link add w0 type wireguard && ip tuntap add t0 mode tap &&
        ip rule add fwmark 1 lookup 100 && ip -6 addr add fd00::1/64 dev d0 && ip route add default dev d0 mtu lock 1400 table 100
}

traffic_control() {
    tc qdisc add dev v0 clsact && tc filter add dev v0 ingress matchall action mirred egress redirect dev v1 &&
        tc qdisc add dev v1 root netem delay 10ms && tc qdisc add dev d0 root handle 1: htb && tc qdisc add dev x0 root fq_codel &&
        tc qdisc add dev m0 root tbf rate 1mbit burst 10k latency 10ms
}

processors() {
    echo 1 >/sys/devices/system/cpu/cpu1/online && [ "$(nproc)" = 2 ] && echo 0 >/sys/devices/system/cpu/cpu1/online
}

nothing_calibrated() {
    dmesg | grep -iE 'calibrating apic|fast tsc calibration|using local apic timer interrupts' && return 1
    dmesg | grep -q 'preset value' && [ "$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)" != jiffies ]
}

others() {
    grep -qw vsock /proc/net/protocols 2>/dev/null || grep -q AF_VSOCK /proc/net/protocols || return 1
    grep -q '^Seccomp:' /proc/self/status && grep -q virtiofs /proc/filesystems && grep -q fuse /proc/filesystems &&
        [ -e /dev/net/tun ] && [ -e /dev/fuse ] && [ -e /dev/loop-control ] && [ -d /sys/bus/nd ] && mount -t bpf bpf /sys/fs/bpf
}

mount -t devtmpfs dev /dev 2>/dev/null
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
exec >/dev/ttyS0 2>&1
echo "user space after $(awk '{print $1}' /proc/uptime) s, $(uname -r), $(awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo) MiB of 512 available"
check "nothing was calibrated at boot" nothing_calibrated
check "cgroup v2 has every controller" controllers
check "all namespaces" namespaces
check "EROFS" erofs
check "the scratch template grows, and takes discards" scratch
check "overlayfs on ext4" overlay /mnt/scratch disk
check "overlayfs on tmpfs" tmpfs_overlay
check "nf_tables" nf_tables
check "iptables by nf_tables" iptables
check "links" links
check "traffic control" traffic_control
check "processors come and go" processors
check "cachestat" calls cachestat
check "memory that is secret" calls memfd_secret
check "the rest" others
[ ! -e /full.sh ] || . /full.sh
echo "all tried"
reboot -f
