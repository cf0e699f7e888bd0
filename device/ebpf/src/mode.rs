//! Execution modes of programs.

/// Execution mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionMode {
    /// Machine code.
    Jit,
    /// Interpreter, which checks each memory access again.
    Interpret,
}

impl ExecutionMode {
    /// Best mode on this architecture.
    pub const BEST: Self = if cfg!(target_arch = "x86_64") { Self::Jit } else { Self::Interpret };

    /// Name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jit => "jit",
            Self::Interpret => "interpreter",
        }
    }
}
