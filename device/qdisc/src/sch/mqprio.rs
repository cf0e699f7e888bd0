//! mqprio: one qdisc for each channel, and classes of channels by priority.

use super::fifo::placeholder;
use crate::kind::{Classes, Env, Kind, KindOptions, OptionValue};
use crate::parse::{Words, invalid, number, usage};
use crate::{Blueprint, Meta, Qdisc, TcError};

/// Parameters of mqprio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mqprio {
    /// Number of traffic classes, 1 to 16.
    pub num_tc: u8,
    /// Traffic class of each priority.
    pub map: [u8; 16],
    /// Channels of each traffic class: count and first channel.
    pub queues: Vec<(u16, u16)>,
}

impl Mqprio {
    /// Channel of a packet. The packet keeps its channel if any traffic class has a channel that is
    /// not in use, as in Linux.
    pub(crate) fn pick(&self, meta: &Meta, channels: u16) -> u16 {
        let used = u32::from(channels);
        let ends = |(count, first): (u16, u16)| u32::from(count) + u32::from(first);
        if self.queues.iter().any(|range| ends(*range) > used) {
            return meta.channel;
        }
        let class = self.map[meta.priority as usize & 15];
        match self.queues.get(usize::from(class)) {
            Some((count, first)) => first + meta.channel % (*count).max(1),
            None => meta.channel,
        }
    }
}

/// The kind mqprio.
pub(crate) struct MqprioKind;

impl Kind for MqprioKind {
    type Params = Mqprio;
    const NAME: &'static str = "mqprio";

    fn parse(words: Words<'_>, old: Option<&Mqprio>, env: Env) -> Result<Mqprio, TcError> {
        match old {
            Some(_) => Err(invalid("Change operation not supported by specified qdisc")),
            None => parse(words, env.channels),
        }
    }

    fn options(mqprio: &Mqprio) -> KindOptions {
        let last = |count: u16, first: u16| first.saturating_add(count.saturating_sub(1));
        let range = |&(count, first): &(u16, u16)| [first, last(count, first)];
        let queues = mqprio.queues.iter().map(range).collect();
        vec![
            ("tc", u32::from(mqprio.num_tc).into()),
            ("map", mqprio.map[..].into()),
            ("queues", OptionValue::Ranges(queues)),
        ]
    }

    fn build(_: &Mqprio, plan: Blueprint, _: u32, _: u64) -> Box<dyn Qdisc> {
        placeholder(plan)
    }

    fn classes(_: &Mqprio) -> Classes {
        Classes::Channels
    }
}

/// Largest number of traffic classes.
const CLASSES_MAX: u8 = 16;
/// Default map of tc: each of the first eight priorities has its own class.
const MAP: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 1, 1, 3, 3, 3, 3];

fn wrong(word: &str) -> TcError {
    usage(format!("argument \"{word}\" is wrong: unknown argument"))
}

/// Parses `count@first`.
fn range(word: &str) -> Option<(u16, u16)> {
    let (count, first) = word.split_once('@')?;
    Some((number::decimal(count)?, number::decimal(first)?))
}

/// Parses the options. Only `hw 0` is supported and is the default; tc's default is 1.
fn parse(mut words: Words<'_>, channels: u16) -> Result<Mqprio, TcError> {
    let mut q = Mqprio { num_tc: 8, map: MAP, queues: Vec::new() };
    let mut mapped = 0;
    while let Some(word) = words.next() {
        match word {
            "num_tc" => q.num_tc = words.read(word, number::decimal)?,
            "map" => {
                mapped = 0;
                while let Some(class) = words.peek().and_then(number::decimal) {
                    let word = words.value()?;
                    *q.map.get_mut(mapped).ok_or_else(|| wrong(word))? = class;
                    mapped += 1;
                }
            }
            "queues" => {
                q.queues.clear();
                while let Some(range) = words.peek().and_then(range) {
                    words.next();
                    q.queues.push(range);
                }
            }
            "hw" => match words.read(word, number::decimal::<u8>)? {
                0 => {}
                _ => return Err(invalid("mqprio: there is no hardware to offload to; use hw 0")),
            },
            _ => return Err(wrong(word)),
        }
    }
    if q.queues.len() > usize::from(q.num_tc) {
        let text = format!(
            "queues count/offset pair count {} can not be higher than given num_tc {}",
            q.queues.len(),
            q.num_tc
        );
        return Err(usage(text));
    }
    // Map priorities without a given class to class 0 if tc's default class does not exist, so that
    // the default map causes no error.
    q.map[mapped..].iter_mut().filter(|class| **class >= q.num_tc).for_each(|class| *class = 0);
    check(&q, channels)?;
    Ok(q)
}

fn check(q: &Mqprio, channels: u16) -> Result<(), TcError> {
    if !(1..=CLASSES_MAX).contains(&q.num_tc) {
        return Err(invalid("Number of traffic classes is outside valid range"));
    }
    if q.map.iter().any(|class| *class >= q.num_tc) {
        return Err(invalid("Invalid traffic class in priority to traffic class mapping"));
    }
    let ends = |(count, first): (u16, u16)| u32::from(first)..u32::from(first) + u32::from(count);
    for class in 0..usize::from(q.num_tc) {
        let Some(&range) = q.queues.get(class).filter(|range| range.0 > 0) else {
            return Err(invalid(format!(
                "No queues for TC {class} (set them with queues COUNT@FIRST ...)"
            )));
        };
        let (count, first) = range;
        if ends(range).end > channels.into() {
            return Err(invalid(format!(
                "Queues {count}:{first} for TC {class} exceed the {channels} TX queues available"
            )));
        }
        for (other, &b) in q.queues.iter().enumerate().skip(class + 1) {
            if ends(range).start < ends(b).end && ends(b).start < ends(range).end {
                return Err(invalid(format!(
                    "TC {class} queues {count}@{first} overlap with TC {other} queues {}@{}",
                    b.0, b.1
                )));
            }
        }
    }
    Ok(())
}
