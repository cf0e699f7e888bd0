//! Whole card with a control queue over a socket, and a driver that commands it.

mod evil;
mod link;
mod peer;
mod receive;
