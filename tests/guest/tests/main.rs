//! mqnet on kernels that the host does not run.
