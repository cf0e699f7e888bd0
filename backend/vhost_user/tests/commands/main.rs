//! Tests of a complete card with a control queue over a socket, and a driver that sends commands.

mod evil;
mod link;
mod peer;
mod receive;
