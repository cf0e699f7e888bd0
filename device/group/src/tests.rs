//! Tests of a group of fake members, with losses, returns, resizes and failures.

mod driver;
mod fake;
mod orders;
mod random;
mod rules;
