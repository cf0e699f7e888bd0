# The kernel's own network tests, on two sides in parallel: netdevs v0, v1, ... of VDUSE, and n0,
# n1, ... of virtio-net, each two joined by a link of mqnet (those of virtio-net on the host).
# NETDEVS is their number. PROGRAMS lists the programs: PLACE, PROGRAM, FIRST of its netdevs, number
# of NETDEVS, SECONDS of its limit, and WORDS for it. Each program gets its own network namespaces,
# so that none sees remains of another.
export PYTHONHOME=/usr PYTHONPATH=/usr/lib/python3/dist-packages
export PATH=/k/bin:$PATH
set -f  # words for programs are patterns
TESTS=/k/tools/testing/selftests
modprobe -aq ipv6 virtio_net tun vduse virtio_vdpa
modprobe -aq bridge vrf 8021q sch_ingress cls_flower cls_matchall
fail() { echo "failed: $1"; set +f; cat /tmp/*.log; exit 1; }
wait_for() {
    for _ in $(seq 600); do eval "$1" > /dev/null 2>&1 && return; sleep 0.1; done
    fail "$1"
}
for i in $(seq 0 2 $((NETDEVS - 1))); do
    mqnet link --control-socket none vduse:v$i,mac=02:00:00:00:06:0$i \
        vduse:v$((i + 1)),mac=02:00:00:00:06:0$((i + 1)) > /tmp/v$i.log 2>&1 &
done
named() {
    for dev in $(ls /sys/class/net); do
        [ "$(cat "/sys/class/net/$dev/address")" = "$1" ] && echo "$dev"
    done
}
for i in $(seq 0 $((NETDEVS - 1))); do
    wait_for "[ -e /sys/class/net/v$i ]"
    wait_for "named 02:00:00:00:05:0$i | grep -q ."
    ip link set "$(named 02:00:00:00:05:0$i)" name n$i || fail "n$i"
done
now() { cut -d. -f1 /proc/uptime; }

# NETNS NETDEV [ADDRESS4 ADDRESS6]: moves a netdev there, with default settings.
put() {
    ip link set "$2" mtu 1500 netns "$1" || fail "$2 into $1"
    ip netns exec "$1" sysctl -qw "net.ipv6.conf.$2.keep_addr_on_down=1"
    [ "$3" ] || return
    ip -n "$1" addr add "$3/24" dev "$2"
    ip -n "$1" addr add "$4/64" dev "$2" nodad
    ip -n "$1" link set "$2" up
}

# Names of XDP maps are global in the kernel: a program that finds its maps by name runs on one side
# at a time, and after the maps of the previous one are freed (some time after programs). A side
# that ends releases the other one.
alone() {
    until mkdir /tmp/alone 2> /dev/null; do sleep 0.2; done
    trap 'rmdir /tmp/alone' EXIT
}
# NETDEV...
together() {
    # The XDP program of a killed test stays at its netdev.
    for dev; do ip link set "$dev" xdp off; ip link set "$dev" xdpgeneric off; done 2> /dev/null
    for _ in $(seq 100); do bpftool map show | grep -q 'name map_xdp_' || break; sleep 0.1; done
    trap - EXIT
    rmdir /tmp/alone
}

# TRY SIDE LETTER PLACE PROGRAM FIRST NETDEVS SECONDS [WORDS]
one() {
    local output=$RESULTS/selftests/$2/${4//\//-}-${5%.*}.$1
    shift
    local near=$1-near far=$1-far begin netdevs=() with=bash dev
    begin=$(now)
    for i in $(seq "$5" $(($5 + $6 - 1))); do netdevs+=("$2$i"); done
    local all=("${netdevs[@]}")
    ip netns add "$near"; ip netns add "$far"
    ip -n "$near" link set lo up; ip -n "$far" link set lo up
    if [ "${4##*.}" = py ]; then
        put "$near" "${all[0]}" 192.0.2.1 2001:db8::1
        put "$far" "${all[1]}" 192.0.2.2 2001:db8::2
        with=python3 netdevs=()
    else
        for dev in "${all[@]}"; do put "$near" "$dev"; ip -n "$near" link set "$dev" up; done
    fi
    [[ $4 != *xdp* ]] || alone
    (
        cd "$TESTS/$3" || exit 1
        export NETIF=${all[0]} LOCAL_V4=192.0.2.1 LOCAL_V6=2001:db8::1 REMOTE_V4=192.0.2.2
        export REMOTE_V6=2001:db8::2 REMOTE_TYPE=netns REMOTE_ARGS=$far
        export KSFT_MACHINE_SLOW=yes NETIF_CREATE=no WAIT_TIME=2 PING_COUNT=4
        exec timeout -k 20 "$7" ip netns exec "$near" $with "./$4" $8 "${netdevs[@]}"
    ) > "$output" 2>&1 < /dev/null
    local status=$?
    printf '\nstatus %s\n' $status >> "$output"
    for ns in "$near" "$far"; do ip netns pids "$ns" | xargs -r kill -KILL; ip netns del "$ns"; done
    for dev in "${all[@]}"; do wait_for "[ -e /sys/class/net/$dev ]"; done
    [[ $4 != *xdp* ]] || together "${all[@]}"
    echo "$1 $3 $4: status $status, $(($(now) - begin)) s"
    # A test that passes or is skipped is done.
    [ $status = 0 ] || [ $status = 4 ]
}
# SIDE LETTER
side() {
    mkdir -p "$RESULTS/selftests/$1"
    while read -r place program first netdevs seconds words; do
        set -- "$1" "$2" "$place" "$program" "$first" "$netdevs" "$seconds" "$words"
        # Emulation may exceed timeouts of the tests: a failed test gets a second attempt.
        one first "$@" || one second "$@"
    done <<< "$PROGRAMS"
    # Results are checked by the host, including the last one's.
    return 0
}
side vduse v & first=$!
side vhost-user n & second=$!
wait $first && wait $second && echo "== done"
