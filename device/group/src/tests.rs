//! A group of fakes under everything that can happen to it.

mod driver;
mod fake;
mod orders;
mod random;
mod rules;
