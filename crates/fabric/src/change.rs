//! Conditions that change during a run.

use timebound_model::declaration::ImpairmentsDecl;
use timebound_model::{CompileErrors, Impairments, LinkId, NodeId, PortId, Rate, Span, compile_conditions};

/// Takes effect at its very virtual time, before everything else that happens then.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Replaces all impairments of a direction; its random streams go on where they are.
    Impairments(PortId, Impairments),
    /// For frames whose transmission starts from now on: the frame in transmission ends at the old rate, those that wait are
    /// sent at the new one. Without effect on a port with a trace.
    Rate(PortId, Rate),
    /// For frames whose transmission ends from now on; frames still do not overtake unless the link reorders.
    Propagation(PortId, Span),
    /// Room for frames that arrive from now on; none that waits is thrown out.
    Buffer(PortId, u64),
    LinkUp(LinkId),
    /// Frames of which any part is sent while the link is down are lost (in both directions); what was sent before arrives.
    LinkDown(LinkId),
    /// The same for one direction.
    PortUp(PortId),
    PortDown(PortId),
    /// The host becomes a member of the group, as by [`crate::Fabric::join`], but at a recorded time.
    Join(u32, NodeId),
    Leave(u32, NodeId),
}

/// What a schedule states of one direction of a link at one time; what is absent stays as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Conditions<'a> {
    pub rate_bps: Option<u64>,
    pub delay_ns: Option<u64>,
    pub buffer_bytes: Option<u64>,
    /// All impairments of the direction from then on.
    pub impairments: Option<&'a ImpairmentsDecl>,
    /// False: carries nothing from then on. True: carries again.
    pub up: Option<bool>,
}

impl Conditions<'_> {
    /// As changes of `port`; the same for the simulator and the emulator.
    ///
    /// # Errors
    /// Impairments that no link can have.
    pub fn changes(&self, port: PortId, path: &str) -> Result<Vec<Change>, CompileErrors> {
        let impairments = match self.impairments {
            Some(decl) => Some(compile_conditions(decl, path)?),
            None => None,
        };
        let connection = |up| {
            if up {
                Change::PortUp(port)
            } else {
                Change::PortDown(port)
            }
        };
        // A rate of zero would never end a transmission; whoever writes a schedule is told so before.
        let rate = self.rate_bps.map(|rate| Change::Rate(port, Rate(rate.max(1))));
        Ok(rate
            .into_iter()
            .chain(self.delay_ns.map(|delay| Change::Propagation(port, Span(delay))))
            .chain(self.buffer_bytes.map(|bytes| Change::Buffer(port, bytes)))
            .chain(impairments.map(|impairments| Change::Impairments(port, impairments)))
            .chain(self.up.map(connection))
            .collect())
    }
}
