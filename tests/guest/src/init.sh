#!/bin/bash
# First program of a guest: prepares the system, runs the scripts of the host, returns their results,
# and switches off. The console is the first serial port; results are written to the second.
export PATH=/bin HOME=/tmp RESULTS=/results
mkdir=(/bin/busybox mkdir -p)
"${mkdir[@]}" /proc /sys /dev /tmp /run/netns /results /etc
/bin/busybox --install -s /bin 2>/dev/null
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /dev/net
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf 2>/dev/null
mount -t debugfs debug /sys/kernel/debug 2>/dev/null
mkdir -p /run/netns
ip link set lo up
modprobe -q tun
cd /tmp || exit
# An emulated processor sometimes never completes its first timer interrupt (QEMU 10.0: vector 236 stays
# in service), and threads that sleep on it never wake. Such a guest ends here, before any test, and
# the host starts it again (where it waits for the boot).
for cpu in /sys/devices/system/cpu/cpu[0-9]*; do
    taskset -c "${cpu##*/cpu}" sleep 0.02 &
done
read -r up _ < /proc/uptime
limit=$((${up%.*} + 6))
while jobs -r > /tmp/naps; [ -s /tmp/naps ]; do
    read -r up _ < /proc/uptime
    if [ "${up%.*}" -ge "$limit" ]; then
        echo "mqnet-guest: a processor without a timer"
        poweroff -f
    fi
done
rm /tmp/naps
read -r up _ < /proc/uptime
echo "mqnet-guest: booted $(uname -r) after $up s"

if [ -e /wants-shell ]; then
    echo "A guest of mqnet. 'exit' ends it; Ctrl-A X kills it."
    setsid cttyhack bash
    poweroff -f
fi

for script in /scripts/*; do
    name=${script##*/}
    echo "mqnet-guest: begin $name"
    if [ -e /wants-stream ]; then
        bash "$script" < /dev/null
        status=$?
    else
        : > "$RESULTS/$name.output"
        tail -f "$RESULTS/$name.output" &
        tail=$!
        bash "$script" < /dev/null > "$RESULTS/$name.output" 2>&1
        status=$?
        kill $tail
    fi
    echo $status > "$RESULTS/$name.status"
    echo "mqnet-guest: end $name $status"
done
stty -F /dev/ttyS1 raw
tar -C "$RESULTS" -cf /dev/ttyS1 .
poweroff -f
