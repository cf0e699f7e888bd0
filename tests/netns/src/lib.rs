//! Tests of the program between network namespaces; they are in `tests/`.

#![forbid(unsafe_code)]
