//! Parts shared by all commands: failures, output and tables.

#![forbid(unsafe_code)]

mod failure;
mod output;
mod table;

pub use failure::Failure;
pub use output::{json_text, put, si};
pub use table::TextTable;
