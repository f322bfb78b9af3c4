//! Just enough of Ethernet (IEEE 802.3), IPv4 (RFC 791), TCP (RFC 9293) and UDP (RFC 768) to tell frames apart.

const ETHERNET: usize = 14;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_ARP: u16 = 0x0806;
const ICMP: u8 = 1;
const IGMP: u8 = 2;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// The 5-tuple; ports are 0 where the protocol has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) protocol: u8,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
}

impl Key {
    /// Of the other direction.
    pub(crate) fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..self
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TcpSegment {
    pub(crate) sequence: u32,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    /// As it is on the wire, not scaled (RFC 7323, section 2.3): 0 is 0.
    pub(crate) window: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ipv4<'a> {
    pub(crate) key: Key,
    pub(crate) dscp: u8,
    /// Identification, for fragments.
    pub(crate) identification: u16,
    pub(crate) more_fragments: bool,
    /// A fragment without transport header: the ports of `key` are 0.
    pub(crate) later_fragment: bool,
    pub(crate) tcp: Option<TcpSegment>,
    /// Behind the transport header (ICMP and unknown protocols: behind the IP header).
    pub(crate) payload: &'a [u8],
}

/// What a frame is to the data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    Ipv4(Ipv4<'a>),
    Igmp,
    Arp,
    /// Anything else: IPv6, LLDP, damaged headers. Not carried.
    Foreign,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Takes a frame apart, as captured (from the Ethernet header, without FCS).
pub(crate) fn parse(frame: &[u8]) -> Packet<'_> {
    if frame.len() < ETHERNET {
        return Packet::Foreign;
    }
    match u16_at(frame, 12) {
        TYPE_ARP => Packet::Arp,
        TYPE_IPV4 => parse_ipv4(&frame[ETHERNET..]).unwrap_or(Packet::Foreign),
        _ => Packet::Foreign,
    }
}

fn parse_ipv4(packet: &[u8]) -> Option<Packet<'_>> {
    let header = usize::from(*packet.first()? & 15) * 4;
    if packet[0] >> 4 != 4 || header < 20 || packet.len() < header {
        return None;
    }
    let total = usize::from(u16_at(packet, 2));
    if total < header || total > packet.len() {
        return None;
    }
    let protocol = packet[9];
    if protocol == IGMP {
        return Some(Packet::Igmp);
    }
    let fragment = u16_at(packet, 6);
    let later_fragment = fragment & 0x1fff != 0;
    let behind = &packet[header..total];
    let mut found = Ipv4 {
        key: Key {
            source: u32_at(packet, 12),
            destination: u32_at(packet, 16),
            protocol,
            source_port: 0,
            destination_port: 0,
        },
        dscp: packet[1] >> 2,
        identification: u16_at(packet, 4),
        more_fragments: fragment & 0x2000 != 0,
        later_fragment,
        tcp: None,
        payload: behind,
    };
    if later_fragment || protocol == ICMP {
        return Some(Packet::Ipv4(found));
    }
    let length = match protocol {
        UDP => 8,
        TCP if behind.len() >= 20 => usize::from(behind[12] >> 4) * 4,
        TCP => return None,
        _ => return Some(Packet::Ipv4(found)),
    };
    if length < 8 || behind.len() < length {
        return None;
    }
    found.key.source_port = u16_at(behind, 0);
    found.key.destination_port = u16_at(behind, 2);
    found.payload = &behind[length..];
    if protocol == TCP {
        found.tcp = Some(TcpSegment {
            sequence: u32_at(behind, 4),
            syn: behind[13] & 2 != 0,
            fin: behind[13] & 1 != 0,
            rst: behind[13] & 4 != 0,
            window: u16_at(behind, 14),
        });
    }
    Some(Packet::Ipv4(found))
}

/// Writes a code point into an IPv4 frame and mends the header's checksum (RFC 1624, equation 3).
pub(crate) fn rewrite_dscp(frame: &mut [u8], dscp: u8) {
    let old = u16_at(frame, ETHERNET);
    let new = (old & 0xff03) | (u16::from(dscp) << 2);
    let checksum = u16_at(frame, ETHERNET + 10);
    let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    frame[ETHERNET..ETHERNET + 2].copy_from_slice(&new.to_be_bytes());
    frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Ones' complement sum over an IPv4 header; 0xffff when its checksum is right.
    fn header_sum(header: &[u8]) -> u16 {
        let mut sum: u32 = header.chunks(2).map(|pair| u32::from(u16_at(pair, 0))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// A UDP frame without UDP checksum, 10.0.0.1:1000 -> 10.0.0.2:2000.
    pub(crate) fn udp_frame(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0u8; ETHERNET];
        frame[12] = 8;
        let total = (28 + payload.len()) as u16;
        let mut ip = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        let sum = !header_sum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(ip);
        frame.extend(1000u16.to_be_bytes());
        frame.extend(2000u16.to_be_bytes());
        frame.extend((8 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn a_udp_frame_is_taken_apart() {
        let mut frame = udp_frame(b"hello");
        frame.extend([0; 9]); // Ethernet padding is no payload
        let Packet::Ipv4(packet) = parse(&frame) else {
            panic!("no IPv4")
        };
        assert_eq!(
            (packet.key.source_port, packet.key.destination_port),
            (1000, 2000)
        );
        assert_eq!(packet.payload, b"hello");
        assert!(packet.tcp.is_none() && !packet.later_fragment);
    }

    #[test]
    fn rewriting_the_code_point_keeps_the_checksum_right() {
        for dscp in 0..64 {
            let mut frame = udp_frame(b"x");
            frame[15] = 0b11; // congestion experienced must survive
            frame[24..26].fill(0);
            let checksum = !header_sum(&frame[14..34]);
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
            rewrite_dscp(&mut frame, dscp);
            assert_eq!(frame[15], dscp << 2 | 3);
            assert_eq!(header_sum(&frame[14..34]), 0xffff);
        }
    }

    #[test]
    fn truncated_frames_are_foreign_and_never_panic() {
        let frame = udp_frame(b"hello");
        for length in 0..frame.len() {
            assert!(!matches!(parse(&frame[..length]), Packet::Ipv4(_)), "{length}");
        }
        for byte in 0..frame.len() {
            for bit in 0..8 {
                let mut damaged = frame.clone();
                damaged[byte] ^= 1 << bit;
                parse(&damaged);
            }
        }
    }
}
