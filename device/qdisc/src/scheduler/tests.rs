//! Schedulers as used by lanes, in virtual time.

mod channels;
mod fq_codel;
mod order;
mod plans;
mod random;
mod rates;
mod successor;
mod world;
