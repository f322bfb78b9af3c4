//! The data plane: frames from the ring into the fabric, departures from the fabric back to the nodes, under the real clock.
//!
//! One thread runs the network; others may do input and output for it ([`pool`]). Events are processed only up to the clock read *before* the ring is drained, and hops are virtual, so
//! wake-up errors do not add up; a frame is never released before its virtual time. Nothing on this path locks or waits, and
//! nothing allocates once the buffers have grown to the load.

mod attachment;
mod buffers;
mod cut;
mod doorbell;
mod flows;
mod lane;
mod lateness;
mod meter;
mod outlet;
mod own;
mod packet;
mod pool;
mod receive;
mod short;
mod switches;
mod tap;
mod wire;
mod work;

pub(crate) use attachment::Attachments;
pub(crate) use buffers::Buffers;
pub(crate) use cut::{CutReport, OVERHEAD};
pub(crate) use flows::Flows;
pub(crate) use flows::{FlowReport, MAGIC, Undeclared};
pub(crate) use lane::{Kind, Lane};
pub(crate) use lateness::Judged;
pub use lateness::Window;
pub(crate) use meter::Load;
pub(crate) use outlet::Outlet;
pub(crate) use own::OwnReport;
pub(crate) use pool::spread;
pub(crate) use receive::{Directory, Refusals};
pub(crate) use switches::{FROM_SWITCH, Switched};
pub(crate) use tap::{Tap, tap_header};
pub(crate) use wire::Stamps;
pub(crate) use wire::{Departures, Handover, Inlet, Inline, Received};
pub(crate) use work::{Command, Plane, PlaneReport, Setup, Shared, Standing};
