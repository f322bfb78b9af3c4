//! Frames inside the fabric, in one slab, linked by index: no allocation once it has grown to the load.

use crate::frame::Frame;

pub(crate) const NONE: u32 = u32::MAX;

/// One copy of a frame inside the fabric.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) frame: Frame,
    /// When it enters the node at the end of its link (while in flight).
    pub(crate) time: u64,
    /// Order among equal times (while in flight).
    pub(crate) sequence: u64,
    /// Index of its tree hop in the wiring, [`NONE`] off a tree.
    pub(crate) position: u32,
    next: u32,
    pub(crate) damaged: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Slab {
    entries: Vec<Entry>,
    free: u32,
    used: usize,
}

impl Slab {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            used: 0,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.free = NONE;
        self.used = 0;
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    #[inline]
    pub(crate) fn insert(&mut self, frame: Frame, position: u32, damaged: bool) -> u32 {
        let entry = Entry {
            frame,
            time: 0,
            sequence: 0,
            position,
            next: NONE,
            damaged,
        };
        self.used += 1;
        if self.free == NONE {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        } else {
            let index = self.free;
            let slot = &mut self.entries[index as usize];
            self.free = slot.next;
            *slot = entry;
            index
        }
    }

    #[inline]
    pub(crate) fn copy(&mut self, index: u32) -> u32 {
        let Entry {
            frame,
            position,
            damaged,
            ..
        } = self.entries[index as usize];
        self.insert(frame, position, damaged)
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        self.entries[index as usize].next = self.free;
        self.free = index;
        self.used -= 1;
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }
}

/// A FIFO of slab entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
    };

    #[inline]
    pub(crate) fn head(self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// Appends; true if the list was empty.
    #[inline]
    pub(crate) fn push(&mut self, slab: &mut Slab, index: u32) -> bool {
        slab.entries[index as usize].next = NONE;
        let was_empty = self.head == NONE;
        if was_empty {
            self.head = index;
        } else {
            slab.entries[self.tail as usize].next = index;
        }
        self.tail = index;
        was_empty
    }

    /// Puts one back before all others.
    pub(crate) fn push_front(&mut self, slab: &mut Slab, index: u32) {
        slab.entries[index as usize].next = self.head;
        if self.head == NONE {
            self.tail = index;
        }
        self.head = index;
    }

    #[inline]
    pub(crate) fn pop(&mut self, slab: &Slab) -> Option<u32> {
        let index = self.head()?;
        self.head = slab.entries[index as usize].next;
        Some(index)
    }
}
