//! Conformance suite for the VDUSE device of a guest's kernel: queues in both directions, and life
//! cycles.

#![forbid(unsafe_code)]

use mqnet_conformance::lifecycle::live;
use mqnet_conformance::setups::Vduse;
use mqnet_conformance::{rigs, suite};

fn main() {
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("disable ipv6");
    // Replace fq_codel, the default of distributions, because it drops frames that wait too long.
    std::fs::write("/proc/sys/net/core/default_qdisc", "pfifo_fast").expect("a qdisc");
    for packed in [true, false] {
        for from in [0, 1] {
            let keeps = suite::whole(&mut || rigs::of_setup(Box::new(Vduse::new(packed)), from, 0));
            println!("queues, packed {packed}, from end {from}: kept, keeps frames {keeps}");
        }
        for seed in 1..=2 {
            let seen = live(&mut || Box::new(Vduse::new(packed)), seed, 40);
            println!("life cycle, packed {packed}, seed {seed}: kept, {} failures", seen.failures);
        }
    }
    println!("== done");
}
