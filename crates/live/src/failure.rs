//! Why a run did not end well, and the exit code that says so.

/// All was well.
pub const EXIT_OK: i32 = 0;
/// A failure of ours, or a plan that cannot be read.
pub const EXIT_INTERNAL: i32 = 1;
/// The host cannot do it, or a program of the plan is missing or died.
pub const EXIT_HOST: i32 = 3;
/// The machine disturbed the run, or was too busy to begin it.
pub const EXIT_DISTURBED: i32 = 4;
/// Stopped before its time.
pub const EXIT_INTERRUPTED: i32 = 130;

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Something that should always work did not.
    #[error("{0}")]
    Internal(String),
    /// The host refuses something, lacks a program, or failed the pre-flight check.
    #[error("{0}")]
    Host(String),
    /// The machine was too busy to show that the emulated conditions hold.
    #[error("{0}")]
    Disturbed(String),
    /// SIGINT, SIGTERM, the end of standard input or `stop`.
    #[error("stopped before its time")]
    Interrupted,
}

impl Failure {
    /// The exit code of the sandbox for this failure.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Internal(_) => EXIT_INTERNAL,
            Self::Host(_) => EXIT_HOST,
            Self::Disturbed(_) => EXIT_DISTURBED,
            Self::Interrupted => EXIT_INTERRUPTED,
        }
    }

    pub(crate) fn host(what: impl std::fmt::Display, why: impl std::fmt::Display) -> Self {
        Self::Host(format!("{what}: {why}"))
    }

    pub(crate) fn internal(what: impl std::fmt::Display, why: impl std::fmt::Display) -> Self {
        Self::Internal(format!("{what}: {why}"))
    }
}
