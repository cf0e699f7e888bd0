# Consumers on every node send through a NIC: first through that of one node alone, then through
# both as one netdev. Each sends from the CPUs of the node with its flow's worker. FLOWS: a
# destination for each channel.
modprobe virtio_pci; modprobe virtio_net
sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
cards() { ls /sys/class/net | grep -v '^lo$'; }
for _ in $(seq 600); do [ "$(cards | wc -l)" = 2 ] && break; sleep 0.1; done
set -- $(cards); first=$1 second=$2
for nic in $first $second; do
    echo "nic $nic $(cat /sys/class/net/$nic/device/../numa_node)"
    ip link set $nic up
    ethtool -L $nic combined 4
done

run() {
    mqnet link tap:t,mac=02:00:00:00:00:01,address=10.9.0.1/24 "$2" --channels 4 \
        > /tmp/$1.log 2>&1 & link=$!
    for _ in $(seq 600); do mqnet show -j 2> /tmp/err | grep -q '"placement"' && break; sleep 0.1; done
    for to in $FLOWS; do ip neigh replace $to lladdr 02:00:00:00:00:09 dev t nud permanent; done
    mqnet show -j > $RESULTS/$1-show
    mqnet show
    channel=0
    pings=
    for to in $FLOWS; do
        cpu=$(mqnet show | sed -n "s/^ *channel $channel .* cpu \([0-9]*\) .*/\1/p")
        taskset -c $cpu /bin/ping -q -f -c 200 -s 1400 -W 5 -I t $to > /tmp/ping-$channel 2>&1 &
        pings="$pings $!"
        channel=$((channel + 1))
    done
    wait $pings
    cat /tmp/ping-*
    mqnet stats t -j > $RESULTS/$1-stats
    kill -TERM $link; wait $link; echo "$1: status $?"
    tail -3 /tmp/$1.log
}
run one xdp:$first
run two xdp:$first+xdp:$second
echo "== done"
