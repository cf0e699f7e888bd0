#[cfg(loom)]
mod models;
#[cfg(not(loom))]
mod threads;
