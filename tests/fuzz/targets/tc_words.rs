//! Lines of words as tc commands on one tree. No line causes a panic, and a refused command does
//! not change the reported state.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqnet_qdisc::{Attach, Handle, ObjectType, TcCommand, Tree, Verb};
use mqnet_wire::Layer;

const CHANNELS: u16 = 4;

/// Parses a line: the first six bytes select verb, object, parent, handle, priority and protocol;
/// the words are kind and options. `None` if the line is too short or a multi-byte character
/// crosses the end of the first six bytes.
fn command(line: &str) -> Option<TcCommand> {
    let (head, words) = line.split_at_checked(6)?;
    let &[verb, object, attach, handle, prio, protocol] = head.as_bytes() else { return None };
    let mut words = words.split_whitespace().map(str::to_owned);
    let small = |byte: u8| Handle::new(u16::from(byte % 4), u16::from(byte / 4 % 4));
    Some(TcCommand {
        verb: [Verb::Add, Verb::Change, Verb::Replace, Verb::Delete][usize::from(verb % 4)],
        object: [ObjectType::Qdisc, ObjectType::Class, ObjectType::Filter][usize::from(object % 3)],
        attach: match attach {
            b'r' => Attach::Root,
            b'e' => Attach::Egress,
            _ => Attach::Parent(small(attach)),
        },
        handle: (handle != b'-').then(|| small(handle)),
        prio: (prio != b'-').then(|| u16::from(prio)),
        protocol: [None, Some(3), Some(0x0800), Some(0x8100)][usize::from(protocol % 4)],
        kind: words.next(),
        options: words.collect(),
    })
}

fn shown(tree: &Tree) -> String {
    format!("{:?}{:?}{:?}", tree.qdiscs(CHANNELS), tree.classes(CHANNELS), tree.filters())
}

fuzz_target!(|text: &str| {
    let (default, orders) = text.split_once('\n').unwrap_or(("", text));
    let Ok(mut tree) = Tree::new(default, Layer::Ethernet) else { return };
    for command in orders.lines().filter_map(command) {
        let before = shown(&tree);
        if tree.apply(&command, CHANNELS, CHANNELS).is_err() {
            assert_eq!(shown(&tree), before, "refused, but changed");
        }
        for channel in 0..CHANNELS {
            drop(tree.build(channel, 1514, 1));
        }
    }
});
