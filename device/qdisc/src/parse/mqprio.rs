//! Options of mqprio.

use crate::parse::{Words, invalid, number, usage};
use crate::{Mqprio, TcError};

/// Traffic classes that there can be.
const CLASSES_MAX: u8 = 16;
/// What tc sends when no map is given: the first eight priorities have a class each.
const MAP: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 1, 1, 3, 3, 3, 3];

fn wrong(word: &str) -> TcError {
    usage(format!("argument \"{word}\" is wrong: unknown argument"))
}

/// `count@first`
fn range(word: &str) -> Option<(u16, u16)> {
    let (count, first) = word.split_once('@')?;
    Some((number::decimal(count)?, number::decimal(first)?))
}

/// `hw` is 1 for tc when nothing is said; here nothing but 0 is possible, so that nothing said
/// means 0.
pub(super) fn mqprio(mut words: Words<'_>, channels: u16) -> Result<Mqprio, TcError> {
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
    // What tc fills in has not been asked for: it must not be what is wrong.
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
                "No queues for TC {class} (queues COUNT@FIRST ... says which)"
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
