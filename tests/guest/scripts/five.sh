# The same requests to the kernel's own implementation and to mqnet. Each leaves NAME.kernel and
# NAME.ours in $PROBES, and a line in $PROBES/order: name, request, driver that answered for the
# kernel. eth0 and eth1 are one link of mqnet on the host: virtio-net with four queue pairs each. The
# kernel's NTB drivers have an emulated endpoint.
export PROBES=$RESULTS/probes PYTHONHOME=/usr PYTHONPATH=/usr/lib/python3/dist-packages
mkdir -p "$PROBES"
modprobe -aq ipv6 virtio_net tun veth
# Windows may have transparent huge pages.
echo always > /sys/kernel/mm/transparent_hugepage/shmem_enabled
GRP=none
fail() { echo "failed: $1"; cat /tmp/*.log; exit 1; }
wait_for() { for _ in $(seq 600); do eval "$1" > /dev/null 2>&1 && return; sleep 0.1; done; fail "$1"; }
start() { local log=$1; shift; mqnet link --json "$@" > /tmp/$log.json 2> /tmp/$log.log & echo $! > /tmp/$log.pid; }
in_vu() { MQNET_RUNTIME_DIR=/run/vu0.d mqnet "$@"; }
known() { wait_for "mqnet ethtool -i $1"; }
# Attributes of a queue without their numbers: one line per kind of object.
shape() { sed -E 's/^\[//; s/\]$//; s/\}, \{/}\n{/g' | sed -E -e 's/: [0-9]+/: N/g; s/"function": "[^"]*"/"function": F/g' -e "s/(miss-type-doc.: )'[^']*'/\\1D/" | uniq -c | sed -E 's/^ *([0-9]+) /\1 x /'; }
order() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >> "$PROBES/order"; }
plain() { sed -E "s/\<$1\>/DEV/g"; }
ours() { ([ -d /run/$2.d ] && export MQNET_RUNTIME_DIR=/run/$2.d; eval "mqnet ${3//DEV/$2}" 2>&1; echo "exit $?") | plain "$2" > "$PROBES/$1.ours"; }
# NAME KERNEL-DEVICE WHO OUR-DEVICE WORDS: request of ethtool.
ethtools() {
    order "$1" "ethtool $5" "$3"
    (eval "ethtool ${5//DEV/$2}" 2>&1; echo "exit $?") | plain "$2" > "$PROBES/$1.kernel"
    ours "$1" "$4" "ethtool $5"
}
# NAME TEXT OUR-DEVICE WORDS: the kernel's answer needs hardware; TEXT is the answer according to
# its source.
fact() {
    order "$1" "${4//$GRP/IFINDEX}" recorded; printf '%b\n' "$2" > "$PROBES/$1.kernel"
    ours "$1" "$3" "$4"; sed -i 's/ (offset [0-9]*)//' "$PROBES/$1.ours"
}
# NAME KERNEL-WORDS OUR-WORDS: request of ynl. The kernel gets all of them together.
ynl() { order "$1" "ynl ${3//$VU/IFINDEX}" virtio-net; printf '%s\t%s\n' "$1" "$2" >> /tmp/ynl; ours "$1" vu0 "ynl $3"; }
# Sends UDP to a port until a backlog exists in front of a stalled reader: a blocked sender never
# ends.
flood() {
    guest-flood send 10.1.0.2:9 1 600 > /dev/null & local sender=$!
    wait_for "$1 | grep -q 'backlog [1-9]'"
    sleep 1
    eval "$1" | moved > "$PROBES/$2"
    kill $sender; wait $sender 2> /dev/null
}

echo "== devices"
wait_for '[ -e /sys/class/net/eth1 ]'
ip netns add far
ip link set eth1 netns far
ip addr add 10.9.0.1/24 dev eth0; ip -n far addr add 10.9.0.2/24 dev eth1
ip link set eth0 up; ip -n far link set eth1 up; ip -n far link set lo up
ethtool -L eth0 combined 4 || fail "channels of eth0"
ip link add vet0 numtxqueues 4 numrxqueues 4 type veth peer name vet1 numtxqueues 4 numrxqueues 4
start na tap:na,address=10.1.0.1/24 ntb:/run/n.sock,window=2M,name=ntb0 --channels 2
start nb tap:nb,netns=far,address=10.1.0.2/24 ntb:/run/n.sock,window=2M,name=ntb1 --channels 2
start dev vhost-user:/run/v.sock,name=card,queues=4 null: --channels 4
wait_for '[ -e /run/v.sock ]'
# A separate process: numbers of netdevs are unique within a process.
MQNET_RUNTIME_DIR=/run/vu0.d start vu virtio-user:/run/v.sock,name=vu0 tap:t0,address=10.2.0.1/24 --channels 4
MQNET_RUNTIME_DIR=/run/g0.d start grp tap:g0,address=10.3.0.1/24+tap:g1,address=10.4.0.1/24 null: --channels 4
# The kernel's own end of a bridge: an emulated endpoint, whose far end is mqnet on the host.
for module in ntb ntb_hw_epf; do insmod /ntb/$module.ko || fail $module; done
insmod /ntb/ntb_transport.ko max_num_clients=4 && insmod /ntb/ntb_netdev.ko || fail ntb_netdev
ntb_device() { for dev in $(ls /sys/class/net); do ethtool -i $dev 2> /dev/null | grep -q '^driver: ntb_netdev' && echo $dev; done; }
KNTB=$(ntb_device)
[ -n "$KNTB" ] || fail "the netdev of ntb_netdev"
wait_for "ethtool -L $KNTB combined 2"
for dev in ntb0 na; do known $dev; done
wait_for 'in_vu ethtool -l vu0 | tail -2 | grep -q 4'
wait_for 'in_vu ynl --dump queue-get | grep -q napi-id'
wait_for 'MQNET_RUNTIME_DIR=/run/g0.d mqnet ynl --dump queue-get | grep -q napi-id'
wait_for 'ping -c1 -W1 10.9.0.2'; wait_for 'ping -c1 -W1 10.1.0.2'

echo "== ntb_netdev: channels"
ethtools ntb-channels $KNTB ntb_netdev ntb0 '-l DEV'
ethtools channels-same eth0 virtio-net vu0 '-l DEV'
ethtools channels-tap na tun na '-l DEV'
ethtools channels-tap-set na tun na '-L DEV combined 2'
ethtools channels-zero $KNTB ntb_netdev ntb0 '-L DEV combined 0'
ethtools channels-many $KNTB ntb_netdev ntb0 '-L DEV combined 999'
ethtools channels-huge $KNTB ntb_netdev ntb0 '-L DEV combined 4294967296'
ethtools channels-negative $KNTB ntb_netdev ntb0 '-L DEV combined -1'
ethtools channels-rx $KNTB ntb_netdev ntb0 '-L DEV rx 1'
ethtools channels-tx $KNTB ntb_netdev ntb0 '-L DEV tx 1'
ethtools channels-other $KNTB ntb_netdev ntb0 '-L DEV other 1'
ethtools channels-mixed $KNTB ntb_netdev ntb0 '-L DEV combined 1 rx 1'
ethtools channels-none $KNTB ntb_netdev ntb0 '-L DEV'
ethtools channels-word $KNTB ntb_netdev ntb0 '-L DEV queues 2'
ethtools channels-text $KNTB ntb_netdev ntb0 '-L DEV combined two'
ethtools channels-alone $KNTB ntb_netdev ntb0 '-L DEV combined'
ethtools channels-nobody nobody core nobody '-l DEV'
ethtools channels-set-nobody nobody core nobody '-L DEV combined 1'
ethtools channels-veth-many vet0 veth ntb0 '-L DEV combined 5000'
ethtools rings eth0 virtio-net vu0 '-g DEV'
ethtools rings-many eth0 virtio-net ntb0 '-G DEV rx 999999'
ethtools ntb-channels-set $KNTB ntb_netdev ntb0 '-L DEV combined 1'
ethtools ntb-channels-after $KNTB ntb_netdev ntb0 '-l DEV'
ethtools ntb-channels-back $KNTB ntb_netdev ntb0 '-L DEV combined 2'
ethtools rings-fixed eth0 virtio-net vu0 '-G DEV tx 4'
ethtools rings-none vet0 veth na '-G DEV rx 100'
ethtools statistics-none vet0 veth nobody '-S nobody'

echo "== multi-PF netdev: queues and NAPIs"
K=$(cat /sys/class/net/eth0/ifindex)
VU=$(in_vu show -j vu0 | sed -n 's/.*"ifindex": \([0-9]*\).*/\1/p' | head -1)
# NAME MODE OPERATION REQUEST: IFINDEX in it is the device's.
ask() {
    local request=${4:-\{\}}
    ynl "$1" "--$2 $3 --json '${request//IFINDEX/$K}' --output-json" "--$2 $3 --json '${request//IFINDEX/$VU}' --output-json"
}
ask queues dump queue-get '{"ifindex":IFINDEX}'
ask queue-one do queue-get '{"ifindex":IFINDEX,"type":"rx","id":1}'
ask queue-beyond do queue-get '{"ifindex":IFINDEX,"type":"rx","id":64}'
ask queue-missing do queue-get '{"ifindex":IFINDEX,"id":1}'
ask queue-nobody do queue-get '{"ifindex":7777777,"type":"rx","id":0}'
ask napis dump napi-get '{"ifindex":IFINDEX}'
ask napi-unknown do napi-get '{"id":7777777}'
ask napi-missing do napi-get '{}'
ask qstats dump qstats-get '{"ifindex":IFINDEX}'
ask qstats-queues dump qstats-get '{"ifindex":IFINDEX,"scope":"queue"}'
ask qstats-nobody dump qstats-get '{"ifindex":7777777}'
GRP=$(MQNET_RUNTIME_DIR=/run/g0.d mqnet show -j g0 | sed -n 's/.*"ifindex": \([0-9]*\).*/\1/p' | head -1)
fact group-queues '4 x {"id": N, "type": "rx", "ifindex": N, "napi-id": N}\n4 x {"id": N, "type": "tx", "ifindex": N, "napi-id": N}\n1 x exit 0' g0 "ynl --dump queue-get --json '{\"ifindex\":$GRP}' --output-json"

echo "== virtio-net: page pools"
ask pools dump page-pool-get '{}'
ask pool-unknown do page-pool-get '{"id":7777777}'
ask pool-missing do page-pool-get '{}'
ask pool-stats dump page-pool-stats-get '{}'
ask pool-stats-id dump page-pool-stats-get '{"info":{"id":1}}'
ask pool-stats-ifindex do page-pool-stats-get '{"info":{"ifindex":1}}'
order pool-statistics "ethtool -S DEV | grep rx_pp_" virtio-net
ethtool -S eth0 | grep '^ *rx_pp_' | sed 's/[0-9]*$/N/' > "$PROBES/pool-statistics.kernel"
in_vu ethtool -S vu0 | grep '^ *rx_pp_' | sed 's/[0-9]*$/N/' > "$PROBES/pool-statistics.ours"

echo "== MANA: private flags"
fact flags 'Private flags for DEV:\nfull-page-rx: off\nexit 0' vu0 'ethtool --show-priv-flags DEV | grep -v "^ "'
fact flags-set 'exit 0' vu0 'ethtool --set-priv-flags DEV full-page-rx on'
fact flags-same 'exit 0' vu0 'ethtool --set-priv-flags DEV full-page-rx on'
fact flags-shown 'Private flags for DEV:\nfull-page-rx: on\nexit 0' vu0 'ethtool --show-priv-flags DEV | grep -v "^ "'
fact flags-back 'exit 0' vu0 'ethtool --set-priv-flags DEV full-page-rx off'
fact flags-unknown 'netlink error: bit name not found\nnetlink error: Operation not supported\nexit 1' vu0 'ethtool --set-priv-flags DEV nosuch on'
ethtools flags-none eth0 virtio-net ntb0 '--show-priv-flags DEV'
ethtools flags-none-set eth0 virtio-net ntb0 '--set-priv-flags DEV full-page-rx on'
ethtools flags-word eth0 virtio-net vu0 '--set-priv-flags DEV full-page-rx maybe'

echo "== ynl"
python3 /ynl.py < /tmp/ynl || fail ynl
while IFS=$'\t' read -r name _; do
    for side in kernel ours; do shape < "$PROBES/$name.$side" > /tmp/shape; mv /tmp/shape "$PROBES/$name.$side"; done
done < /tmp/ynl
shape < "$PROBES/group-queues.ours" > /tmp/shape; mv /tmp/shape "$PROBES/group-queues.ours"

echo "== tun/tap: a reader that stands still"
# Counters changed by a flood, as words: - or +. (The backlog of a long qdisc depends on time.)
moved() {
    sed -nE 's/.*\(dropped ([0-9]+),.*/\1/p; s/.*backlog [0-9A-Z]+b ([0-9]+)p.*/\1/p' | tail -2 |
        paste -sd' ' | awk '{for (i = 1; i <= 2; i++) $i = $i > 0 ? "+" : "-"; print "dropped " $1 ", backlog " $2}'
}
ring_drops() { echo "dropped by the ring: $([ $(($(cat /sys/class/net/na/statistics/tx_dropped) - $1)) -gt 0 ] && echo + || echo -)"; }
# The stalled reader answers no ARP either: on a slow machine the entry would expire before the
# second flood.
far_mac=$(ip -n far -o link show nb | sed -nE 's/.*ether ([0-9a-f:]+).*/\1/p')
ip neigh replace 10.1.0.2 lladdr "$far_mac" dev na nud permanent || fail "neighbour of na"
for kind in pfifo fq_codel; do
    order "still-$kind" "a flood into $kind, and nobody reads" tun
    tc qdisc replace dev na root $kind limit 10
    drops=$(cat /sys/class/net/na/statistics/tx_dropped)
    kill -STOP $(cat /tmp/na.pid)
    flood 'tc -s qdisc show dev na' "still-$kind.kernel"; ring_drops $drops >> "$PROBES/still-$kind.kernel"
    kill -CONT $(cat /tmp/na.pid)
    wait_for 'tc -s qdisc show dev na | grep -q "backlog 0b"'
    mqnet tc qdisc replace dev ntb0 root $kind limit 10 || fail "tc $kind"
    drops=$(cat /sys/class/net/na/statistics/tx_dropped)
    kill -STOP $(cat /tmp/nb.pid)
    flood 'mqnet tc -s qdisc show dev ntb0' "still-$kind.ours"; ring_drops $drops >> "$PROBES/still-$kind.ours"
    kill -CONT $(cat /tmp/nb.pid)
    wait_for 'mqnet tc -s qdisc show dev ntb0 | grep -q "backlog 0b"'
    mqnet tc qdisc del dev ntb0 root
done
tc qdisc del dev na root 2> /dev/null

mqnet show > "$RESULTS/show"
echo "== done"
