//! IGMP membership reports and leaves (RFC 1112, RFC 2236, RFC 3376), as a snooping switch reads them (RFC 4541).

use super::{ipv4, long, word};

const PROTOCOL_IGMP: u8 = 2;
const V1_REPORT: u8 = 0x12;
const V2_REPORT: u8 = 0x16;
const V2_LEAVE: u8 = 0x17;
const V3_REPORT: u8 = 0x22;

/// One host's wish about one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// The IPv4 group address.
    pub group: u32,
    /// Join, or leave.
    pub member: bool,
}

/// The wishes in one report, in order.
#[derive(Debug, Clone)]
pub struct Memberships<'a> {
    single: Option<Membership>,
    records: &'a [u8],
    left: u16,
}

/// The memberships that an Ethernet frame (header, no FCS) reports; `None` if it is no report, cut short, or damaged.
#[must_use]
pub fn parse(frame: &[u8]) -> Option<Memberships<'_>> {
    let (header, packet) = ipv4(frame)?;
    let message = packet.get(header..)?;
    if packet[9] != PROTOCOL_IGMP || message.len() < 8 || checksum(message) != 0 {
        return None;
    }
    let single = |member| {
        let group = long(message, 4)?;
        is_group(group).then_some(Memberships {
            single: Some(Membership { group, member }),
            records: &[],
            left: 0,
        })
    };
    match message[0] {
        V1_REPORT | V2_REPORT => single(true),
        V2_LEAVE => single(false),
        V3_REPORT => Some(Memberships {
            single: None,
            records: &message[8..],
            left: word(message, 6)?,
        }),
        _ => None,
    }
}

fn is_group(address: u32) -> bool {
    address >> 28 == 0xe
}

/// Internet checksum (RFC 1071); zero over a message that carries its right checksum.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let sum: u64 = bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0)))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

impl Iterator for Memberships<'_> {
    type Item = Membership;

    fn next(&mut self) -> Option<Membership> {
        if let Some(single) = self.single.take() {
            return Some(single);
        }
        while self.left > 0 {
            self.left -= 1;
            let record = self.records;
            let (sources, auxiliary) = (usize::from(word(record, 2)?), usize::from(*record.get(1)?));
            let group = long(record, 4)?;
            self.records = record.get(8 + sources * 4 + auxiliary * 4..)?;
            if !is_group(group) {
                continue;
            }
            // RFC 3376, section 4.2.12. Sources are not told apart: wanting some of them is wanting the group.
            let member = match record[0] {
                1 | 3 => sources > 0,
                2 | 4 => true,
                5 if sources > 0 => true,
                _ => continue,
            };
            return Some(Membership { group, member });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::ipv4_frame;
    use super::*;
    use proptest::prelude::*;

    fn sealed(mut message: Vec<u8>) -> Vec<u8> {
        message[2..4].fill(0);
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        message
    }

    fn frame(message: Vec<u8>) -> Vec<u8> {
        ipv4_frame(
            [1, 0, 0x5e, 0, 0, 0x16],
            0xe000_0016,
            PROTOCOL_IGMP,
            &sealed(message),
        )
    }

    fn read(frame: &[u8]) -> Option<Vec<(u32, bool)>> {
        parse(frame).map(|memberships| memberships.map(|m| (m.group, m.member)).collect())
    }

    #[test]
    fn version_2_report_and_leave() {
        assert_eq!(
            read(&frame(vec![0x16, 0, 0, 0, 239, 1, 2, 3])),
            Some(vec![(0xef01_0203, true)])
        );
        assert_eq!(
            read(&frame(vec![0x17, 0, 0, 0, 239, 1, 2, 3])),
            Some(vec![(0xef01_0203, false)])
        );
        assert_eq!(
            read(&frame(vec![0x11, 0, 0, 0, 239, 1, 2, 3])),
            None,
            "a query is no report"
        );
        assert_eq!(
            read(&frame(vec![0x16, 0, 0, 0, 10, 1, 2, 3])),
            None,
            "no group address"
        );
    }

    #[test]
    fn a_damaged_report_changes_nothing() {
        let mut damaged = frame(vec![0x16, 0, 0, 0, 239, 1, 2, 3]);
        damaged[14 + 20 + 5] ^= 4;
        assert_eq!(read(&damaged), None);
    }

    proptest! {
        #[test]
        fn version_3_records(records in proptest::collection::vec((1u8..=6, 0u32..0x0fff_ffff, 0usize..4), 0..6)) {
            let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, records.len() as u8];
            let mut expected = Vec::new();
            for &(kind, group, sources) in &records {
                let group = 0xe000_0000 | group;
                message.extend([kind, 0, 0, sources as u8]);
                message.extend(group.to_be_bytes());
                message.extend(vec![7; sources * 4]);
                match (kind, sources) {
                    (1 | 3, 0) => expected.push((group, false)),
                    (6, _) | (5, 0) => {}
                    _ => expected.push((group, true)),
                }
            }
            prop_assert_eq!(read(&frame(message)), Some(expected));
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..80) {
            let _ = read(&bytes);
            let mut whole = frame([vec![0x22, 0, 0, 0], bytes].concat().into_iter().chain([0; 8]).collect());
            let _ = read(&whole);
            whole.truncate(cut);
            let _ = read(&whole);
        }
    }
}
