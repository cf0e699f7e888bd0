//! Test of the control interface with an independent client: see `tests/schemathesis.rs`.

#![forbid(unsafe_code)]
