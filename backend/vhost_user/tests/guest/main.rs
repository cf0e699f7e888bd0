//! Halves of a guest's queue pair, against a plain driver.

mod bench;
mod evil;
mod hand_over;
mod in_order;
mod notifications;
mod rooms;
mod traffic;
