#![no_main]
//! Bytes as clients may send them to an intermediary.

use libfuzzer_sys::fuzz_target;
use timebound_wire::mqtt::{self, Ack, Connect, Kind, Publish, Subscribe, Version};

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some((head, body))) = mqtt::next(rest) {
        for version in [Version::V3, Version::V5] {
            match head.kind {
                Kind::Connect => drop(Connect::read(body).map(|found| found.properties.user().count())),
                Kind::Publish => drop(Publish::read(&head, body, version).map(|found| found.alias())),
                Kind::Subscribe | Kind::Unsubscribe => {
                    let _ = Subscribe::read(&head, body, version).map(|found| found.filters.iter().count());
                }
                _ => drop(Ack::read(&head, body).map(|found| found.properties.iter().count())),
            }
        }
        let pairs = [("k".to_owned(), "v".to_owned())];
        if let Ok(Some(changed)) = mqtt::with_user_properties(&head, body, 0, &pairs) {
            let (head, body) = mqtt::next(&changed).expect("a packet").expect("all of it");
            let last = Ack::read(&head, body)
                .expect("an acknowledgement")
                .properties
                .user()
                .last();
            assert_eq!(last, Some(("k", "v")));
        }
        rest = &rest[head.whole()..];
    }
});
