//! Test of the control interface with an independent client (`tests/schemathesis.rs`).

#![forbid(unsafe_code)]
