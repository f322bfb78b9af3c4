//! The data plane: frames from the ring into the fabric, departures from the fabric back to the nodes, under the real clock.
//!
//! One thread. Events are processed only up to the clock read *before* the ring is drained, and hops are virtual, so
//! wake-up errors do not add up; a frame is never released before its virtual time. Nothing on this path locks or waits, and
//! nothing allocates once the buffers have grown to the load.

mod buffers;
mod flows;
mod lane;
mod lateness;
mod outlet;
mod packet;
mod receive;
mod tap;
mod work;

pub(crate) use buffers::Buffers;
pub(crate) use flows::Flows;
pub(crate) use flows::{FlowReport, MAGIC, Undeclared};
pub(crate) use lane::{Kind, Lane};
pub(crate) use lateness::Judged;
pub use lateness::Window;
pub(crate) use outlet::Outlet;
pub(crate) use receive::{Directory, Refusals};
pub(crate) use tap::{Tap, tap_header};
pub(crate) use work::{Command, Plane, PlaneReport, Setup, Shared};
