//! Parser of tc's words.
//!
//! Error texts are those of tc wherever tc has a text for the error.

mod action;
mod filter;
pub(crate) mod number;

use crate::TcError;
use crate::command::Errno;

pub(crate) use filter::{Keys, filter};

/// Words of a command that remain to be parsed.
pub(crate) struct Words<'a> {
    rest: std::slice::Iter<'a, String>,
}

impl<'a> Words<'a> {
    pub(crate) fn new(words: &'a [String]) -> Self {
        Self { rest: words.iter() }
    }

    /// Takes the next word; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<&'a str> {
        self.rest.next().map(String::as_str)
    }

    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.rest.as_slice().first().map(String::as_str)
    }

    /// Takes the word after an option name; a syntax error if there is none.
    pub(crate) fn value(&mut self) -> Result<&'a str, TcError> {
        self.next().ok_or_else(|| usage("Command line is not complete. Try option \"help\""))
    }

    /// Takes the word after option `name` and parses it with `read`; a syntax error if the word is
    /// missing or `read` returns `None`.
    pub(crate) fn read<T>(
        &mut self,
        name: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, TcError> {
        let word = self.value()?;
        read(word).ok_or_else(|| usage(format!("Illegal \"{name}\": \"{word}\"")))
    }
}

/// Syntax error, which tc itself would report.
pub(crate) fn usage(message: impl Into<String>) -> TcError {
    TcError { errno: Errno::Invalid, message: message.into(), usage: true }
}

/// Error for values that the kernel rejects.
pub(crate) fn invalid(message: impl Into<String>) -> TcError {
    TcError { errno: Errno::Invalid, message: message.into(), usage: false }
}

pub(crate) fn unknown(word: &str) -> TcError {
    usage(format!("What is \"{word}\"?"))
}

#[cfg(test)]
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
