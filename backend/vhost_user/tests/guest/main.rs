//! Tests of the halves of a guest's queue pair, with a simple driver.

mod bench;
mod evil;
mod hand_over;
mod in_order;
mod notifications;
mod rooms;
mod traffic;
