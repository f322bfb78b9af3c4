//! What switches read in frames and answer themselves: multicast membership, ARP, where group frames go.
//!
//! Pure functions over bytes that come from outside: they return `None` for whatever they do not understand, and never panic.

pub mod arp;
pub mod igmp;

use crate::frame::Route;

pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;
pub(crate) const ETHERTYPE_ARP: u16 = 0x0806;
/// RFC 3032; what is behind the labels has no type of its own.
pub(crate) const ETHERTYPE_MPLS: [u16; 2] = [0x8847, 0x8848];
const ETHERTYPE_CUSTOMER_TAG: u16 = 0x8100;
const ETHERTYPE_SERVICE_TAG: u16 = 0x88a8;

/// An Ethernet frame (header, no FCS) without its 802.1Q tags.
pub(crate) struct Ethernet {
    pub(crate) ethertype: u16,
    /// Where the payload starts.
    pub(crate) payload: usize,
    /// Priority code point of the outer tag.
    pub(crate) pcp: Option<u8>,
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

pub(crate) fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(word(bytes, at)?) << 16 | u32::from(word(bytes, at + 2)?))
}

/// Skips up to two tags (802.1Q clause 9; 802.1ad).
pub(crate) fn ethernet(frame: &[u8]) -> Option<Ethernet> {
    let mut at = 12;
    let mut pcp = None;
    for _ in 0..3 {
        let ethertype = word(frame, at)?;
        if !matches!(ethertype, ETHERTYPE_CUSTOMER_TAG | ETHERTYPE_SERVICE_TAG) {
            return Some(Ethernet {
                ethertype,
                payload: at + 2,
                pcp,
            });
        }
        pcp = pcp.or(Some(frame.get(at + 2)? >> 5));
        at += 4;
    }
    None
}

/// An IPv4 packet, cut to its total length; header length and packet.
pub(crate) fn ipv4(frame: &[u8]) -> Option<(usize, &[u8])> {
    let link = ethernet(frame)?;
    let packet = frame.get(link.payload..)?;
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let total = usize::from(word(packet, 2)?);
    let is_ipv4 = link.ethertype == ETHERTYPE_IPV4 && packet[0] >> 4 == 4;
    (is_ipv4 && header >= 20 && header <= total).then_some(())?;
    Some((header, packet.get(..total)?))
}

/// Where a frame with a group address goes; `None` for one to a single station.
///
/// IPv4 groups are followed by membership, except 224.0.0.0/24, which is always flooded (RFC 4541, section 2.1.2), and so
/// is every other group address: nobody snoops it here.
#[must_use]
pub fn group_route(frame: &[u8]) -> Option<Route> {
    if frame.first()? & 1 == 0 {
        return None;
    }
    let group = ipv4(frame).and_then(|(_, packet)| long(packet, 16));
    Some(match group {
        Some(group) if group >> 28 == 0xe && group >> 8 != 0x00e0_0000 && frame[..6] != [0xff; 6] => {
            Route::Multicast(group)
        }
        _ => Route::Broadcast,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An IPv4 packet in an Ethernet frame, correct checksum, padded to 60 bytes.
    pub(crate) fn ipv4_frame(to: [u8; 6], destination: u32, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = [&to[..], &[2, 0, 0, 0, 0, 9], &ETHERTYPE_IPV4.to_be_bytes()].concat();
        let mut header = vec![0x45, 0];
        header.extend((20 + payload.len() as u16).to_be_bytes());
        header.extend([0, 0, 0, 0, 1, protocol, 0, 0, 10, 0, 0, 9]);
        header.extend(destination.to_be_bytes());
        let checksum = igmp::checksum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(header);
        frame.extend(payload);
        frame.resize(frame.len().max(60), 0);
        frame
    }

    #[test]
    fn group_addresses_are_routed_by_membership_or_flooded() {
        let to = [1, 0, 0x5e, 1, 2, 3];
        assert_eq!(
            group_route(&ipv4_frame(to, 0xe801_0203, 17, &[0; 8])),
            Some(Route::Multicast(0xe801_0203))
        );
        assert_eq!(
            group_route(&ipv4_frame(to, 0xe000_0001, 17, &[0; 8])),
            Some(Route::Broadcast)
        );
        assert_eq!(
            group_route(&ipv4_frame([0xff; 6], 0xe801_0203, 17, &[0; 8])),
            Some(Route::Broadcast)
        );
        assert_eq!(
            group_route(&ipv4_frame([2, 0, 0, 0, 0, 1], 0xe801_0203, 17, &[0; 8])),
            None
        );
        assert_eq!(group_route(&[0x33, 0x33, 0, 0, 0, 1]), Some(Route::Broadcast));
        assert_eq!(group_route(&[]), None);
    }

    #[test]
    fn tags_are_skipped_and_the_outer_one_counts() {
        let mut frame = vec![0; 12];
        frame.extend([0x88, 0xa8, 0xe0, 1, 0x81, 0, 0x20, 2, 0x08, 0]);
        let link = ethernet(&frame).unwrap();
        assert_eq!(
            (link.ethertype, link.payload, link.pcp),
            (ETHERTYPE_IPV4, 22, Some(7))
        );
    }
}
