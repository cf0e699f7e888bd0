# A guest with two nodes of two CPUs and a NIC of two queue pairs behind each: the plan of `mqnet
# plan`, its settings, and their restoration.
modprobe virtio_pci; modprobe virtio_net
cards() { ls /sys/class/net | grep -v '^lo$'; }
for _ in $(seq 100); do [ "$(cards | wc -l)" = 2 ] && break; sleep 0.1; done
state() {
    for nic in $(cards); do
        for irq in $(ls /sys/class/net/$nic/device/../msi_irqs); do
            echo "irq $nic $(cat /sys/kernel/irq/$irq/actions) $(cat /proc/irq/$irq/smp_affinity_list)"
        done
        for queue in /sys/class/net/$nic/queues/tx-*; do
            echo "xps $nic ${queue##*/} $(cat $queue/xps_cpus)"
        done
    done
}
for nic in $(cards); do echo "nic $nic $(cat /sys/class/net/$nic/device/../numa_node)"; done
echo '== state'
state > /tmp/before
echo '== plan'
mqnet plan -j $(cards) > $RESULTS/plan || exit 1
echo '== apply'
mqnet plan --apply $(cards) > /tmp/applied & planner=$!
for _ in $(seq 600); do grep -q '^set; ' /tmp/applied && break; sleep 0.1; done
echo '== during'
state > $RESULTS/during
echo '== wait'
kill -TERM $planner; wait $planner; echo "status $?"
cat /tmp/applied
state > /tmp/after
diff /tmp/before /tmp/after && echo "== done"
