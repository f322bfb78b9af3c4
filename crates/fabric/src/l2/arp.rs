//! ARP (RFC 826) answered from what is known about the network, so that no request needs to be flooded.

use super::{ETHERTYPE_ARP, word};
use std::net::Ipv4Addr;

/// A hardware address.
pub type Mac = [u8; 6];

const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// Who asks, and for which address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub sender_mac: Mac,
    pub sender: Ipv4Addr,
    pub target: Ipv4Addr,
}

/// The ARP request in an untagged Ethernet frame (header, no FCS); `None` if it holds none for IPv4 over Ethernet.
#[must_use]
pub fn parse(frame: &[u8]) -> Option<Request> {
    let packet = frame.get(14..42)?;
    // Hardware type 1, protocol type IPv4, address lengths 6 and 4.
    let is_request =
        word(frame, 12)? == ETHERTYPE_ARP && packet[..6] == [0, 1, 8, 0, 6, 4] && word(packet, 6)? == REQUEST;
    is_request.then_some(())?;
    Some(Request {
        sender_mac: packet[8..14].try_into().ok()?,
        sender: Ipv4Addr::from(<[u8; 4]>::try_from(&packet[14..18]).ok()?),
        target: Ipv4Addr::from(<[u8; 4]>::try_from(&packet[24..28]).ok()?),
    })
}

/// The request of a host (60 bytes, header, no FCS), sent to everybody, for the hardware address of `target`.
#[must_use]
pub fn ask(sender_mac: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&sender_mac);
    frame[12..14].copy_from_slice(&ETHERTYPE_ARP.to_be_bytes());
    frame[14..20].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
    frame[20..22].copy_from_slice(&REQUEST.to_be_bytes());
    frame[22..28].copy_from_slice(&sender_mac);
    frame[28..32].copy_from_slice(&sender.octets());
    frame[38..42].copy_from_slice(&target.octets());
    frame
}

/// The reply frame (60 bytes, header, no FCS) to a request, if `owner` knows the address asked for.
///
/// A host that asks for its own address (announcement, or a probe for duplicates, RFC 5227) gets no answer.
#[must_use]
pub fn answer(frame: &[u8], owner: impl Fn(Ipv4Addr) -> Option<Mac>) -> Option<[u8; 60]> {
    let request = parse(frame)?;
    let mac = owner(request.target).filter(|mac| *mac != request.sender_mac)?;
    let mut reply = [0; 60];
    reply[..6].copy_from_slice(&request.sender_mac);
    reply[6..12].copy_from_slice(&mac);
    reply[12..14].copy_from_slice(&ETHERTYPE_ARP.to_be_bytes());
    reply[14..20].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
    reply[20..22].copy_from_slice(&REPLY.to_be_bytes());
    reply[22..28].copy_from_slice(&mac);
    reply[28..32].copy_from_slice(&request.target.octets());
    reply[32..38].copy_from_slice(&request.sender_mac);
    reply[38..42].copy_from_slice(&request.sender.octets());
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(mac: Mac, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
        let mut frame = [
            &[0xff; 6][..],
            &mac,
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
            &mac,
            &sender,
            &[0; 6],
            &target,
        ]
        .concat();
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn a_host_is_not_answered_about_itself() {
        let mac = [2, 0, 0, 0, 0, 1];
        assert!(answer(&request(mac, [0; 4], [10, 0, 0, 1]), |_| Some(mac)).is_none());
    }

    proptest! {
        #[test]
        fn the_reply_names_the_owner(mac: Mac, owner: Mac, sender: [u8; 4], target: [u8; 4]) {
            prop_assume!(mac != owner);
            let frame = request(mac, sender, target);
            let reply = answer(&frame, |asked| (asked == Ipv4Addr::from(target)).then_some(owner)).unwrap();
            prop_assert_eq!(&reply[..12], &[mac, owner].concat()[..]);
            prop_assert_eq!(&reply[20..22], &[0, 2]);
            prop_assert_eq!(&reply[22..32], &[&owner[..], &target].concat()[..]);
            prop_assert_eq!(&reply[32..42], &[&mac[..], &sender].concat()[..]);
            prop_assert_eq!(parse(&reply), None, "a reply is not answered");
            prop_assert_eq!(answer(&frame, |_| None), None);
        }

        #[test]
        fn what_is_asked_is_read_again(mac: Mac, sender: [u8; 4], target: [u8; 4]) {
            let (sender, target) = (Ipv4Addr::from(sender), Ipv4Addr::from(target));
            let frame = ask(mac, sender, target);
            prop_assert_eq!(&frame[..], &request(mac, sender.octets(), target.octets())[..]);
            prop_assert_eq!(parse(&frame), Some(Request { sender_mac: mac, sender, target }));
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..70), cut in 0usize..60) {
            let _ = answer(&bytes, |_| Some([1; 6]));
            let _ = answer(&request([2; 6], [1; 4], [2; 4])[..cut], |_| Some([1; 6]));
        }
    }
}
