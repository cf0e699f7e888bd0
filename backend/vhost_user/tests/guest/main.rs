//! Halves of a guest's queue pair, against a plain driver.

mod bench;
mod doorbells;
mod evil;
mod in_order;
mod life;
mod rooms;
mod traffic;
