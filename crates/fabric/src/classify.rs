//! The class of a frame by its 802.1Q priority, its MPLS traffic class or its differentiated services code point, and re-marking.

use crate::l2::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS, ethernet, word};
use timebound_model::Class;

/// The class of an Ethernet frame (header, no FCS): the PCP where it is tagged, else the traffic class of its outer MPLS label (RFC 5462),
/// else the DSCP of its IP packet, else `None` (neither: ARP, for example).
#[must_use]
pub fn class_of(frame: &[u8]) -> Option<Class> {
    let link = ethernet(frame)?;
    match link.pcp {
        Some(pcp) => Some(Class(pcp)),
        None if ETHERTYPE_MPLS.contains(&link.ethertype) => {
            frame.get(link.payload + 2).map(|bits| Class(bits >> 1 & 7))
        }
        None => dscp_of(frame).map(Class::from_dscp),
    }
}

/// The code point of the frame's IPv4 or IPv6 header (RFC 2474).
#[must_use]
pub fn dscp_of(frame: &[u8]) -> Option<u8> {
    let link = ethernet(frame)?;
    let start = word(frame, link.payload)?;
    match (link.ethertype, start >> 12) {
        (ETHERTYPE_IPV4, 4) => Some(((start & 0xff) >> 2) as u8),
        (ETHERTYPE_IPV6, 6) => Some(((start >> 6) & 0x3f) as u8),
        _ => None,
    }
}

/// Marks the frame's IP packet with a code point (its low six bits), keeping the ECN bits and, for IPv4, the header checksum
/// right (RFC 1624, eq. 3). False if the frame holds no IP packet.
pub fn set_dscp(frame: &mut [u8], dscp: u8) -> bool {
    let Some(link) = ethernet(frame) else { return false };
    let Some(old) = word(frame, link.payload) else {
        return false;
    };
    let dscp = u16::from(dscp & 0x3f);
    let ip = link.payload;
    match (link.ethertype, old >> 12) {
        (ETHERTYPE_IPV4, 4) => {
            let Some(checksum) = word(frame, ip + 10) else {
                return false;
            };
            let new = old & !0xfc | dscp << 2;
            let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
            let folded = (sum & 0xffff) + (sum >> 16);
            let checksum = !(((folded & 0xffff) + (folded >> 16)) as u16);
            frame[ip..ip + 2].copy_from_slice(&new.to_be_bytes());
            frame[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
            true
        }
        (ETHERTYPE_IPV6, 6) => {
            let new = old & !(0x3f << 6) | dscp << 6;
            frame[ip..ip + 2].copy_from_slice(&new.to_be_bytes());
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::l2::igmp::checksum;
    use crate::l2::tests::ipv4_frame;
    use proptest::prelude::*;

    #[test]
    fn the_tag_goes_before_the_code_point() {
        let mut frame = ipv4_frame([2; 6], 0x0a00_0001, 17, &[0; 8]);
        assert!(set_dscp(&mut frame, 46));
        assert_eq!(class_of(&frame), Some(Class(5)));
        let tagged = [&frame[..12], &[0x81, 0, 0xe0, 0], &frame[12..]].concat();
        assert_eq!(class_of(&tagged), Some(Class(7)));
        assert_eq!(dscp_of(&tagged), Some(46));
        let label = [0, 0, 5 << 1 | 1, 64];
        let labelled = [&frame[..12], &[0x88, 0x47], &label, &frame[14..]].concat();
        assert_eq!(class_of(&labelled), Some(Class(5)));
        assert_eq!(class_of(&[&[0; 12][..], &[8, 6], &[0; 46]].concat()), None);
    }

    proptest! {
        #[test]
        fn marking_keeps_ecn_and_checksum(destination: u32, first in 0u8..64, second in 0u8..64, ecn in 0u8..4) {
            let mut frame = ipv4_frame([2; 6], destination, 17, &[0; 8]);
            frame[15] |= ecn;
            let header = 14..34;
            frame[24..26].fill(0);
            let sum = checksum(&frame[header.clone()]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            for dscp in [first, second] {
                prop_assert!(set_dscp(&mut frame, dscp));
                prop_assert_eq!(dscp_of(&frame), Some(dscp));
                prop_assert_eq!(frame[15] & 3, ecn);
                prop_assert_eq!(checksum(&frame[header.clone()]), 0);
            }
        }

        #[test]
        fn ipv6_keeps_all_else(bytes in proptest::collection::vec(any::<u8>(), 40), dscp in 0u8..64) {
            let mut frame = [&[0u8; 12][..], &[0x86, 0xdd], &bytes].concat();
            frame[14] = 0x60 | frame[14] & 0x0f;
            let before = frame.clone();
            prop_assert!(set_dscp(&mut frame, dscp));
            prop_assert_eq!(dscp_of(&frame), Some(dscp));
            prop_assert_eq!(frame[14] & 0xf0, 0x60);
            prop_assert_eq!(frame[15] & 0x3f, before[15] & 0x3f);
            prop_assert_eq!(&frame[16..], &before[16..]);
        }

        #[test]
        fn any_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..60), tagged: bool) {
            if tagged && bytes.len() > 14 {
                bytes[12..14].copy_from_slice(&[0x81, 0]);
            }
            let _ = class_of(&bytes);
            set_dscp(&mut bytes, 63);
        }
    }
}
