//! A whole card with a control queue, over a socket, and the driver that commands it.

mod evil;
mod link;
mod peer;
mod receive;
