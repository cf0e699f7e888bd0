# Two hosts, a link of mqnet between their TAPs, and a sink that is frozen repeatedly while senders
# flood. One JSON line per run: $RESULTS/flood.jsonl. SENDERS lists the runs, SECONDS_EACH their
# time.
set -e
sysctl -qw net.core.default_qdisc=fq_codel net.core.rmem_max=67108864
ip netns add west
ip netns add east
mqnet link tap:a,netns=west,address=10.0.0.1/24 ntb:/run/x.sock,window=2M --json > /tmp/a.log &
a=$!
mqnet link tap:b,netns=east,address=10.0.0.2/24 ntb:/run/x.sock,window=2M --json > /tmp/b.log &
b=$!
in_west="ip netns exec west"
for _ in $(seq 100); do $in_west ping -qc1 -W1 10.0.0.2 > /dev/null 2>&1 && break; sleep 0.1; done
$in_west ping -qc1 -W2 10.0.0.2 > /dev/null
$in_west cat /sys/class/net/a/tun_flags > "$RESULTS/tun-flags"
tc -n west qdisc show dev a > "$RESULTS/qdisc"

# Drops so far of the TAP's ring, and of the qdiscs in front of it.
ring() { $in_west cat /sys/class/net/a/statistics/tx_dropped; }
queues() { tc -n west -s qdisc show dev a | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p' | sort -n | tail -1; }
requeues() { tc -n west -s qdisc show dev a | sed -n 's/.*requeues \([0-9]*\)).*/\1/p' | sort -n | tail -1; }

for senders in $SENDERS; do
    before=($(ring) $(queues) $(requeues))
    ip netns exec east guest-flood receive 10.0.0.2:9000 > /tmp/received &
    receiver=$!
    sleep 0.5
    $in_west guest-flood send 10.0.0.2:9000 "$senders" "$SECONDS_EACH" > /tmp/sent &
    sender=$!
    while kill -0 $sender 2> /dev/null; do
        kill -STOP $b
        sleep 0.3
        kill -CONT $b
        sleep 0.2
    done
    wait $sender
    wait $receiver
    after=($(ring) $(queues) $(requeues))
    printf '{"senders":%d,"ring":%d,"qdisc":%d,"requeues":%d,"send":%s,"receive":%s}\n' \
        "$senders" $((after[0] - before[0])) $((after[1] - before[1])) $((after[2] - before[2])) \
        "$(cat /tmp/sent)" "$(cat /tmp/received)" | tee -a "$RESULTS/flood.jsonl"
done
ip netns exec east cat /proc/net/snmp | grep ^Udp: > "$RESULTS/udp"
mqnet stats -j a > "$RESULTS/stats.json"
mqnet stats a
tc -n west -s qdisc show dev a | tail -12
kill -INT $a $b
wait $a
wait $b
ip netns del west
ip netns del east
