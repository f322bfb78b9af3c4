//! Frames on their way to capture files, through a ring of bytes: the data plane never waits for a disk.

use timebound_model::PortId;

/// What stands before the bytes of each frame in the ring.
pub(crate) mod tap_header {
    /// Bytes of a header: interface u32, bytes kept u32, bytes of the frame u32, time u64.
    pub(crate) const LENGTH: usize = 20;

    pub(crate) struct Header {
        pub(crate) interface: u32,
        pub(crate) kept: u32,
        pub(crate) length: u32,
        /// CLOCK_MONOTONIC.
        pub(crate) time: u64,
    }

    /// # Panics
    /// If there are fewer than [`LENGTH`] bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Header {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let time = u64::from(word(12)) | u64::from(word(16)) << 32;
        Header {
            interface: word(0),
            kept: word(4),
            length: word(8),
            time,
        }
    }
}

/// The data plane's side of all captures.
pub(crate) struct Tap {
    /// For each port of the network: (interface number over all files, bytes to keep).
    taps: Vec<Vec<(u32, u32)>>,
    ring: Option<rtrb::Producer<u8>>,
    /// Frames that found the ring full.
    pub(crate) lost: u64,
}

impl Tap {
    pub(crate) fn new(taps: Vec<Vec<(u32, u32)>>, ring: Option<rtrb::Producer<u8>>) -> Self {
        Self { taps, ring, lost: 0 }
    }

    pub(crate) fn is_used(&self) -> bool {
        self.ring.is_some()
    }

    /// Copies a frame that `port` finished sending at `ended` (CLOCK_MONOTONIC).
    pub(crate) fn take(&mut self, port: PortId, ended: u64, frame: &[u8]) {
        let Some(ring) = &mut self.ring else { return };
        for (interface, keep) in &self.taps[port.index()] {
            let kept = frame.len().min(*keep as usize);
            let Ok(chunk) = ring.write_chunk_uninit(tap_header::LENGTH + kept) else {
                self.lost += 1;
                continue;
            };
            chunk.fill_from_iter(
                interface
                    .to_le_bytes()
                    .into_iter()
                    .chain((kept as u32).to_le_bytes())
                    .chain((frame.len() as u32).to_le_bytes())
                    .chain(ended.to_le_bytes())
                    .chain(frame[..kept].iter().copied()),
            );
        }
    }
}
