//! tc's words, as data.
//!
//! Texts of errors are tc's own where it has one.

mod action;
mod filter;
pub(crate) mod number;

use crate::TcError;
use crate::command::Errno;

pub(crate) use filter::{Keys, filter};

/// Words that are still to be read.
pub(crate) struct Words<'a> {
    rest: std::slice::Iter<'a, String>,
}

impl<'a> Words<'a> {
    pub(crate) fn new(words: &'a [String]) -> Self {
        Self { rest: words.iter() }
    }

    /// The next word, if there is one.
    pub(crate) fn next(&mut self) -> Option<&'a str> {
        self.rest.next().map(String::as_str)
    }

    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.rest.as_slice().first().map(String::as_str)
    }

    /// The word after a name.
    pub(crate) fn value(&mut self) -> Result<&'a str, TcError> {
        self.next().ok_or_else(|| usage("Command line is not complete. Try option \"help\""))
    }

    /// The word after `name`, as `read` understands it.
    pub(crate) fn read<T>(
        &mut self,
        name: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, TcError> {
        let word = self.value()?;
        read(word).ok_or_else(|| usage(format!("Illegal \"{name}\": \"{word}\"")))
    }
}

/// tc does not understand the words.
pub(crate) fn usage(message: impl Into<String>) -> TcError {
    TcError { errno: Errno::Invalid, message: message.into(), usage: true }
}

/// The numbers make no sense to the kernel.
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
