//! `tc qdisc|class|filter add|change|replace|link|delete`.

use mqnet_control::client::segment;
use mqnet_control_api::{Code, Outcome, TcObject, TcRequest, TcVerb};
use mqnet_qdisc::Handle;

use super::words::{Fail, Words, answer, is_short_for};
use super::{Call, Done};
use crate::api;
use mqnet_qdisc::id::{parse_class, parse_handle, parse_protocol};

/// Device and request, parsed from the command line.
struct Draft {
    dev: Option<String>,
    want: TcRequest,
}

/// Runs one command.
pub(super) fn run(call: &mut Call<'_>, object: TcObject, verb: &str, words: Words<'_>) -> Done {
    let command = match verb {
        "add" => TcVerb::Add,
        "replace" => TcVerb::Replace,
        "delete" => TcVerb::Delete,
        // tc's `link` can also move an object to another parent. An object of mqnet has only one
        // possible parent, so `link` equals `change`.
        _ => TcVerb::Change,
    };
    match read(object, command, words) {
        Ok(Some(draft)) => send(call, draft),
        Ok(None) => super::help(call),
        Err(fail) => Ok(Err(fail)),
    }
}

fn send(call: &mut Call<'_>, draft: Draft) -> Done {
    let Draft { dev: Some(dev), want } = draft else { return Ok(Err(answer(Code::NoDevice))) };
    let path = format!("/v1/netdevs/{}/tc", segment(&dev));
    let sent = (call.find)(&dev).and_then(|api| api::post(&*api, &path, &want));
    match sent {
        Ok(Outcome { note: Some(note), .. }) => {
            writeln!(call.err, "Warning: {note}.")?;
            Ok(Ok(()))
        }
        Ok(_) => Ok(Ok(())),
        Err(e) => Ok(Err(Fail::refused(&e, &dev))),
    }
}

/// Parses the words; none if help is requested.
fn read(object: TcObject, command: TcVerb, mut words: Words<'_>) -> Result<Option<Draft>, Fail> {
    let options = Vec::new();
    let want = TcRequest {
        object,
        command,
        parent: None,
        handle: None,
        kind: None,
        prio: None,
        protocol: None,
        options,
    };
    let mut draft = Draft { dev: None, want };
    while let Some(word) = words.next() {
        let known = match object {
            TcObject::Qdisc => draft.qdisc(word, &mut words)?,
            TcObject::Class => draft.class(word, &mut words)?,
            TcObject::Filter => draft.filter(word, &mut words)?,
        };
        if known {
            if draft.want.kind.is_some() {
                break;
            }
            continue;
        }
        if is_short_for(word, "help") {
            return Ok(None);
        }
        draft.want.kind = Some(word.to_owned());
        break;
    }
    draft.want.options = words.rest();
    if object == TcObject::Filter && draft.want.parent.is_none() {
        draft.want.parent = Some("root".to_owned());
    }
    Ok(Some(draft))
}

/// Error for a feature of tc that mqnet lacks.
fn not_here(word: &str) -> Fail {
    Fail::new(2, format!("Error: {word} is not supported by mqnet."))
}

impl Draft {
    fn dev(&mut self, words: &mut Words<'_>) -> Result<bool, Fail> {
        let dev = words.value()?;
        match self.dev.replace(dev.to_owned()) {
            Some(_) => Err(Fail::duplicate("dev", dev)),
            None => Ok(true),
        }
    }

    fn parent(&mut self, words: &mut Words<'_>, wrong: &str) -> Result<bool, Fail> {
        let value = words.value()?;
        if self.want.parent.is_some() {
            return Err(Fail::duplicate("parent", value));
        }
        self.want.parent = match parse_parent(value) {
            Some(parent) => parent,
            None => return Err(Fail::wrong(value, wrong)),
        };
        Ok(true)
    }

    /// Parses a parent given by name: `root`, `egress` or `clsact`. `twice` is the end of the error
    /// text for a second parent: tc has several variants.
    fn place(&mut self, word: &str, twice: &str) -> Result<bool, Fail> {
        if self.want.parent.is_some() {
            return Err(Fail::usage(format!("Error: \"{word}\" is {twice}")));
        }
        let place = if word == "root" { "root" } else { "egress" };
        self.want.parent = Some(place.to_owned());
        Ok(true)
    }

    fn qdisc(&mut self, word: &str, words: &mut Words<'_>) -> Result<bool, Fail> {
        match word {
            "dev" => self.dev(words),
            "handle" => {
                if self.want.handle.is_some() {
                    return Err(Fail::duplicate("handle", "handle"));
                }
                let value = words.value()?;
                let handle = parse_handle(value);
                let handle = handle.ok_or_else(|| Fail::wrong(value, "invalid qdisc ID"))?;
                self.want.handle = (handle.0 != 0).then(|| handle.to_string());
                Ok(true)
            }
            "root" => self.place(word, "duplicate parent ID"),
            "clsact" => {
                self.want.kind = Some("clsact".to_owned());
                self.place(word, "a duplicate parent ID")
            }
            "parent" => self.parent(words, "invalid parent ID"),
            "ingress" | "ingress_block" | "egress_block" | "stab" => Err(not_here(word)),
            _ if is_short_for(word, "estimator") => Err(not_here("estimator")),
            _ => Ok(false),
        }
    }

    fn class(&mut self, word: &str, words: &mut Words<'_>) -> Result<bool, Fail> {
        match word {
            "dev" => self.dev(words),
            "classid" => {
                let value = words.value()?;
                if self.want.handle.is_some() {
                    return Err(Fail::duplicate("classid", value));
                }
                let class = parse_class(value);
                let class = class.ok_or_else(|| Fail::wrong(value, "invalid class ID"))?;
                self.want.handle = (class.0 != 0).then(|| full(class));
                Ok(true)
            }
            "handle" => Err(Fail::usage("Error: try \"classid\" instead of \"handle\"")),
            "root" => self.place(word, "duplicate parent ID."),
            "parent" => self.parent(words, "invalid parent ID"),
            _ if is_short_for(word, "estimator") => Err(not_here("estimator")),
            _ => Ok(false),
        }
    }

    fn filter(&mut self, word: &str, words: &mut Words<'_>) -> Result<bool, Fail> {
        match word {
            "dev" => self.dev(words),
            "root" | "egress" => self.place(word, "duplicate parent ID"),
            "ingress" | "block" => Err(not_here(word)),
            "parent" => self.parent(words, "Invalid parent ID"),
            "handle" => {
                let value = words.value()?;
                match self.want.handle.replace(value.to_owned()) {
                    Some(_) => Err(Fail::duplicate("handle", value)),
                    None => Ok(true),
                }
            }
            _ if is_short_for(word, "preference") || is_short_for(word, "priority") => {
                let value = words.value()?;
                if self.want.prio.is_some() {
                    return Err(Fail::duplicate("priority", value));
                }
                let prio = number(value);
                let prio = prio.ok_or_else(|| Fail::wrong(value, "invalid priority value"))?;
                self.want.prio = (prio != 0).then_some(prio);
                Ok(true)
            }
            _ if is_short_for(word, "protocol") => {
                let value = words.value()?;
                if self.want.protocol.is_some() {
                    return Err(Fail::duplicate("protocol", value));
                }
                parse_protocol(value).ok_or_else(|| Fail::wrong(value, "invalid protocol"))?;
                self.want.protocol = Some(value.to_owned());
                Ok(true)
            }
            "chain" => {
                let value = words.value()?;
                match number(value) {
                    Some(0) => Ok(true),
                    Some(_) => Err(not_here("a chain other than 0")),
                    None => Err(Fail::wrong(value, "invalid chain index value")),
                }
            }
            _ if is_short_for(word, "estimator") => Err(not_here("estimator")),
            _ => Ok(false),
        }
    }
}

/// 16-bit number, decimal or hexadecimal after `0x`; none for any other text.
pub(super) fn number(text: &str) -> Option<u16> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Class id as `MAJOR:MINOR`. `Handle` itself omits a minor number of 0.
fn full(class: Handle) -> String {
    format!("{:x}:{:x}", class.major(), class.minor())
}

/// Parent id of the egress hook of clsact.
pub(super) const EGRESS_HOOK: Handle = Handle(0xffff_fff3);

/// Parses the parent of a request: none if the text is invalid, `Some(None)` for the id 0, which
/// selects no parent.
fn parse_parent(text: &str) -> Option<Option<String>> {
    if text == "root" {
        return Some(Some("root".to_owned()));
    }
    let class = parse_class(text)?;
    Some(match class {
        Handle(0) => None,
        EGRESS_HOOK => Some("egress".to_owned()),
        class => Some(full(class)),
    })
}
