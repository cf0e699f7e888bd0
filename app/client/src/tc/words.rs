//! Words of a command line, and tc's error texts for invalid words.

use mqnet_control_api::{ApiError, Code, TcObject};

use crate::ethtool::errno;

/// Exit code of tc for an invalid command line.
const USAGE: u8 = 255;

/// Failure of a command: text for stderr, and exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fail {
    pub(super) line: String,
    pub(super) exit: u8,
}

impl Fail {
    pub(super) fn new(exit: u8, line: impl Into<String>) -> Self {
        Self { line: line.into(), exit }
    }

    /// Error for an invalid command line.
    pub(super) fn usage(line: impl Into<String>) -> Self {
        Self::new(USAGE, line)
    }

    /// Error for an invalid value of a word.
    pub(super) fn wrong(value: &str, what: &str) -> Self {
        Self::usage(format!("Error: argument \"{value}\" is wrong: {what}"))
    }

    /// Error for a repeated word.
    pub(super) fn duplicate(word: &str, value: &str) -> Self {
        Self::usage(format!("Error: duplicate \"{word}\": \"{value}\" is the second value."))
    }

    /// Error for a refusal by the server: tc's text for a refusal that a kernel could send,
    /// otherwise the server's message.
    pub(super) fn refused(error: &ApiError, dev: &str) -> Self {
        let strerror = errno::text(error.code);
        match (error.code, error.field.as_deref()) {
            (Code::NoDevice, _) => no_device(dev),
            // Only the server parses `options`, which configuration files and the library use too.
            // The server's message is printed without a prefix.
            (Code::Invalid | Code::Range, Some("options")) => Self::new(1, error.message.clone()),
            (Code::TimedOut | Code::Failed | Code::Down | Code::Permission, _)
            | (Code::Busy, Some("name")) => Self::new(1, format!("mqnet: {}", error.message)),
            _ if error.message.is_empty() || error.message == strerror => answer(error.code),
            _ => Self::new(2, format!("Error: {}.", error.message)),
        }
    }
}

/// Refusal with the error text of the kernel only.
pub(super) fn answer(code: Code) -> Fail {
    Fail::new(2, format!("RTNETLINK answers: {}", errno::text(code)))
}

/// Error for an unknown netdev, with the name truncated to the kernel's length as in tc.
fn no_device(dev: &str) -> Fail {
    let name: String = dev.chars().take(15).collect();
    Fail::new(1, format!("Cannot find device \"{name}\""))
}

/// Name of an object, for messages.
pub(super) fn name_of(object: TcObject) -> &'static str {
    match object {
        TcObject::Qdisc => "qdisc",
        TcObject::Class => "class",
        TcObject::Filter => "filter",
    }
}

pub(super) fn unknown(what: &str, word: &str, object: TcObject) -> Fail {
    let object = name_of(object);
    Fail::usage(format!("{what} \"{word}\" is unknown, try \"tc {object} help\"."))
}

/// Arguments that have not been parsed yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    rest: &'a [String],
}

impl<'a> Words<'a> {
    pub(super) fn new(rest: &'a [String]) -> Self {
        Self { rest }
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    pub(super) fn next_if(&mut self, wanted: impl Fn(&str) -> bool) -> Option<&'a str> {
        self.rest.first().filter(|word| wanted(word))?;
        self.next()
    }

    /// Returns the next word; an error if none follows.
    pub(super) fn value(&mut self) -> Result<&'a str, Fail> {
        let missing = || Fail::usage("Command line is not complete. Try option \"help\"");
        self.next().ok_or_else(missing)
    }

    /// Returns all remaining words.
    pub(super) fn rest(self) -> Vec<String> {
        self.rest.to_vec()
    }
}

/// True if a word abbreviates a name: tc accepts any prefix that is not empty.
pub(super) fn is_short_for(word: &str, name: &str) -> bool {
    !word.is_empty() && name.starts_with(word)
}
