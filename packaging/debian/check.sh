#!/bin/bash
# Runs as a service in a container with systemd: installs the package, checks the daemon under its
# unit, a link with traffic, an upgrade and a purge. OLD and NEW are the two packages.
set -eEuo pipefail
trap 'echo "FAILED in line $LINENO: $BASH_COMMAND"; journalctl -u "mqnet*" --no-pager | tail -40' ERR
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /tmp -o -path /var/log -o -path /var/lib/dpkg \
        -o -path /var/cache -o -path /var/tmp -o -path /packages -o -path /run \) -prune -o -print |
        grep -v -e '^/etc/\(group\|gshadow\|passwd\|shadow\|subgid\|subuid\)-\?$' \
            -e '^/etc/\.pwd\.lock$' -e '^/var/lib/systemd' -e '^/root' | sort
}
wait_for() { for _ in $(seq 100); do "$@" > /dev/null 2>&1 && return; sleep 0.1; done; "$@"; }
pings() { ip netns exec peer ping -q -i 0.05 -W 2 -c "$1" 10.99.0.1; }
pid() { systemctl show --property=MainPID --value mqnet.service; }

files > /tmp/before
dpkg -i "$OLD"
systemctl is-active mqnet.socket mqnet.service
systemctl is-enabled mqnet.socket mqnet.service
getent group mqnet
man=$(find /usr/share/man -name 'mqnet*.gz' | wc -l)
[ "$man" -gt 0 ]
mqnet doctor || [ $? -eq 1 ]
cat > /etc/mqnet/conf.d/check.toml << END
[link.check]
a = "tap:checka,address=10.99.0.1/24"
b = "tap:checkb"
END
systemctl reload mqnet.service
wait_for mqnet show check
ip netns add peer
wait_for ip link set checkb netns peer
ip netns exec peer ip addr add 10.99.0.2/24 dev checkb
ip netns exec peer ip link set checkb up
wait_for pings 1
echo "link: $(pings 100 | grep loss)"

before=$(pid)
pings 200 > /tmp/pings &
dpkg -i "$NEW"
wait $!
[ "$(pid)" = "$before" ]
grep ' 0% packet loss' /tmp/pings
echo "upgrade: the daemon and its link went on"
systemctl restart mqnet.service
[ "$(pid)" != "$before" ]
wait_for mqnet show check
echo "restart: the link is back"

rm /etc/mqnet/conf.d/check.toml
dpkg -r mqnet
[ -e /etc/mqnet/mqnet.toml ]
if systemctl is-active mqnet.service; then false; fi
dpkg -P mqnet
files > /tmp/after
diff /tmp/before /tmp/after
if getent group mqnet || [ -e /run/mqnet ]; then false; fi
echo "purge: nothing is left"
echo "PASSED"
