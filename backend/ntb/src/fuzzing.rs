//! Targets for fuzzing and property tests: each takes any bytes and must neither panic nor read
//! outside the window. One body serves the fuzzer and the tests.
