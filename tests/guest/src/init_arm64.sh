#!/bin/busybox sh
# First program of an arm64 guest: prepares the system, runs the script of the host, prints its status on
# the only serial port, and switches off.
export PATH=/bin HOME=/tmp
/bin/busybox mkdir -p /proc /sys /dev /tmp /run
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /dev/net
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
ip link set lo up
modprobe tun
cd /tmp || exit
read -r up _ < /proc/uptime
page=$(awk '/^KernelPageSize/ { print $2; exit }' /proc/self/smaps)
echo "mqnet-guest: booted $(uname -r) $(uname -m) after $up s, pages of $page KiB"
sh /script < /dev/null
echo "mqnet-guest: status $?"
poweroff -f
