mod count;
mod golden;
mod rules;
mod sequences;

use super::*;
use crate::parse::words;
use crate::{Attach, Handle, Verb};

/// Parses a command line of tc, without `tc` and `dev X`.
fn command(text: &str) -> TcCommand {
    let mut rest = words(text).into_iter().peekable();
    let object = match rest.next().as_deref() {
        Some("qdisc") => ObjectType::Qdisc,
        Some("class") => ObjectType::Class,
        _ => ObjectType::Filter,
    };
    let verb = match rest.next().as_deref() {
        Some("add") => Verb::Add,
        Some("change") => Verb::Change,
        Some("replace") => Verb::Replace,
        _ => Verb::Delete,
    };
    let (attach, options) = (Attach::Root, Vec::new());
    let (handle, prio, protocol, kind) = (None, None, None, None);
    let mut c = TcCommand { verb, object, attach, handle, prio, protocol, kind, options };
    while let Some(word) = rest.next() {
        let mut value = || rest.next().unwrap_or_default();
        match word.as_str() {
            "root" => {}
            "egress" => c.attach = Attach::Egress,
            "parent" => c.attach = Attach::Parent(Handle::of_class(&value()).unwrap()),
            "handle" if object == ObjectType::Qdisc => c.handle = Handle::of_qdisc(&value()),
            "handle" => c.handle = Some(Handle(value().parse().unwrap())),
            "classid" => c.handle = Handle::of_class(&value()),
            "prio" if object == ObjectType::Filter => c.prio = Some(value().parse().unwrap()),
            "protocol" => {
                c.protocol = Some(match value().as_str() {
                    "ip" => 0x0800,
                    "ipv6" => 0x86dd,
                    "802.1q" => 0x8100,
                    _ => 3,
                });
            }
            kind => {
                if kind == "clsact" {
                    c.attach = Attach::Egress;
                }
                c.kind = Some(kind.to_owned());
                c.options = rest.collect();
                break;
            }
        }
    }
    c
}

fn tree(default: &str) -> Tree {
    Tree::new(default, Layer::Ethernet).unwrap()
}

/// Runs a command on a netdev that uses all of its four channels.
fn tc(tree: &mut Tree, text: &str) -> Result<bool, TcError> {
    tree.apply(&command(text), 4, 4)
}

fn refusal(tree: &mut Tree, text: &str) -> (Errno, String) {
    let e = tc(tree, text).expect_err(text);
    (e.errno, e.message)
}

fn run(tree: &mut Tree, commands: &[&str]) {
    commands.iter().for_each(|text| assert_eq!(tc(tree, text), Ok(true), "{text}"));
}

/// Qdiscs in a format like that of `tc qdisc show`, reduced to the options that distinguish kinds
/// and changes.
fn shown(tree: &Tree, channels: u16) -> Vec<String> {
    let line = |q: crate::QdiscInfo| {
        let place = match q.attach {
            Attach::Root => "root".to_owned(),
            Attach::Egress => "parent ffff:fff1".to_owned(),
            Attach::Parent(class) => format!("parent {class}"),
        };
        let refcnt = if q.refcnt == 1 { String::new() } else { format!(" refcnt {}", q.refcnt) };
        let limit = match &q.params {
            Params::Pfifo(f) => format!(" limit {}p", f.limit),
            Params::Bfifo(f) => format!(" limit {}b", f.limit),
            Params::FqCodel(f) => format!(" limit {}p quantum {}", f.limit, f.quantum),
            Params::Tbf(t) => format!(" rate {}", t.rate),
            _ => String::new(),
        };
        format!("{} {} {place}{refcnt}{limit}", q.params.kind(), q.handle)
    };
    tree.qdiscs(channels).into_iter().map(line).collect()
}

/// Classes in a format like that of `tc class show`.
fn classes(tree: &Tree, channels: u16) -> Vec<String> {
    let line = |c: crate::ClassInfo| {
        let place = c.parent.map_or("root".to_owned(), |parent| format!("parent {parent}"));
        let leaf = c.leaf.map_or(String::new(), |leaf| format!(" leaf {leaf}"));
        let quantum = c.drr.map_or(String::new(), |drr| format!(" quantum {}", drr.quantum));
        format!("{} {} {place}{leaf}{quantum}", c.kind, c.id)
    };
    tree.classes(channels).into_iter().map(line).collect()
}

/// Text of all qdiscs, classes and filters.
fn dump(tree: &Tree) -> String {
    format!("{:?} {:?} {:?}", tree.qdiscs(8), tree.classes(8), tree.filters())
}
