# One of two guests over ivshmem-plain: ME and PEER are the last parts of their addresses. Runs
# until it is killed.
mqnet link --json --control-socket none tap:t0,address=10.9.0.$ME/24 ntb:ivshmem=pci \
    > /tmp/link.json 2>&1 &
until ping -c 5 -i 0.2 -W 5 10.9.0.$PEER 2> /dev/null | grep -q '5 received'; do sleep 0.2; done
grep -o 'up, .* channels' /tmp/link.json
echo "guest: five of five"
sleep 1000
