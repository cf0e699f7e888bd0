# mqnet's VDUSE device with a user-space driver over vhost-vdpa that changes the accessible memory.
export PYTHONHOME=/usr PYTHONPATH=/usr/lib/python3/dist-packages
modprobe -a vduse virtio_vdpa vhost_vdpa virtio_net tun
fail() { echo "failed: $1"; cat /tmp/link.log /tmp/link.jsonl; ip -n east -s link show t0; mqnet show; mqnet stats; dmesg | tail -20; exit 1; }
ip netns add east
mqnet link --json vduse:v0 tap:t0,netns=east,address=10.9.0.2/24 \
    > /tmp/link.jsonl 2> /tmp/link.log & link=$!
for _ in $(seq 300); do [ -e /sys/bus/vdpa/devices/v0 ] && break; sleep 0.1; done
for _ in $(seq 100); do [ -e /sys/class/net/v0 ] && break; sleep 0.1; done
echo v0 > /sys/bus/vdpa/drivers/virtio_vdpa/unbind
echo v0 > /sys/bus/vdpa/drivers/vhost_vdpa/bind || fail "no vhost_vdpa"
mount -t tracefs trace /sys/kernel/tracing
# Counts the kernel's messages about changed addresses: each is sent at the end of this function.
echo 'p:remap vduse_vdpa_set_map' > /sys/kernel/tracing/kprobe_events 2> /tmp/trace &&
    echo 1 > /sys/kernel/tracing/events/kprobes/remap/enable
timeout 120 python3 -u /vdpa.py 10.9.0.2 || fail "vdpa.py: $?"
echo "remapped $(grep -c remap: /sys/kernel/tracing/trace)"
kill -TERM $link; wait $link; echo "link $?"
grep -i warn /tmp/link.log
cp /tmp/link.jsonl $RESULTS/link.jsonl
tail -1 /tmp/link.jsonl > $RESULTS/end.json
[ -e /sys/bus/vdpa/devices/v0 ] && fail "the device is still there"
echo "== done"
