//! Dense identifiers: indices into the vectors of a [`crate::Network`].

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The id of position `index`.
            ///
            /// # Panics
            /// If `index` exceeds `u32::MAX`; the compiler refuses such networks first.
            #[must_use]
            pub fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("more than u32::MAX elements"))
            }
            /// The position in the vector that this id indexes.
            #[inline]
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(/// A host, switch or segment.
    NodeId);
id!(/// One direction of a link: the egress queue and transmitter of its owning node.
    PortId);
id!(/// A link: two ports.
    LinkId);
id!(/// A transmission resource that several ports share (half duplex).
    MediumId);
id!(/// A stream of frames with one source and a tree of destinations.
    StreamId);
