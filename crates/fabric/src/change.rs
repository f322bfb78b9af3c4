//! Conditions that change during a run.

use timebound_model::{Impairments, LinkId, NodeId, PortId, Rate, Span};

/// Takes effect at its very virtual time, before everything else that happens then.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Replaces all impairments of a direction; its random streams go on where they are.
    Impairments(PortId, Impairments),
    /// For frames whose transmission starts from now on.
    Rate(PortId, Rate),
    /// For frames whose transmission ends from now on; frames still do not overtake.
    Propagation(PortId, Span),
    LinkUp(LinkId),
    /// Frames of which any part is sent while the link is down are lost (in both directions); what was sent before arrives.
    LinkDown(LinkId),
    /// The host becomes a member of the group, as by [`crate::Fabric::join`], but at a recorded time.
    Join(u32, NodeId),
    Leave(u32, NodeId),
}
