//! What a port does beyond strict priority, as pure functions of numbers: they know no network and no other flows.

pub(crate) mod bucket;
