//! Arguments after `-X DEV`.

use super::super::{number, rss};

/// Distribution of the queues over the table.
#[derive(Debug)]
pub(super) enum Spread<'a> {
    Equal(u32),
    Weights(&'a [String]),
}

/// Requested settings.
#[derive(Debug, Default)]
pub(super) struct Options<'a> {
    equal: Option<u32>,
    weights: Option<&'a [String]>,
    pub(super) spread: Option<Spread<'a>>,
    pub(super) start: u32,
    pub(super) default: bool,
    pub(super) key: bool,
    pub(super) function: Option<&'a str>,
    pub(super) context: bool,
    delete: bool,
    /// True if the last `weight` is not the first. ethtool then adds the lengths of both lists and
    /// reads past the end of the second list.
    pub(super) weights_again: bool,
}

/// Parses the arguments; none if an argument is invalid or there are no arguments.
pub(super) fn parse(args: &[String]) -> Option<Options<'_>> {
    if args.is_empty() {
        return None;
    }
    let max = i32::MAX.unsigned_abs();
    let mut options = Options::default();
    let mut rest = args;
    while let [word, tail @ ..] = rest {
        rest = tail;
        let mut value = || {
            let (first, tail) = rest.split_first()?;
            rest = tail;
            Some(first.as_str())
        };
        match word.as_str() {
            "equal" => options.equal = Some(number::ranged(value()?, 1, max)?),
            "start" => options.start = number::ranged(value()?, 0, max)?,
            "weight" => {
                let digit = |text: &&String| text.starts_with(|c: char| c.is_ascii_digit());
                let count = rest.iter().take_while(digit).count();
                let (weights, tail) = rest.split_at(count);
                rest = tail;
                options.weights_again = options.weights.is_some();
                if count == 0 && !options.weights_again {
                    return None;
                }
                options.weights = Some(weights);
            }
            "hkey" => {
                value()?;
                options.key = true;
            }
            "default" => options.default = true,
            "hfunc" => options.function = Some(value()?),
            "context" => {
                let which = value()?;
                if which != "new" {
                    number::ranged(which, 1, rss::CONTEXT_MAX)?;
                }
                options.context = true;
            }
            "delete" => options.delete = true,
            _ => return None,
        }
    }
    options.spread = match (options.equal, options.weights) {
        (Some(n), _) => Some(Spread::Equal(n)),
        (None, Some(weights)) => Some(Spread::Weights(weights)),
        (None, None) => None,
    };
    Some(options)
}

impl Options<'_> {
    /// Error text of ethtool for options that exclude or require each other, in ethtool's order of
    /// checks; none without a conflict.
    pub(super) fn conflict(&self) -> Option<&'static str> {
        let equal = self.equal.is_some();
        let weight = self.weights.is_some();
        let start = self.start > 0;
        let checks = [
            (equal && weight, "Equal and weight options are mutually exclusive"),
            (equal && self.default, "Equal and default options are mutually exclusive"),
            (weight && self.default, "Weight and default options are mutually exclusive"),
            (start && self.default, "Start and default options are mutually exclusive"),
            (start && !(equal || weight), "Start must be used with equal or weight options"),
            (self.default && self.context, "Default and context options are mutually exclusive"),
            (self.delete && !self.context, "Delete option requires context option"),
            (self.delete && weight, "Delete and weight options are mutually exclusive"),
            (self.delete && equal, "Delete and equal options are mutually exclusive"),
            (self.delete && self.default, "Delete and default options are mutually exclusive"),
            (self.delete && self.key, "Delete and hkey options are mutually exclusive"),
        ];
        checks.into_iter().find(|(hit, _)| *hit).map(|(_, line)| line)
    }
}
