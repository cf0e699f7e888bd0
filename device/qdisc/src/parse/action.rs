//! Parser of actions: the words after `action`.

use std::sync::Arc;

use crate::TcError;
use crate::act::{Act, Action, Bucket, Control, Police, Skbedit};
use crate::parse::{Words, number, usage};

/// Control words of an action.
const CONTROLS: [(&str, Control); 6] = [
    ("drop", Control::Drop),
    ("shot", Control::Drop),
    ("ok", Control::Ok),
    ("pass", Control::Ok),
    ("continue", Control::Continue),
    ("pipe", Control::Pipe),
];

fn control(word: &str) -> Option<Control> {
    CONTROLS.iter().find(|(name, _)| *name == word).map(|(_, control)| *control)
}

/// Takes the next word if it is a control word.
fn take_control(words: &mut Words<'_>) -> Option<Control> {
    let found = words.peek().and_then(control)?;
    words.next();
    Some(found)
}

fn bad(word: &str) -> TcError {
    let kinds = "skbedit, police, drop, ok, pass, continue, pipe";
    usage(format!("Bad action type {word} (there are: {kinds})"))
}

/// Parses an action, with index 0; the caller assigns the index later.
pub(super) fn action(words: &mut Words<'_>) -> Result<Action, TcError> {
    let word = words.value()?;
    match word {
        "skbedit" => skbedit(words),
        "police" => police(words),
        "gact" => {
            let word = words.value()?;
            gact(control(word).ok_or_else(|| bad(word))?)
        }
        word => gact(control(word).ok_or_else(|| bad(word))?),
    }
}

fn gact(control: Control) -> Result<Action, TcError> {
    Ok(Action { act: Act::Gact, control, index: 0 })
}

fn skbedit(words: &mut Words<'_>) -> Result<Action, TcError> {
    let mut edit = Skbedit::default();
    // At least one word must follow.
    words.peek().map_or_else(|| words.value().map(drop), |_| Ok(()))?;
    while let Some(word) = words.peek() {
        match word {
            "queue_mapping" | "priority" | "mark" => words.next(),
            _ => break,
        };
        match word {
            "queue_mapping" => edit.queue_mapping = Some(words.read(word, number::decimal)?),
            "priority" => edit.priority = Some(words.read(word, number::class)?.0),
            _ => edit.mark = Some(words.read(word, number::masked)?),
        }
    }
    if edit == Skbedit::default() {
        return Err(usage("skbedit: nothing to set (queue_mapping, priority or mark)"));
    }
    let control = take_control(words).unwrap_or(Control::Pipe);
    Ok(Action { act: Act::Skbedit(edit), control, index: 0 })
}

/// Parses `EXCEED` or `EXCEED/CONFORM`; the default of `CONFORM` is `ok`.
fn controls(word: &str) -> Option<(Control, Control)> {
    let (exceed, conform) = word.split_once('/').unwrap_or((word, "ok"));
    Some((control(exceed)?, control(conform)?))
}

/// Parses a police action. Packets above the rate are dropped by default, because tc's default
/// `reclassify` only repeats the filters until the kernel drops the packet. Without `mtu`, the
/// burst alone limits a packet: tc's default of 2 KiB would drop every large GSO frame.
fn police(words: &mut Words<'_>) -> Result<Action, TcError> {
    let (mut rate, mut burst, mut mtu) = (None, None, None);
    let (mut exceed, mut conform) = (Control::Drop, Control::Ok);
    // At least one word must follow.
    words.peek().map_or_else(|| words.value().map(drop), |_| Ok(()))?;
    while let Some(word) = words.peek() {
        match word {
            "rate" | "burst" | "buffer" | "maxburst" | "mtu" | "minburst" | "conform-exceed" => {
                words.next();
            }
            _ => match take_control(words) {
                Some(control) => {
                    exceed = control;
                    continue;
                }
                None => break,
            },
        }
        match word {
            "rate" => rate = Some(words.read(word, number::rate)?),
            "mtu" | "minburst" => mtu = Some(words.read(word, number::size)?),
            "conform-exceed" => (exceed, conform) = words.read(word, controls)?,
            _ => burst = Some(words.read(word, number::size)?),
        }
    }
    let rate = rate.filter(|rate| *rate > 0).ok_or_else(|| usage("police: rate MUST be specified"));
    let rate = rate?;
    let burst = burst.filter(|burst| *burst > 0).ok_or_else(|| usage("'rate' requires 'burst'"))?;
    let police = Police { rate, burst, mtu: mtu.filter(|mtu| *mtu > 0), exceed };
    Ok(Action { act: Act::Police(police, Arc::new(Bucket::default())), control: conform, index: 0 })
}
