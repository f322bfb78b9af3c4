//! Messages between managers of several edge networks (MRT-MQTT, section V): datagrams to a multicast group, everything else over one TCP
//! connection per pair of managers and class. No I/O and no clock: time is an argument.
//!
//! A *stream* is what one manager, in one life of its process, sends to one group: one topic, one class, and either reliable (QoS 1 and 2) or not
//! (QoS 0), since sequences of the two must not wait for each other. A stream is a sequence of numbered datagrams; a message takes as many
//! as its size needs.
//!
//! - A peer *joins* a stream over TCP and is told the number from which on the data is meant for it; data is sent once all who
//!   are expected have joined (RT-MQTT Fig. 13: joins complete before data). So nobody ever has to ask for what was before it.
//! - Reliable streams: a receiver hands messages over in order and says two things over TCP: up to where (and what beyond) datagrams have
//!   *arrived*, and up to where its broker has *taken* them. The first ends retransmission, the second is what the publisher's PUBACK or PUBREC waits for: so
//!   MQTT's guarantee holds from end to end, over both brokers. A datagram that is missing below one that has arrived is sent
//!   again to that peer alone, and so is one that nobody has heard of after a retransmission time-out (RFC 6298): where no reservation
//!   is known as many at a time as losses of what was sent again leave it, since the way may have a meter.
//! - What is reserved for a group limits what leaves, for the first time and again: [`pacing`].
//! - Unreliable streams: what arrives late is dropped, so that order is kept.
//! - QoS 2: a message carries a *key* (client and packet identifier at its publisher), which a receiver remembers until the publisher's PUBREL releases it.
//!   A publisher that sends again (DUP) after its manager was restarted, in a new stream, is thus not delivered twice. A message without DUP is new
//!   whatever is remembered: its datagrams may overtake the release of the message that had its identifier before, and so a release says which one it means.
//! - A receiver that remembers as many keys as it may takes no more QoS 2 messages until some are released: their publishers wait.
//! - Datagrams are kept until they are *taken*: a receiver whose process was started again ([`sender::Sender::restarted`]) gets all that its
//!   broker has not confirmed.
//! - [`injector`] is the client that hands messages to the receiver's broker, [`message`] what they are.
//!
//! | member of a stream | event | becomes |
//! |---|---|---|
//! | `Expected` | joined | `Joined` |
//! | `Expected` | nothing for `Limits::join` | `Lost` |
//! | `Joined` | acknowledges nothing new for `Limits::silence` although something is due, or its connection is gone for good | `Lost` |
//! | `Joined` | is told to leave | leaving: still `Joined` until it has said what it does not take |
//! | `Joined`, leaving | says that it leaves | what it has not reported is given back ([`sender::Effect::Returned`]); once the rest is taken `Left`, or gone if it was told to |
//! | `Expected`, `Lost`, `Left` | is told to leave | `Parting` |
//! | `Parting` | says that it leaves, or nothing for `Limits::silence` | gone; `Expected` if it is invited again |
//! | `Lost`, `Left` | joined (again) | `Joined`, from the next number on |
//!
//! So whoever leaves takes each message or gives it back, never both, and it can go another way: to another group, or as best effort.
//!
//! What a lost member did not take is told ([`sender::Effect::Undelivered`]): its owner answers for it.

pub mod control;
pub mod datagram;
pub mod injector;
pub mod interests;
pub mod message;
pub mod pacing;
pub mod receiver;
mod round_trip;
pub mod seal;
pub mod sender;

#[cfg(test)]
mod handover;
#[cfg(test)]
mod tests;

/// A manager or agent, by the number that its connection has at whoever asks.
pub type PeerId = u32;

/// A stream: which life of a manager's process sends it, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Drawn at random when the process starts.
    pub life: u64,
    pub number: u32,
}

/// Numbers of datagrams stay below: nobody sends so many, and sums cannot overflow.
pub const MOST_DATAGRAMS: u64 = 1 << 62;

/// Bytes of one datagram's part of a message: with headers it fits an Ethernet frame (1500 - 20 IPv4 - 8 UDP - 32 [`datagram::HEADER`]),
/// with room for a seal ([`seal::OVERHEAD`]) or a tunnel's header.
pub const PART: usize = 1_360;
