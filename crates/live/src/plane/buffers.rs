//! Frame bytes while the fabric holds copies of them: fixed slots, counted references, no allocation once grown to the load.

/// What is known about a frame from its arrival on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Meta {
    pub(crate) length: u32,
    pub(crate) wire: u32,
    pub(crate) l4_payload: u32,
    pub(crate) stream: u32,
    pub(crate) flow: u32,
    pub(crate) sequence: u32,
    pub(crate) messages: u32,
    pub(crate) flags: u16,
    /// Effective stamp in its lane's time.
    pub(crate) ingress: u64,
    /// Leaves (of the first 64) that have had a copy.
    pub(crate) seen: u64,
    /// What it shares with others that were one frame with it before a switch copied or changed it; 0: nothing.
    pub(crate) origin: u32,
}

/// What is common to all that became of a frame.
struct Origin {
    references: u32,
    seen: u64,
}

struct Slot {
    meta: Meta,
    references: u32,
}

/// Slots gathered in blocks that never move.
pub(crate) struct Buffers {
    capacity: usize,
    blocks: Vec<Box<[u8]>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Number `n` of an origin is at `n - 1`.
    origins: Vec<Origin>,
    free_origins: Vec<u32>,
}

const BLOCK_SLOTS: usize = 1024;

impl Buffers {
    /// Slots for frames of up to `capacity` bytes; `reserve` of them at once.
    pub(crate) fn new(capacity: usize, reserve: usize) -> Self {
        let mut buffers = Self {
            capacity,
            blocks: Vec::with_capacity(256),
            slots: Vec::new(),
            free: Vec::new(),
            origins: Vec::new(),
            free_origins: Vec::new(),
        };
        while buffers.slots.len() < reserve {
            buffers.grow();
        }
        buffers
    }

    #[cold]
    fn grow(&mut self) {
        self.blocks
            .push(vec![0; self.capacity * BLOCK_SLOTS].into_boxed_slice());
        let first = self.slots.len() as u32;
        self.slots.extend((0..BLOCK_SLOTS).map(|_| Slot {
            meta: Meta::default(),
            references: 0,
        }));
        self.free.reserve(self.slots.len());
        self.free.extend((first..first + BLOCK_SLOTS as u32).rev());
    }

    /// Keeps a frame with one reference.
    ///
    /// # Panics
    /// If it is longer than the capacity.
    pub(crate) fn insert(&mut self, bytes: &[u8], meta: Meta) -> u32 {
        if self.free.is_empty() {
            self.grow();
        }
        let handle = self.free.pop().expect("just grown");
        self.slots[handle as usize] = Slot {
            meta: Meta {
                length: bytes.len() as u32,
                ..meta
            },
            references: 1,
        };
        self.bytes_mut(handle).copy_from_slice(bytes);
        self.share(meta.origin);
        handle
    }

    /// What is known of a frame, to be given to its successors; with a reference to its origin, which is to be given back ([`Buffers::forget`]).
    pub(crate) fn identify(&mut self, handle: u32) -> Meta {
        let meta = *self.meta(handle);
        let mut number = meta.origin;
        if number == 0 {
            let origin = Origin {
                references: 1,
                seen: meta.seen,
            };
            number = match self.free_origins.pop() {
                Some(number) => {
                    self.origins[number as usize - 1] = origin;
                    number
                }
                None => {
                    self.origins.push(origin);
                    self.origins.len() as u32
                }
            };
            self.meta_mut(handle).origin = number;
        }
        self.share(number);
        Meta {
            origin: number,
            ..meta
        }
    }

    fn share(&mut self, origin: u32) {
        if let Some(origin) = (origin as usize).checked_sub(1) {
            self.origins[origin].references += 1;
        }
    }

    /// Gives a reference to an origin back.
    pub(crate) fn forget(&mut self, origin: u32) {
        let Some(place) = (origin as usize).checked_sub(1) else {
            return;
        };
        self.origins[place].references -= 1;
        if self.origins[place].references == 0 {
            self.free_origins.push(origin);
        }
    }

    /// Notes that the leaves of these bits have a copy; true if one of them had one already.
    pub(crate) fn see(&mut self, handle: u32, bits: u64) -> bool {
        let origin = (self.meta(handle).origin as usize).checked_sub(1);
        let seen = match origin {
            Some(place) => &mut self.origins[place].seen,
            None => &mut self.meta_mut(handle).seen,
        };
        let before = *seen & bits != 0;
        *seen |= bits;
        before
    }

    /// A second frame like the first, with one reference.
    pub(crate) fn duplicate(&mut self, handle: u32) -> u32 {
        if self.free.is_empty() {
            self.grow();
        }
        let copy = self.free.pop().expect("just grown");
        let meta = *self.meta(handle);
        self.slots[copy as usize] = Slot { meta, references: 1 };
        self.share(meta.origin);
        let (from, range) = self.range(handle);
        let (to, place) = self.range(copy);
        if from == to {
            self.blocks[from].copy_within(range, place.start);
        } else {
            let source = &raw const self.blocks[from][range];
            // SAFETY: two blocks never overlap, and blocks never move.
            self.blocks[to][place].copy_from_slice(unsafe { &*source });
        }
        copy
    }

    fn range(&self, handle: u32) -> (usize, std::ops::Range<usize>) {
        let start = handle as usize % BLOCK_SLOTS * self.capacity;
        (
            handle as usize / BLOCK_SLOTS,
            start..start + self.slots[handle as usize].meta.length as usize,
        )
    }

    /// Bytes of the longest frame that fits.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.capacity
    }

    pub(crate) fn bytes(&self, handle: u32) -> &[u8] {
        let (block, range) = self.range(handle);
        &self.blocks[block][range]
    }

    pub(crate) fn bytes_mut(&mut self, handle: u32) -> &mut [u8] {
        let (block, range) = self.range(handle);
        &mut self.blocks[block][range]
    }

    pub(crate) fn meta(&self, handle: u32) -> &Meta {
        &self.slots[handle as usize].meta
    }

    pub(crate) fn meta_mut(&mut self, handle: u32) -> &mut Meta {
        &mut self.slots[handle as usize].meta
    }

    pub(crate) fn retain(&mut self, handle: u32, extra: u32) {
        self.slots[handle as usize].references += extra;
    }

    pub(crate) fn release(&mut self, handle: u32) {
        let slot = &mut self.slots[handle as usize];
        slot.references -= 1;
        if slot.references == 0 {
            let origin = slot.meta.origin;
            self.free.push(handle);
            self.forget(origin);
        }
    }

    #[cfg(test)]
    fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_returns_when_its_last_reference_goes() {
        let mut buffers = Buffers::new(64, 1);
        let handle = buffers.insert(
            b"abc",
            Meta {
                stream: 7,
                ..Meta::default()
            },
        );
        buffers.retain(handle, 2);
        buffers.release(handle);
        buffers.release(handle);
        assert_eq!(
            (buffers.used(), buffers.bytes(handle), buffers.meta(handle).stream),
            (1, &b"abc"[..], 7)
        );
        buffers.release(handle);
        assert_eq!(buffers.used(), 0);
    }

    #[test]
    fn successors_share_what_leaves_have_had_until_the_last_of_them_is_gone() {
        let mut buffers = Buffers::new(64, 1);
        let first = buffers.insert(b"in", Meta::default());
        assert!(!buffers.see(first, 1));
        let known = buffers.identify(first);
        buffers.release(first);
        let (left, right) = (buffers.insert(b"out", known), buffers.insert(b"out too", known));
        buffers.forget(known.origin);
        assert!(!buffers.see(left, 2) && buffers.see(right, 2) && buffers.see(right, 1));
        let again = buffers.identify(right);
        assert_eq!(again.origin, known.origin);
        buffers.forget(again.origin);
        let copy = buffers.duplicate(left);
        buffers.release(left);
        buffers.release(right);
        assert!(buffers.see(copy, 2) && buffers.free_origins.is_empty());
        buffers.release(copy);
        assert_eq!(buffers.free_origins, [known.origin]);
        let other = buffers.insert(b"other", Meta::default());
        assert!(!buffers.see(other, 3));
        assert!(
            buffers.identify(other).origin == known.origin && buffers.see(other, 1) && !buffers.see(other, 4)
        );
    }

    #[test]
    fn a_duplicate_is_equal_and_apart() {
        let mut buffers = Buffers::new(16, 1);
        for _ in 0..2 * BLOCK_SLOTS {
            let first = buffers.insert(b"same", Meta::default());
            let second = buffers.duplicate(first);
            buffers.bytes_mut(second)[0] = b'S';
            assert_eq!(
                (buffers.bytes(first), buffers.bytes(second)),
                (&b"same"[..], &b"Same"[..])
            );
        }
        assert_eq!(buffers.used(), 4 * BLOCK_SLOTS);
    }

    #[test]
    fn growing_moves_nothing() {
        let mut buffers = Buffers::new(16, 1);
        let first = buffers.insert(&[9; 16], Meta::default());
        let place = buffers.bytes(first).as_ptr();
        for _ in 0..3 * BLOCK_SLOTS {
            buffers.insert(&[1], Meta::default());
        }
        assert_eq!(buffers.bytes(first), [9; 16]);
        assert_eq!(buffers.bytes(first).as_ptr(), place);
    }
}
