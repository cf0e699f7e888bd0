//! The control interface under an independent client: see `tests/schemathesis.rs`.

#![forbid(unsafe_code)]
