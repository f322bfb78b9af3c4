//! Measured UDP: one datagram per release, unicast or multicast.

use super::Core;
use super::receiver::{Message, ReceiverState};
use super::source::SourceState;
use crate::error::EndpointError;
use crate::plan::{Qos, UdpFlow, UdpReceiver};
use crate::record::Kind;
use crate::sockets::{Owner, address, is_pause, port_of};
use crate::summary::SenderSummary;
use crate::sys::Interest;
use crate::wire::{FILL, Header};
use std::net::{SocketAddr, UdpSocket};

/// Datagrams read before other sockets get their turn.
const BATCH: usize = 64;

pub(super) struct UdpSender<'p> {
    plan: &'p UdpFlow,
    pub(super) source: SourceState,
    socket: UdpSocket,
    destination: SocketAddr,
    payload: Vec<u8>,
}

impl<'p> UdpSender<'p> {
    pub(super) fn open(plan: &'p UdpFlow, core: &mut Core<'_>) -> Result<Self, EndpointError> {
        let owner = Owner {
            name: &plan.name,
            node: &plan.node,
            dscp: plan.dscp,
        };
        let local = address(plan.local_address, plan.local_port);
        let socket = core
            .opener
            .udp_sender(&owner, local, plan.destination, plan.multicast_ttl)?;
        Ok(Self {
            plan,
            source: SourceState::new(plan.flow, plan.payload_bytes, &plan.release),
            socket,
            destination: address(Some(plan.destination), plan.port).into(),
            payload: vec![FILL; plan.payload_bytes as usize],
        })
    }

    /// Sends the message that is due; returns when the next one is.
    pub(super) fn release(&mut self, core: &mut Core<'_>) -> Option<i64> {
        let (outgoing, next_ns) = self.source.take()?;
        let now_ns = core.clock.now_ns();
        Header {
            flow: self.plan.flow,
            sequence: outgoing.sequence,
            sent_ns: now_ns,
        }
        .write(&mut self.payload);
        match self.socket.send_to(&self.payload, self.destination) {
            Ok(_) => {
                self.source.sent += 1;
                let (sequence, nominal_ns) = (outgoing.sequence, outgoing.nominal_ns);
                core.recorder
                    .push(&self.source.record(Kind::Sent, 0, sequence, nominal_ns, now_ns));
                core.lateness
                    .enter(u64::try_from(now_ns - outgoing.planned_ns).unwrap_or(0));
            }
            Err(_) => self.source.errors += 1,
        }
        next_ns
    }

    pub(super) fn summarise(&self) -> SenderSummary {
        self.source.summarise(
            &self.plan.name,
            &self.plan.node,
            port_of(self.socket.local_addr()),
        )
    }
}

pub(super) struct UdpReceiverState<'p> {
    pub(super) plan: &'p UdpReceiver,
    pub(super) state: ReceiverState,
    socket: UdpSocket,
}

impl<'p> UdpReceiverState<'p> {
    pub(super) fn open(
        plan: &'p UdpReceiver,
        token: u64,
        core: &mut Core<'_>,
    ) -> Result<Self, EndpointError> {
        let owner = Owner {
            name: &plan.name,
            node: &plan.node,
            dscp: 0,
        };
        let socket = core
            .opener
            .udp_receiver(&owner, address(plan.address, plan.port), plan.interface)?;
        core.epoll
            .add(&socket, Interest::Read, token)
            .map_err(|source| EndpointError::System {
                action: "watch a socket",
                source,
            })?;
        let mut state = ReceiverState::new(plan.receiver, [plan.flow]);
        if let Some(bytes) = plan.short_bytes {
            state.expect_short(plan.flow, &[], bytes);
        }
        Ok(Self { plan, state, socket })
    }

    pub(super) fn read(&mut self, core: &mut Core<'_>) {
        for _ in 0..BATCH {
            match self.socket.recv(&mut core.scratch) {
                Ok(bytes) => {
                    let payload = &core.scratch[..bytes];
                    let message = Message {
                        payload,
                        topic: &[],
                        qos: Qos::AtMostOnce,
                        duplicate: false,
                        time_ns: core.clock.now_ns(),
                    };
                    self.state.message(&message, &mut core.recorder);
                }
                Err(error) if is_pause(&error) => return,
                // A pending socket error (ICMP) is taken by the read that reports it; the next read goes on.
                Err(_) => {}
            }
        }
    }
}
