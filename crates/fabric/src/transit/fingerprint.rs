//! What a switch leaves alone in a frame, as a number.

use crate::l2::{ETHERTYPE_IPV4, ETHERTYPE_MPLS, ethernet, word};
use std::hash::{DefaultHasher, Hasher};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Bytes of the payload that count: a measurement header lies at the start of it.
const PAYLOAD: usize = 64;

/// A hash over what a switch does not change, whether it forwards, marks, tags, labels, or sends to a group's or a member's address.
///
/// Of IPv4 (behind 802.1Q tags and MPLS labels): source, protocol, identification, fragment offset, length; of TCP and UDP the header
/// without checksum; and the start of the payload. Not in it: MAC addresses, tags, labels, DSCP, TTL, destination, checksums. Of
/// anything else: its type and its first bytes. Any bytes have one.
#[must_use]
pub fn fingerprint(frame: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Some(link) = ethernet(frame) else {
        hasher.write(frame);
        return hasher.finish();
    };
    let (ethertype, payload) = behind_labels(frame, link.ethertype, link.payload);
    let rest = frame.get(payload..).unwrap_or(&[]);
    if ethertype != ETHERTYPE_IPV4 || !write_ipv4(rest, &mut hasher) {
        hasher.write_u16(ethertype);
        hasher.write(head(rest));
    }
    hasher.finish()
}

fn head(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(PAYLOAD)]
}

/// Type and place of what lies behind MPLS labels; unchanged where there are none.
fn behind_labels(frame: &[u8], ethertype: u16, mut at: usize) -> (u16, usize) {
    if !ETHERTYPE_MPLS.contains(&ethertype) {
        return (ethertype, at);
    }
    while let Some(label) = frame.get(at..at + 4) {
        at += 4;
        let is_bottom = label[2] & 1 == 1;
        if is_bottom {
            let is_ipv4 = frame.get(at).is_some_and(|first| first >> 4 == 4);
            return (if is_ipv4 { ETHERTYPE_IPV4 } else { ethertype }, at);
        }
    }
    (ethertype, at)
}

/// False (and nothing written) if this is no IPv4 packet.
fn write_ipv4(packet: &[u8], hasher: &mut DefaultHasher) -> bool {
    let header = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
    let total = word(packet, 2).map_or(0, usize::from);
    if packet.first().is_none_or(|first| first >> 4 != 4) || header < 20 || total < header {
        return false;
    }
    let (Some(packet), Some(protocol)) = (packet.get(..total), packet.get(9)) else {
        return false;
    };
    // Length, identification, flags and offset.
    hasher.write(&packet[2..8]);
    hasher.write_u8(*protocol);
    hasher.write(&packet[12..16]);
    let behind = &packet[header..];
    let is_later_fragment = word(packet, 6).is_some_and(|fragment| fragment & 0x1fff != 0);
    let length = match *protocol {
        _ if is_later_fragment => 0,
        UDP if behind.len() >= 8 => 8,
        TCP if behind.len() >= 20 => (usize::from(behind[12] >> 4) * 4).clamp(20, behind.len()),
        _ => 0,
    };
    match length {
        0 => {}
        8 => hasher.write(&behind[..6]),
        // Up to the window, then the urgent pointer and options.
        _ => {
            hasher.write(&behind[..16]);
            hasher.write(&behind[18..length]);
        }
    }
    hasher.write(head(&behind[length..]));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::set_dscp;
    use crate::l2::igmp::checksum;
    use proptest::prelude::*;

    fn frame(protocol: u8, identification: u16, behind: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend((20 + behind.len() as u16).to_be_bytes());
        frame.extend(identification.to_be_bytes());
        frame.extend([0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame.extend(behind);
        frame.resize(frame.len().max(60), 0);
        frame
    }

    /// What a switch may do to a frame on its way to a member of a group.
    fn switched(frame: &[u8], dscp: u8) -> Vec<u8> {
        let mut frame = frame.to_vec();
        frame[..12].copy_from_slice(&[1, 0, 0x5e, 1, 2, 3, 9, 9, 9, 9, 9, 9]);
        set_dscp(&mut frame, dscp);
        frame[22] -= 1;
        frame[30..34].copy_from_slice(&[239, 1, 2, 3]);
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        match frame[23] {
            UDP => frame[40..42].fill(0xab),
            TCP => frame[50..52].fill(0xab),
            _ => {}
        }
        frame
    }

    fn tagged(frame: &[u8], tag: &[u8]) -> Vec<u8> {
        [&frame[..12], tag, &frame[12..]].concat()
    }

    /// The type field gives way to that of MPLS.
    fn labelled(frame: &[u8], labels: &[u8]) -> Vec<u8> {
        [&frame[..12], &[0x88, 0x47], labels, &frame[14..]].concat()
    }

    #[test]
    fn a_segment_that_is_sent_again_is_another_frame() {
        let segment = [
            &[4, 0, 7, 91, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0][..],
            b"hello",
        ]
        .concat();
        assert_ne!(
            fingerprint(&frame(TCP, 8, &segment)),
            fingerprint(&frame(TCP, 9, &segment))
        );
        assert_eq!(
            fingerprint(&frame(TCP, 8, &segment)),
            fingerprint(&switched(&frame(TCP, 8, &segment), 40))
        );
    }

    #[test]
    fn discovery_frames_are_known_by_their_content() {
        let lldp = |id: u8| {
            [
                &[1, 0x80, 0xc2, 0, 0, 0xe, 2, 0, 0, 0, 0, id, 0x88, 0xcc][..],
                &[2, 7, 4, id],
                &[0; 46],
            ]
            .concat()
        };
        assert_ne!(fingerprint(&lldp(1)), fingerprint(&lldp(2)));
    }

    proptest! {
        #[test]
        fn a_switch_changes_nothing_that_counts(
            is_tcp: bool,
            identification: u16,
            ports: [u8; 4],
            payload in proptest::collection::vec(any::<u8>(), 0..200),
            dscp in 0u8..64,
            label in 0u32..1 << 20,
        ) {
            let mut behind = ports.to_vec();
            if is_tcp {
                behind.extend([0, 0, 0, 9, 0, 0, 0, 8, 0x50, 0x18, 1, 0, 0xaa, 0xaa, 0, 0]);
            } else {
                behind.extend((8 + payload.len() as u16).to_be_bytes());
                behind.extend([0xaa, 0xaa]);
            }
            behind.extend(&payload);
            let frame = frame(if is_tcp { TCP } else { UDP }, identification, &behind);
            let print = fingerprint(&frame);
            let sent = switched(&frame, dscp);
            prop_assert_eq!(fingerprint(&sent), print);
            prop_assert_eq!(fingerprint(&tagged(&sent, &[0x81, 0, 0xa0, 5])), print);
            let word = (label << 12 | u32::from(dscp & 7) << 9).to_be_bytes();
            let bottom = (label << 12 | 1 << 8 | 64).to_be_bytes();
            prop_assert_eq!(fingerprint(&labelled(&sent, &bottom)), print);
            prop_assert_eq!(fingerprint(&labelled(&sent, &[word, bottom].concat())), print);
            // Padding of short frames may go or come.
            prop_assert_eq!(fingerprint(&[&sent[..], &[0; 7]].concat()), print);
        }

        #[test]
        fn what_counts_tells_frames_apart(place in 0usize..58, bit in 0u8..8) {
            let mut behind = vec![4, 0, 7, 91, 0, 40, 0, 0];
            behind.extend([7; 32]);
            let before = frame(UDP, 5, &behind);
            let mut after = before.clone();
            after[place] ^= 1 << bit;
            // Types and lengths decide what the rest means; the others are named in the documentation.
            let counts = matches!(place, 18..20 | 26..30 | 34..40) || place >= 42;
            if counts {
                prop_assert_ne!(fingerprint(&before), fingerprint(&after));
            }
        }

        #[test]
        fn any_bytes_have_a_fingerprint(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0usize..4) {
            let mut bytes = bytes;
            if bytes.len() > 14 {
                bytes[12..14].copy_from_slice(&[[8, 0], [0x88, 0x47], [0x81, 0], [0x88, 0xcc]][kind]);
            }
            let _ = fingerprint(&bytes);
        }
    }
}
