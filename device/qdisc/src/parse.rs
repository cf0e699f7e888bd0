//! Parser of tc's words.
//!
//! Error texts are those of tc where tc has one.

mod action;
mod filter;
pub(crate) mod number;

use crate::TcError;
use crate::command::Errno;

pub(crate) use filter::{Keys, filter};

/// Remaining words.
pub(crate) struct Words<'a> {
    rest: std::slice::Iter<'a, String>,
}

impl<'a> Words<'a> {
    pub(crate) fn new(words: &'a [String]) -> Self {
        Self { rest: words.iter() }
    }

    /// Returns the next word, if any.
    pub(crate) fn next(&mut self) -> Option<&'a str> {
        self.rest.next().map(String::as_str)
    }

    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.rest.as_slice().first().map(String::as_str)
    }

    /// Returns the word after an option name.
    pub(crate) fn value(&mut self) -> Result<&'a str, TcError> {
        self.next().ok_or_else(|| usage("Command line is not complete. Try option \"help\""))
    }

    /// Returns the word after `name`, parsed by `read`.
    pub(crate) fn read<T>(
        &mut self,
        name: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, TcError> {
        let word = self.value()?;
        read(word).ok_or_else(|| usage(format!("Illegal \"{name}\": \"{word}\"")))
    }
}

/// Syntax error of tc.
pub(crate) fn usage(message: impl Into<String>) -> TcError {
    TcError { errno: Errno::Invalid, message: message.into(), usage: true }
}

/// Error for values that the kernel refuses.
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
