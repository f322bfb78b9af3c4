//! A fabric and the time at which its clock reads zero.

use timebound_fabric::Fabric;

/// What a fabric is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The check of the emulated conditions; its frames never mix with those of the run.
    Preflight,
    /// Programs start, endpoints connect; nothing is lost and nothing recorded.
    Setup,
    Measured,
}

pub(crate) struct Lane {
    pub(crate) kind: Kind,
    pub(crate) fabric: Box<Fabric>,
    /// CLOCK_MONOTONIC at its time zero.
    pub(crate) origin: u64,
    /// It takes no more frames.
    pub(crate) closed: bool,
}

impl Lane {
    pub(crate) fn new(kind: Kind, fabric: Box<Fabric>, origin: u64) -> Self {
        Self {
            kind,
            fabric,
            origin,
            closed: false,
        }
    }

    /// When something happens next, CLOCK_MONOTONIC; `u64::MAX` while nothing is under way.
    pub(crate) fn next(&self) -> u64 {
        self.fabric
            .next_timeout()
            .map_or(u64::MAX, |time| self.origin.saturating_add(time.0))
    }
}
