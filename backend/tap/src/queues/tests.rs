use mqnet_sysio::namespace;
use mqnet_testkit::{Need, has};

use netlink_packet_route::link::LinkAttribute;

use super::*;
use crate::netlink::Netlink;
use crate::open::create;

// Rule: after the time limit, each call detaches one queue, and no table may use a queue that is
// still to be detached. A channel change may use such a queue again.
#[test]
fn slow_queues_retire_one_by_one() {
    if !has(&[Need::Root]) {
        return;
    }
    namespace::enter_new_net().unwrap();
    let device = create("slow", Layer::Ethernet).unwrap();
    device.set_header().unwrap();
    let opener = Opener::of(device.flags, device.index, None);
    let mut queues = Queues::new(device.fds, Layer::Ethernet, opener);
    let stats: Vec<_> = (0..CHANNELS_MAX).map(|_| Arc::default()).collect();
    queues.use_exactly(1).unwrap();
    queues.make_ready(8).unwrap();
    queues.steer(8).unwrap();
    queues.retire(8, &stats).unwrap();
    assert!(queues.steers() && queues.retiring.is_none());

    queues.make_ready(2).unwrap();
    queues.steer(2).unwrap();
    queues.retiring = Some(2);
    for left in [7, 6, 5] {
        queues.retire_for(Duration::ZERO, &stats).unwrap();
        assert_eq!((queues.attached, queues.usable()), (left, 2));
    }
    let table = vec![3; queues.table().unwrap().0.len()];
    let refused = queues.set_table(&table, true).unwrap_err();
    assert_eq!(refused, "queue 3 is not attached: the device has 2");

    queues.make_ready(4).unwrap();
    queues.retire_for(Duration::ZERO, &stats).unwrap();
    assert_eq!(queues.attached, 5, "a change has begun");
    queues.steer(4).unwrap();
    queues.retiring = Some(4);
    queues.retire_for(Duration::ZERO, &stats).unwrap();
    assert_eq!((queues.attached, queues.retiring), (4, None));

    // A rejected change does not alter the number of queues that are to be detached.
    queues.set_table(&vec![3; table.len()], true).unwrap();
    queues.retiring = Some(2);
    assert!(queues.make_ready(1).unwrap_err().contains("too few"));
    assert_eq!(queues.retiring, Some(2));
    // When the kernel selects queues, every attached queue has a lane.
    queues.set_steering(false, 2, &stats).unwrap();
    assert_eq!((queues.attached, queues.retiring), (2, None));
}

// Rule: opening a queue by the old name of a renamed device creates no device. An opener finds the
// device by the descriptor of a queue.
#[test]
fn queue_of_a_renamed_device_creates_no_device() {
    if !has(&[Need::Root]) {
        return;
    }
    namespace::enter_new_net().unwrap();
    let nics = Nics::open().unwrap();
    let device = create("old", Layer::Ethernet).unwrap();
    let index = nics.index_of("old").unwrap();
    let named = LinkAttribute::IfName("new".to_owned());
    Netlink::open().unwrap().set(index, named).unwrap();
    let refused = one_more("old", index, device.flags).unwrap_err();
    assert!(refused.contains("one more queue"), "{refused}");
    assert!(nics.index_of("old").is_err());
    let opener = Opener { flags: device.flags, index, netns: None };
    let more = opener.open(device.fds[0].as_fd()).unwrap();
    assert_eq!(sys::identify(more.as_fd()).unwrap().0, "new");
    assert!(nics.index_of("old").is_err());
}

// Rule: late frames are counted with all their bytes. A socket replaces the queue, because both
// truncate a frame that is longer than the buffer.
#[test]
fn late_frames_count_with_their_bytes() {
    let (kernel, queue) = std::os::unix::net::UnixDatagram::pair().unwrap();
    queue.set_nonblocking(true).unwrap();
    let stats = QueuePairStats::default();
    let largest = FRAME_MAX as usize;
    for len in [60, 1514, largest] {
        kernel.send(&vec![0; VNET_HDR_LEN + len]).unwrap();
    }
    count_late_frames(queue.as_fd(), &stats);
    assert_eq!(stats.rx.packets.get(), 3);
    assert_eq!(stats.rx.bytes.get(), (60 + 1514 + largest) as u64);
    assert_eq!(stats.rx.drops.get(DropReason::QueueRetired), 3);
}
