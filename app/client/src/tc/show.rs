//! `tc qdisc|class|filter show`.

use mqnet_control::client::segment;
use mqnet_control_api::{Class, Filter, NetdevInfo, QdiscEntry, TcObject};
use mqnet_qdisc::Handle;
use serde::de::DeserializeOwned;

use super::request::{EGRESS_HOOK, number};
use super::words::{Fail, Words, is_short_for, name_of};
use super::{Call, Common, Done, Style, json, text};
use crate::api;
use crate::ethtool::json::{Json, compact, pretty};
use mqnet_qdisc::id::{parse_class, parse_handle, parse_protocol, protocol_name};

/// Parent that a listing is limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Root,
    Egress,
    Below(Handle),
}

/// Selection of the printed objects.
#[derive(Debug, Default)]
struct Wanted<'a> {
    dev: Option<&'a str>,
    place: Option<Place>,
    handle: Option<Handle>,
    qdisc: Option<Handle>,
    protocol: Option<String>,
    pref: Option<u16>,
}

/// Runs the command.
pub(super) fn run(call: &mut Call<'_>, object: TcObject, words: Words<'_>) -> Done {
    let wanted = match read(object, words) {
        Ok(Some(wanted)) => wanted,
        Ok(None) => return super::help(call),
        Err(fail) => return Ok(Err(fail)),
    };
    let shown = match (object, wanted.dev) {
        (TcObject::Qdisc, None) => every_qdisc(call, &wanted),
        (TcObject::Qdisc, Some(dev)) => {
            let all = fetch(call, dev, "qdiscs");
            all.map(|all| qdiscs(all, &wanted, call.style))
        }
        // Without a device, tc prints an empty list of classes or filters.
        (_, None) => Ok(Shown::default()),
        (TcObject::Class, Some(dev)) => {
            let all = fetch(call, dev, "classes");
            all.map(|all: Vec<Class>| classes(&all, &wanted, call.style))
        }
        (TcObject::Filter, Some(dev)) => some_filters(call, dev, &wanted),
    };
    match shown {
        Ok(shown) => print(call, shown),
        Err(fail) => Ok(Err(fail)),
    }
}

/// Output as text and as JSON.
#[derive(Default)]
struct Shown {
    text: String,
    json: Vec<Json>,
}

impl Shown {
    fn add(&mut self, text: &str, json: Json) {
        self.text += text;
        self.json.push(json);
    }
}

fn print(call: &mut Call<'_>, shown: Shown) -> Done {
    let list = Json::List(shown.json);
    match call.style {
        Style { json: true, pretty: true, .. } => writeln!(call.out, "{}", pretty(&list))?,
        Style { json: true, .. } => writeln!(call.out, "{}", compact(&list))?,
        _ => call.out.write_all(shown.text.as_bytes())?,
    }
    Ok(Ok(()))
}

fn fetch<T: DeserializeOwned>(call: &Call<'_>, dev: &str, what: &str) -> Result<T, Fail> {
    let path = format!("/v1/netdevs/{}/{what}", segment(dev));
    let answer = (call.find)(dev).and_then(|api| api::get(&*api, &path));
    answer.map_err(|e| Fail::refused(&e, dev))
}

/// Qdiscs of every netdev of every process.
fn every_qdisc(call: &Call<'_>, wanted: &Wanted<'_>) -> Result<Shown, Fail> {
    let failed = |e| Fail::refused(&e, "");
    let mut shown = Shown::default();
    for api in (call.every)().map_err(failed)? {
        let netdevs: Vec<NetdevInfo> = api::get(&*api, "/v1/netdevs").map_err(failed)?;
        for NetdevInfo { name, .. } in netdevs {
            let path = format!("/v1/netdevs/{}/qdiscs", segment(&name));
            // Skip a netdev if the request fails: the netdev may have been removed since it was
            // listed.
            let Ok(mut all) = api::get::<Vec<QdiscEntry>>(&*api, &path) else { continue };
            all.iter_mut().for_each(|qdisc| qdisc.dev = Some(name.clone()));
            let some = qdiscs(all, wanted, call.style);
            shown.text += &some.text;
            shown.json.extend(some.json);
        }
    }
    Ok(shown)
}

fn qdiscs(all: Vec<QdiscEntry>, wanted: &Wanted<'_>, style: Style) -> Shown {
    let mut shown = Shown::default();
    for qdisc in all {
        let parent = qdisc.parent.as_deref().and_then(parse_class);
        let in_place = match wanted.place {
            None => true,
            Some(Place::Root) => qdisc.root,
            Some(Place::Egress) => qdisc.kind == "clsact",
            Some(Place::Below(class)) => parent == Some(class),
        };
        let has_handle =
            wanted.handle.is_none_or(|handle| parse_handle(&qdisc.handle) == Some(handle));
        if in_place && has_handle {
            shown.add(&text::qdisc(&qdisc, style), json::qdisc(&qdisc, style));
        }
    }
    shown
}

fn classes(all: &[Class], wanted: &Wanted<'_>, style: Style) -> Shown {
    let mut shown = Shown::default();
    for class in all {
        let id = parse_class(&class.handle).unwrap_or_default();
        let in_place = match wanted.place {
            None => true,
            Some(Place::Root) => class.root,
            Some(Place::Egress) => false,
            Some(Place::Below(parent)) => parent.major() == id.major(),
        };
        let of_qdisc = wanted.qdisc.is_none_or(|qdisc| qdisc.major() == id.major());
        if in_place && of_qdisc && wanted.handle.is_none_or(|handle| handle == id) {
            shown.add(&text::class(class, style), json::class(class, style));
        }
    }
    shown
}

/// Filters of the requested parent; without a requested parent, filters of the root qdisc.
fn some_filters(call: &Call<'_>, dev: &str, wanted: &Wanted<'_>) -> Result<Shown, Fail> {
    let all: Vec<Filter> = fetch(call, dev, "filters")?;
    let root = match wanted.place {
        None | Some(Place::Root) => {
            let qdiscs: Vec<QdiscEntry> = fetch(call, dev, "qdiscs")?;
            qdiscs.into_iter().find(|qdisc| qdisc.root).map(|qdisc| qdisc.handle)
        }
        _ => None,
    };
    let in_place = |filter: &Filter| match wanted.place {
        None | Some(Place::Root) => !filter.egress && filter.parent == root,
        Some(Place::Egress) => filter.egress,
        Some(Place::Below(class)) => filter.parent.as_deref().and_then(parse_class) == Some(class),
    };
    let common = Common {
        parent: matches!(wanted.place, Some(Place::Egress | Place::Below(_))),
        protocol: wanted.protocol.is_some(),
        pref: wanted.pref.is_some(),
    };
    let mut shown = Shown::default();
    for filter in all.iter().filter(|filter| in_place(filter)) {
        let protocol = wanted.protocol.as_ref().is_none_or(|name| *name == filter.protocol);
        let pref = wanted.pref.is_none_or(|pref| u32::from(pref) == filter.pref);
        if protocol && pref {
            let style = call.style;
            let text = text::filter(filter, common, style);
            shown.add(&text, json::filter(filter, common, style));
        }
    }
    Ok(shown)
}

/// Parses the words; none if help is requested.
fn read<'a>(object: TcObject, mut words: Words<'a>) -> Result<Option<Wanted<'a>>, Fail> {
    let mut wanted = Wanted::default();
    while let Some(word) = words.next() {
        let known = match object {
            TcObject::Qdisc => wanted.qdisc(word, &mut words)?,
            TcObject::Class => wanted.class(word, &mut words)?,
            TcObject::Filter => wanted.filter(word, &mut words)?,
        };
        match known {
            true => {}
            false if is_short_for(word, "help") => return Ok(None),
            false => {
                let name = name_of(object);
                let line = match object {
                    TcObject::Filter => format!(" What is \"{word}\"? Try \"tc filter help\""),
                    _ => format!("What is \"{word}\"? Try \"tc {name} help\"."),
                };
                return Err(Fail::usage(line));
            }
        }
    }
    Ok(Some(wanted))
}

fn twice(word: &str) -> Fail {
    Fail::usage(format!("Error: \"{word}\" is duplicate parent ID"))
}

impl<'a> Wanted<'a> {
    fn below(&mut self, value: &str) -> Result<bool, Fail> {
        let class = parse_class(value).ok_or_else(|| Fail::wrong(value, "invalid parent ID"))?;
        self.place = match class {
            Handle(0) => None,
            EGRESS_HOOK => Some(Place::Egress),
            class => Some(Place::Below(class)),
        };
        Ok(true)
    }

    fn qdisc(&mut self, word: &'a str, words: &mut Words<'a>) -> Result<bool, Fail> {
        match word {
            "dev" => self.dev = Some(words.value()?),
            "root" | "clsact" | "ingress" | "parent" => {
                if self.place.is_some() {
                    return Err(Fail::wrong(word, "parent is already specified"));
                }
                match word {
                    "root" => self.place = Some(Place::Root),
                    "parent" => return self.below(words.value()?),
                    _ => self.place = Some(Place::Egress),
                }
            }
            _ if is_short_for(word, "handle") => {
                if self.handle.is_some() {
                    return Err(Fail::wrong(word, "handle is already specified"));
                }
                let value = words.value()?;
                let handle = parse_handle(value);
                self.handle = Some(handle.ok_or_else(|| Fail::wrong(value, "invalid handle ID"))?);
            }
            // `invisible` has no effect: mqnet has no hidden qdiscs.
            _ => return Ok(is_short_for(word, "invisible")),
        }
        Ok(true)
    }

    fn dev(&mut self, words: &mut Words<'a>) -> Result<bool, Fail> {
        let dev = words.value()?;
        match self.dev.replace(dev) {
            Some(_) => Err(Fail::duplicate("dev", dev)),
            None => Ok(true),
        }
    }

    fn class(&mut self, word: &'a str, words: &mut Words<'a>) -> Result<bool, Fail> {
        match word {
            "dev" => self.dev(words),
            "root" if self.place.is_some() => Err(twice(word)),
            "root" => {
                self.place = Some(Place::Root);
                Ok(true)
            }
            "parent" => {
                if self.place.is_some() {
                    return Err(Fail::duplicate("parent", "parent"));
                }
                self.below(words.value()?)
            }
            "classid" => {
                let value = words.value()?;
                if self.handle.is_some() {
                    return Err(Fail::duplicate("classid", value));
                }
                let class = parse_class(value);
                self.handle = Some(class.ok_or_else(|| Fail::wrong(value, "invalid class ID"))?);
                Ok(true)
            }
            "qdisc" => {
                let value = words.value()?;
                if self.qdisc.is_some() {
                    return Err(Fail::duplicate("qdisc", value));
                }
                let qdisc = parse_handle(value);
                self.qdisc = Some(qdisc.ok_or_else(|| Fail::wrong(value, "invalid qdisc ID"))?);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn filter(&mut self, word: &'a str, words: &mut Words<'a>) -> Result<bool, Fail> {
        match word {
            "dev" => return self.dev(words),
            "root" | "ingress" | "egress" => {
                if self.place.is_some() {
                    return Err(twice(word));
                }
                self.place = Some(match word {
                    "root" => Place::Root,
                    "egress" => Place::Egress,
                    // Parent id of the ingress hook, which never has filters in mqnet.
                    _ => Place::Below(Handle(0xffff_fff2)),
                });
            }
            "parent" => {
                let value = words.value()?;
                if self.place.is_some() {
                    return Err(Fail::duplicate("parent", value));
                }
                return self.below(value);
            }
            "chain" => {
                let value = words.value()?;
                number(value).ok_or_else(|| Fail::wrong(value, "invalid chain index value"))?;
            }
            _ if is_short_for(word, "preference") || is_short_for(word, "priority") => {
                let value = words.value()?;
                if self.pref.is_some() {
                    return Err(Fail::duplicate("priority", value));
                }
                let pref = number(value);
                self.pref = Some(pref.ok_or_else(|| Fail::wrong(value, "invalid preference"))?);
            }
            _ if is_short_for(word, "protocol") => {
                let value = words.value()?;
                if self.protocol.is_some() {
                    return Err(Fail::duplicate("protocol", value));
                }
                let protocol = parse_protocol(value);
                let protocol = protocol.ok_or_else(|| Fail::wrong(value, "invalid protocol"))?;
                self.protocol = Some(protocol_name(protocol));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
