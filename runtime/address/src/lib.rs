//! Endpoint addresses, links and configuration files: parsing and validation of user input.
//!
//! The parsers access the file system only for `group=auto`, and resolve no user names. An error is
//! one line with the wrong field and the allowed values.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod config;
mod endpoint;
mod spec;

pub use endpoint::*;
pub use spec::{
    CHANNELS, CheckedLink, POLL_WINDOW, POLL_WINDOW_DEFAULT, WORKERS, check, check_link_name,
    parse_cpus,
};
