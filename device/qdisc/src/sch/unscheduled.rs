//! Kinds that need no scheduler: noqueue, mq and clsact.

use super::fifo::placeholder;
use crate::kind::{Classes, Env, Kind};
use crate::parse::{Words, unknown, usage};
use crate::{Blueprint, Qdisc, TcError};

/// The kind noqueue.
pub(crate) struct Noqueue;

/// The kind mq.
pub(crate) struct Mq;

/// The kind clsact.
pub(crate) struct Clsact;

/// Rejects any option, with the text of `tc`.
fn no_options(kind: &str, mut words: Words<'_>) -> Result<(), TcError> {
    words.next().map_or(Ok(()), |word| {
        Err(usage(format!("Unknown qdisc \"{kind}\", hence option \"{word}\" is unparsable")))
    })
}

impl Kind for Noqueue {
    type Params = ();
    const NAME: &'static str = "noqueue";

    fn parse(words: Words<'_>, _: Option<&()>, _: Env) -> Result<(), TcError> {
        no_options(Self::NAME, words)
    }

    fn build((): &(), plan: Blueprint, _: u32, _: u64) -> Box<dyn Qdisc> {
        placeholder(plan)
    }
}

impl Kind for Mq {
    type Params = ();
    const NAME: &'static str = "mq";

    fn parse(words: Words<'_>, _: Option<&()>, _: Env) -> Result<(), TcError> {
        no_options(Self::NAME, words)
    }

    fn build((): &(), plan: Blueprint, _: u32, _: u64) -> Box<dyn Qdisc> {
        placeholder(plan)
    }

    fn classes((): &()) -> Classes {
        Classes::Channels
    }
}

impl Kind for Clsact {
    type Params = ();
    const NAME: &'static str = "clsact";

    fn parse(mut words: Words<'_>, _: Option<&()>, _: Env) -> Result<(), TcError> {
        words.next().map_or(Ok(()), |word| Err(unknown(word)))
    }

    fn build((): &(), plan: Blueprint, _: u32, _: u64) -> Box<dyn Qdisc> {
        placeholder(plan)
    }
}
