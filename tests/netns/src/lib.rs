//! Tests of the program between network namespaces, in `tests/`.

#![forbid(unsafe_code)]
