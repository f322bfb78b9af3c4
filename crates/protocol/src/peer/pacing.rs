//! When what two streams of a group have to send may leave: no faster than is reserved for the group.
//!
//! A switch drops what goes beyond a reservation, and what it drops has to be sent again, beyond the reservation as well: without pacing that is a storm. So
//! everything that is sent to a group or again to one of its members passes one token bucket (RFC 2697, section 3, without colours) that is counted on the wire
//! ([`wire_bytes`]). A meter of a switch counts 24 bytes less per frame (no preamble, check sequence and gap), and so lets pass whatever the bucket lets pass.
//!
//! | what waits | leaves when the bucket holds |
//! |---|---|
//! | again, for `Limits::patience` or longer | its size; nothing else leaves before it |
//! | for the first time | its size |
//! | again | its size, and behind that all of the burst but one full frame |
//!
//! So a publisher who keeps to what was reserved is never held back by repetitions, and no repetition waits for ever. The two streams of a
//! group take turns. Where no reservation is known nothing waits.

use super::PeerId;
use super::sender::{Sender, To};
use std::num::NonZeroU64;
use timebound_model::units::{Span, Time};

/// Bytes of the longest frame on the wire: 1500 in an Ethernet frame of 18, preamble 8 and gap 12.
pub const FULL_FRAME: u64 = 1_538;

/// What is reserved for a group at the first switch, counted on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// Bit/s.
    pub rate_bps: NonZeroU64,
    /// Bytes, at least [`FULL_FRAME`]: less would never let a full datagram pass.
    pub burst_bytes: u64,
}

/// Bytes on the wire of a UDP datagram (IPv4) with so many bytes: with headers 28 and 14, padded to 60, check sequence 4, preamble 8, gap 12.
#[must_use]
pub const fn wire_bytes(datagram: usize) -> u64 {
    let frame = datagram as u64 + 28 + 14 + 4;
    (if frame < 64 { 64 } else { frame }) + 20
}

/// A token bucket; exact, since it counts billionths of a bit.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    rate_bps: u128,
    most: u128,
    held: u128,
    at: Time,
}

const NS_PER_S: u128 = 1_000_000_000;

const fn tokens(bytes: u64) -> u128 {
    bytes as u128 * 8 * NS_PER_S
}

impl Bucket {
    fn held(&self, now: Time) -> u128 {
        // A clock that goes back brings nothing.
        let since = u128::from(now.since(self.at).0);
        (self.held + since * self.rate_bps).min(self.most)
    }

    fn fill(&mut self, now: Time) {
        self.held = self.held(now);
        self.at = self.at.max(now);
    }

    /// When it holds so many.
    fn when(&self, needed: u128) -> Time {
        let lacks = needed.saturating_sub(self.held);
        let wait = lacks.div_ceil(self.rate_bps);
        self.at.after(Span(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}

/// What may leave now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Of which of the two streams.
    pub which: usize,
    pub to: To,
    /// [`Sender::datagram`] has its bytes.
    pub sequence: u64,
}

#[derive(Debug, Clone, Copy)]
struct Next {
    which: usize,
    /// `None`: to the group.
    again: Option<PeerId>,
    /// What the bucket has to hold.
    needed: u128,
    bytes: u64,
}

/// The pace of a group.
#[derive(Debug, Default)]
pub struct Pacer {
    bucket: Option<Bucket>,
    /// Bytes by which a datagram is longer when it leaves than its stream has it (`seal::OVERHEAD`, or 0).
    longer: usize,
    /// The stream that sent last lets the other one go first.
    last: usize,
}

impl Pacer {
    /// Of a new group. The bucket is full, as a new meter is. `longer`: bytes that are put around each datagram.
    #[must_use]
    pub fn new(
        now: Time,
        reservation: Option<Reservation>,
        longer: usize,
        streams: [&mut Sender; 2],
    ) -> Self {
        let mut pacer = Self {
            longer,
            ..Self::default()
        };
        pacer.reserve(now, reservation, streams);
        if let Some(bucket) = &mut pacer.bucket {
            bucket.held = bucket.most;
        }
        pacer
    }

    /// What is reserved from now on; `None`: nothing is known of it. A bucket keeps what it holds; a new one is empty, since nobody knows what was sent before.
    pub fn reserve(&mut self, now: Time, reservation: Option<Reservation>, streams: [&mut Sender; 2]) {
        let before = self.bucket;
        self.bucket = reservation.map(|reservation| {
            let most = tokens(reservation.burst_bytes);
            Bucket {
                rate_bps: u128::from(reservation.rate_bps.get()),
                most,
                held: before.map_or(0, |bucket| bucket.held(now).min(most)),
                at: before.map_or(now, |bucket| bucket.at.max(now)),
            }
        });
        for sender in streams {
            sender.set_paced(reservation.is_some());
        }
    }

    /// `now`, or the time to which the bucket was filled where that is later: what a clock that goes back makes less urgent stays urgent.
    fn latest(&self, now: Time) -> Time {
        self.bucket.map_or(now, |bucket| bucket.at.max(now))
    }

    /// What is to leave first, whenever that may be, and from when on a repetition goes before it.
    fn next(&self, now: Time, streams: [&Sender; 2]) -> (Option<Next>, Option<(Time, Next)>) {
        let again = streams
            .iter()
            .enumerate()
            .filter_map(|(which, sender)| {
                let (since, peer, sequence) = sender.first_again()?;
                let bytes = wire_bytes(sender.datagram(sequence).len() + self.longer);
                let next = Next {
                    which,
                    again: Some(peer),
                    needed: tokens(bytes),
                    bytes,
                };
                Some((since.after(sender.patience()), next))
            })
            .min_by_key(|(urgent, _)| *urgent);
        if let Some((urgent, next)) = again
            && now >= urgent
        {
            return (Some(next), None);
        }
        let first = [1 - self.last, self.last].into_iter().find_map(|which| {
            let datagram = streams[which].datagram(streams[which].first_unsent()?);
            let bytes = wire_bytes(datagram.len() + self.longer);
            Some(Next {
                which,
                again: None,
                needed: tokens(bytes),
                bytes,
            })
        });
        let patient = again.map(|(_, next)| {
            let most = self.bucket.map_or(0, |bucket| bucket.most);
            let kept = most.saturating_sub(tokens(FULL_FRAME));
            Next {
                needed: (next.needed + kept).min(most),
                ..next
            }
        });
        (first.or(patient), again)
    }

    /// What may leave now, if anything: to be asked until there is nothing more.
    pub fn transmit(&mut self, now: Time, streams: [&mut Sender; 2]) -> Option<Transmit> {
        let [one, other] = streams;
        let now = self.latest(now);
        let next = self.next(now, [&*one, &*other]).0?;
        if let Some(bucket) = &mut self.bucket {
            bucket.fill(now);
            if bucket.held < next.needed {
                return None;
            }
            bucket.held -= tokens(next.bytes);
        }
        let sender = if next.which == 0 { one } else { other };
        let (to, sequence) = match next.again {
            Some(peer) => (To::Peer(peer), sender.leaves_again(now, peer)?),
            None => {
                self.last = next.which;
                (To::Group, sender.leaves(now)?)
            }
        };
        Some(Transmit {
            which: next.which,
            to,
            sequence,
        })
    }

    /// When [`Self::transmit`] is to be asked again.
    #[must_use]
    pub fn next_timeout(&self, now: Time, streams: [&Sender; 2]) -> Option<Time> {
        let (next, again) = self.next(self.latest(now), streams);
        let next = next?;
        let Some(bucket) = &self.bucket else {
            return Some(now);
        };
        let urgent = again.map(|(from, next)| from.max(bucket.when(next.needed)));
        urgent.into_iter().chain([bucket.when(next.needed)]).min()
    }
}
