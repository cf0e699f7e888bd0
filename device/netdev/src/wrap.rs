//! Queues around queues: put on while they are wanted, taken off again, and free when off.

pub mod capture;
