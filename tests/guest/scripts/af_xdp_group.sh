# Two NICs of the guest, of two queues each, attached as one netdev opposite a TAP in its own
# network namespace, which has 10.7.0.1 and 10.7.1.1. The host has 10.7.0.2 behind the first NIC and
# 10.7.1.2 behind the second one, both with one Ethernet address, and an iperf3 server.
modprobe -q virtio_pci; modprobe -a virtio_net tun; modprobe -q af_packet
ip netns add inner
inner="ip netns exec inner"
fail() { echo "failed: $1"; cat /tmp/link.log; tail -1 /tmp/link.jsonl; ip link; dmesg | tail; exit 1; }
named() { grep -l "$1" /sys/class/net/*/address | cut -d/ -f5; }
for _ in $(seq 100); do [ "$(named $CARD0)" ] && [ "$(named $CARD1)" ] && break; sleep 0.1; done
nics="$(named $CARD0) $(named $CARD1)"
tables() { for nic in $nics; do ethtool -x $nic | grep -E '^ +[0-9]+:'; done | sha256sum; }
for nic in $nics; do ip link set $nic up; done
own=$(tables)
set -- $nics
mqnet -vv link --json --channels 4 tap:t0,netns=inner,mac=$INNER,address=10.7.0.1/24,address=10.7.1.1/24,rx-locality=learn xdp:$1+xdp:$2 > /tmp/link.jsonl 2> /tmp/link.log &
link=$!
for _ in $(seq 100); do $inner ip link show t0 > /dev/null 2>&1 && break; sleep 0.1; done
for n in 0 1; do $inner ip neigh replace 10.7.$n.2 lladdr $HOST dev t0 nud permanent || fail "no TAP"; done
for n in 0 1; do
    for _ in $(seq 60); do $inner ping -c 1 -W 1 10.7.$n.2 > /dev/null 2>&1 && break; sleep 0.1; done
    $inner ping -c 1 -W 1 10.7.$n.2 > /dev/null || fail "no answer behind card $n"
done
count() { mqnet ethtool -S $1 | sed -n "s/^ *rx_queue_$2_packets: *//p"; }
behind() { $inner awk '/^TcpExt:/ { if (!n++) split($0, names); else for (i = 2; i <= NF; i++) if (names[i] == "TCPOFOQueue") print $i }' /proc/net/netstat; }
group=$1 late=$(behind)

echo "== follows"
# Received flows are learnt from their replies, all sent on one channel; they arrive on one NIC.
for channel in 3 0 1 2; do
    how=
    for i in 0 1 2 3; do [ $i = $channel ] && how="$how 1" || how="$how 0"; done
    mqnet ethtool -X t0 weight $how || fail "ethtool -X t0 weight $how"
    $inner iperf3 -c 10.7.$((channel % 2)).2 -P 4 -t 300 -R > /dev/null & stream=$!
    beside=$(((channel + 2) % 4))
    for _ in $(seq 30); do
        there=$(count $group $channel) elsewhere=$(count $group $beside)
        sleep 1
        there=$(($(count $group $channel) - there)) elsewhere=$(($(count $group $beside) - elsewhere))
        [ $((there / 20)) -gt $elsewhere ] && told=all && break
        told="$there, $elsewhere by channel $beside"
    done
    echo "follow to $channel: $told"
    kill -INT $stream; wait $stream
    sleep 1
done
echo "segments behind others: $(($(behind) - late))"
for nic in $nics; do echo "moves $(grep -c "$nic: .* buckets of flows move to queue" /tmp/link.log)"; done
grep -E 'arrived on other queues|flows stay' /tmp/link.log

echo "== given back"
kill -INT $link; wait $link
[ "$(tables)" = "$own" ] && echo "tables again"
tail -1 /tmp/link.jsonl > "$RESULTS/end.json"
echo "== done"
