//! One command on one device: finds the device, sends requests, and reports errors as ethtool does.

use std::io::{self, Write};

use mqnet_control::client::segment;
use mqnet_control_api::{ApiError, Code, Outcome};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::errno;
use crate::api::{self, Api};

/// Function that returns a connection to the mqnet process with the named netdev.
pub(crate) type Find<'a> = &'a dyn Fn(&str) -> Result<Box<dyn Api>, ApiError>;

/// Error text of ethtool for an unknown verb.
pub(super) const BAD_COMMAND: &str =
    "ethtool: bad command line argument(s)\nFor more information run ethtool -h\n";

/// `NotSupported` without a message, as the kernel reports a request that the device does not
/// support.
pub(super) fn unsupported() -> ApiError {
    ApiError::new(Code::NotSupported, "")
}

/// Removes the message of `NotSupported`, since the kernel sends none; returns any other error
/// unchanged.
pub(super) fn kernel_error(error: ApiError) -> ApiError {
    match error.code {
        Code::NotSupported => unsupported(),
        _ => error,
    }
}

/// Netdev of a command, and a connection to the process with this netdev.
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

/// Arguments of one command line after its verb.
pub(super) struct Call<'a> {
    pub(super) dev: &'a str,
    pub(super) args: &'a [String],
    pub(super) json: bool,
    pub(super) find: Find<'a>,
    pub(super) out: &'a mut dyn Write,
    pub(super) err: &'a mut dyn Write,
}

impl Call<'_> {
    /// Connects to the process with the device. The error is the one that `find` returns.
    pub(super) fn device(&self) -> Result<Device, ApiError> {
        let api = (self.find)(self.dev)?;
        Ok(Device { api, base: format!("/v1/netdevs/{}", segment(self.dev)) })
    }

    /// Requests a resource for a verb without arguments. The inner error is the exit code of an
    /// error that is already printed.
    pub(super) fn request<T: DeserializeOwned>(&mut self, what: &str) -> io::Result<Result<T, u8>> {
        if let Some(extra) = self.args.first() {
            writeln!(self.err, "ethtool: unexpected parameter '{extra}'")?;
            return Ok(Err(1));
        }
        match self.device().and_then(|device| device.get(what)) {
            Ok(answer) => Ok(Ok(answer)),
            Err(e) if e.code == Code::NotSupported => self.refuse(&unsupported(), 1).map(Err),
            Err(e) => self.refuse(&e, 1).map(Err),
        }
    }

    /// Prints the reason of a refusal as ethtool does, and returns `exit`. ethtool's offset of the
    /// rejected attribute is left out: no netlink request exists.
    pub(super) fn refuse(&mut self, error: &ApiError, exit: u8) -> io::Result<u8> {
        let strerror = errno::text(error.code);
        let message = match error.code {
            Code::NoDevice => "no device matches name",
            _ => error.message.as_str(),
        };
        if !message.is_empty() && message != strerror {
            writeln!(self.err, "netlink error: {message}")?;
        }
        writeln!(self.err, "netlink error: {strerror}")?;
        if self.json {
            // ethtool opens the JSON list before its request, so that a refused request prints an
            // empty list.
            writeln!(self.out, "[ ]")?;
        }
        Ok(exit)
    }

    /// Prints the note of a change, or the reason of the refusal. Returns exit code 0, or `exit`
    /// after a refusal.
    pub(super) fn finish(
        &mut self,
        result: Result<Option<Outcome>, ApiError>,
        exit: u8,
    ) -> io::Result<u8> {
        match result {
            Ok(outcome) => {
                self.note(outcome.as_ref())?;
                Ok(0)
            }
            Err(refusal) => self.refuse(&refusal, exit),
        }
    }

    /// Prints the note of `outcome`, if the outcome has one.
    pub(super) fn note(&mut self, outcome: Option<&Outcome>) -> io::Result<()> {
        match outcome.and_then(|outcome| outcome.note.as_deref()) {
            Some(note) => writeln!(self.err, "netlink warning: {note}"),
            None => Ok(()),
        }
    }

    /// Prints the reason of a refusal for verbs that ethtool implements by ioctl, and returns
    /// `exit`. An ioctl returns only an errno; codes that no ioctl returns are printed with the
    /// API's message.
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

    /// Prints one line on stderr and returns exit code 1.
    pub(super) fn complain(&mut self, line: &str) -> io::Result<u8> {
        writeln!(self.err, "{line}")?;
        Ok(1)
    }

    /// Prints ethtool's error for an invalid command line and returns exit code 1.
    pub(super) fn bad_command(&mut self) -> io::Result<u8> {
        self.err.write_all(BAD_COMMAND.as_bytes())?;
        Ok(1)
    }
}
