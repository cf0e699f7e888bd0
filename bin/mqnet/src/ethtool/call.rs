//! One command on one device: finding it, asking it, and saying what went wrong as ethtool does.

use std::fmt::Write as _;
use std::io::{self, Write};

use mqnet_control_api::{ApiError, Code, Outcome};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::errno;
use super::params::Given;
use crate::api::{self, Api};

/// Finds the running mqnet that has the netdev of that name.
pub(crate) type Find<'a> = &'a dyn Fn(&str) -> Result<Box<dyn Api>, ApiError>;

/// What ethtool says when it does not even know what is wanted.
pub(super) const BAD_COMMAND: &str =
    "ethtool: bad command line argument(s)\nFor more information run ethtool -h\n";

/// Where the device's name stands in a netlink request: after three headers.
const NAME_OFFSET: u32 = 24;

/// A string with its end and padding, behind an attribute's header.
pub(super) fn attribute(text: &str) -> u32 {
    let len = u32::try_from(text.len()).unwrap_or(u32::MAX / 8);
    4 + (len + 1).next_multiple_of(4)
}

/// A refusal, and the byte of the (imagined) netlink request that it is about.
#[derive(Debug)]
pub(super) struct Refusal {
    error: ApiError,
    offset: Option<u32>,
}

impl Refusal {
    pub(super) fn new(code: Code, message: &str, offset: Option<u32>) -> Self {
        Self { error: ApiError::new(code, message), offset }
    }

    /// The device cannot do it, and the kernel says no more than that.
    pub(super) fn unsupported() -> Self {
        Self::new(Code::NotSupported, "", None)
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self { error, offset: None }
    }
}

/// The netdev of the command, found.
pub(super) struct Device {
    api: Box<dyn Api>,
    base: String,
}

impl Device {
    pub(super) fn get<T: DeserializeOwned>(&self, what: &str) -> Result<T, ApiError> {
        api::get(&*self.api, &format!("{}/{what}", self.base))
    }

    pub(super) fn patch<B: Serialize>(&self, what: &str, body: &B) -> Result<Outcome, ApiError> {
        api::patch(&*self.api, &format!("{}/{what}", self.base), body)
    }
}

/// A name as one segment of a path: it comes from the command line and may hold anything.
pub(crate) fn segment(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' | b'@' => {
                out.push(char::from(byte));
            }
            other => {
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
    out
}

/// One command line behind its verb.
pub(super) struct Call<'a> {
    pub(super) dev: &'a str,
    pub(super) args: &'a [String],
    pub(super) json: bool,
    pub(super) find: Find<'a>,
    pub(super) out: &'a mut dyn Write,
    pub(super) err: &'a mut dyn Write,
}

impl Call<'_> {
    /// Finds the device.
    pub(super) fn device(&self) -> Result<Device, ApiError> {
        let api = (self.find)(self.dev)?;
        Ok(Device { api, base: format!("/v1/netdevs/{}", segment(self.dev)) })
    }

    /// Asks the device for something that ethtool asks by netlink, without further arguments.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, what: &str) -> io::Result<Result<T, u8>> {
        if let Some(extra) = self.args.first() {
            writeln!(self.err, "ethtool: unexpected parameter '{extra}'")?;
            return Ok(Err(1));
        }
        match self.device().and_then(|device| device.get(what)) {
            Ok(answer) => Ok(Ok(answer)),
            Err(e) if e.code == Code::NotSupported => {
                self.refuse(&Refusal::unsupported(), 1).map(Err)
            }
            Err(e) => self.refuse(&e.into(), 1).map(Err),
        }
    }

    /// Offset of the first attribute behind the header that names the device.
    pub(super) fn attributes(&self) -> u32 {
        NAME_OFFSET + attribute(self.dev)
    }

    /// Says why a request was refused, as the kernel and ethtool do.
    pub(super) fn refuse(&mut self, refusal: &Refusal, exit: u8) -> io::Result<u8> {
        let Refusal { error, offset } = refusal;
        let strerror = errno::text(error.code);
        let (message, offset) = match error.code {
            Code::NoDevice => ("no device matches name", Some(NAME_OFFSET)),
            _ => (error.message.as_str(), *offset),
        };
        if !message.is_empty() && message != strerror {
            write!(self.err, "netlink error: {message}")?;
            if let Some(offset) = offset {
                write!(self.err, " (offset {offset})")?;
            }
            writeln!(self.err)?;
        }
        writeln!(self.err, "netlink error: {strerror}")?;
        if self.json {
            // The list has been begun by then.
            writeln!(self.out, "[ ]")?;
        }
        Ok(exit)
    }

    /// Ends a change: silence, a warning, or the refusal; a refused field is looked up in what
    /// was given.
    pub(super) fn finish(
        &mut self,
        result: Result<Option<Outcome>, Refusal>,
        given: &[Given],
        exit: u8,
    ) -> io::Result<u8> {
        match result {
            Ok(outcome) => {
                self.note(outcome.as_ref())?;
                Ok(0)
            }
            Err(mut refusal) => {
                if let (None, Some(field)) = (refusal.offset, &refusal.error.field) {
                    refusal.offset = given.iter().find(|g| g.name == field).map(|g| g.offset);
                }
                self.refuse(&refusal, exit)
            }
        }
    }

    /// What the user should know of a change that was made.
    pub(super) fn note(&mut self, outcome: Option<&Outcome>) -> io::Result<()> {
        match outcome.and_then(|outcome| outcome.note.as_deref()) {
            Some(note) => writeln!(self.err, "netlink warning: {note}"),
            None => Ok(()),
        }
    }

    /// Says why a request was refused, for the verbs that ethtool makes by ioctl: those have
    /// room for an errno only. Codes that no kernel gives there carry our own reason.
    pub(super) fn perror(&mut self, what: &str, error: &ApiError, exit: u8) -> io::Result<u8> {
        let reason = match error.code {
            Code::Busy | Code::Changing | Code::Down | Code::TimedOut | Code::Failed => {
                error.message.as_str()
            }
            code => errno::text(code),
        };
        writeln!(self.err, "{what}: {reason}")?;
        Ok(exit)
    }

    /// One line on stderr, exit code 1.
    pub(super) fn complain(&mut self, line: &str) -> io::Result<u8> {
        writeln!(self.err, "{line}")?;
        Ok(1)
    }

    /// The command line makes no sense.
    pub(super) fn bad_command(&mut self) -> io::Result<u8> {
        self.err.write_all(BAD_COMMAND.as_bytes())?;
        Ok(1)
    }
}
