//! Frames of TAP devices through io_uring: one multishot read per device into a shared ring of buffers, and batches of writes.
//!
//! Both rings have one issuer and cooperative task work (io_uring_setup(2)): nothing interrupts the thread while it computes;
//! completions are made at its next system call, or when it sees that there is work (`IORING_SQ_TASKRUN`). Deferred task work
//! would not do: it does not end a sleep in poll(2). A device is read until it is empty whenever it becomes readable, so a busy sender costs no call per frame.

use super::clock;
use crate::plane::{Departures, Inlet, Received, Stamps};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Memory of the buffers, as much as a packet ring has.
const BUFFER_BYTES: usize = 16 << 20;
/// Most buffers that a ring of them can have (io_uring_register_buf_ring(3)).
const MOST_BUFFERS: usize = 32_768;
const GROUP: u16 = 0;
/// Writes in one call.
const BATCH: usize = 64;

/// A device: its number among the attachments, and our side of it.
pub(crate) type Device = (u32, Arc<OwnedFd>);

fn ring(entries: u32, completions: u32) -> io::Result<IoUring> {
    let ring = IoUring::builder()
        .dontfork()
        .setup_r_disabled()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_cqsize(completions)
        .build(entries)?;
    Ok(ring)
}

/// Does this kernel have what is used here (Linux 6.7), and may we use it?
///
/// # Errors
/// Why not.
pub(crate) fn check_host() -> io::Result<()> {
    let ring = ring(2, 4)?;
    let mut probe = Probe::new();
    ring.submitter().register_enable_rings()?;
    ring.submitter().register_probe(&mut probe)?;
    if probe.is_supported(opcode::ReadMulti::CODE) && probe.is_supported(opcode::Write::CODE) {
        Ok(())
    } else {
        Err(io::Error::other("io_uring has no multishot reads (Linux 6.7)"))
    }
}

/// A registered ring of equal buffers, given to the kernel and given back by number.
struct BufferRing {
    entries: *mut types::BufRingEntry,
    count: usize,
    bytes: *mut u8,
    size: usize,
    tail: u16,
}

// SAFETY: both mappings are owned by it alone; what the kernel shares of them is used through atomics.
unsafe impl Send for BufferRing {}

fn map(bytes: usize) -> io::Result<*mut u8> {
    // SAFETY: a fresh anonymous mapping.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(memory.cast())
}

impl BufferRing {
    fn new(ring: &IoUring, size: usize) -> io::Result<Self> {
        let count = (BUFFER_BYTES / size).min(MOST_BUFFERS);
        let entries = map(count * size_of::<types::BufRingEntry>())?.cast();
        let mut buffers = Self {
            entries,
            count,
            bytes: map(count * size)?,
            size,
            tail: 0,
        };
        // SAFETY: page-aligned, of the stated number of entries, and unmapped only after the ring is gone.
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(entries as u64, count as u16, GROUP, 0)?;
        }
        for number in 0..count {
            buffers.give(number as u16);
        }
        buffers.publish();
        Ok(buffers)
    }

    /// Lends a buffer to the kernel, from the next [`BufferRing::publish`] on.
    fn give(&mut self, number: u16) {
        let place = usize::from(self.tail) & (self.count - 1);
        // SAFETY: within the mapping; the kernel reads entries only up to the published tail. The tail itself lies in the first
        // entry's unused field, which the setters leave alone.
        unsafe {
            let entry = &mut *self.entries.add(place);
            entry.set_addr(self.bytes.add(usize::from(number) * self.size) as u64);
            entry.set_len(self.size as u32);
            entry.set_bid(number);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the tail's place as the library knows it, aligned to two bytes, alive as long as the mapping.
        unsafe {
            let tail = types::BufRingEntry::tail(self.entries).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }

    fn get(&self, number: u16, length: usize) -> &[u8] {
        // SAFETY: the kernel has written `length <= size` bytes and leaves the buffer to us until it is given back.
        unsafe {
            std::slice::from_raw_parts(
                self.bytes.add(usize::from(number) * self.size),
                length.min(self.size),
            )
        }
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: the mappings made in `new`; the ring that used them is dropped before (order of fields in `Reads`).
        unsafe {
            libc::munmap(self.entries.cast(), self.count * size_of::<types::BufRingEntry>());
            libc::munmap(self.bytes.cast(), self.count * self.size);
        }
    }
}

/// A frame that was read.
#[derive(Clone, Copy)]
struct Read {
    buffer: u16,
    length: u32,
    device: u32,
    stamp: u64,
}

/// What TAP devices send.
pub(crate) struct Reads {
    ring: IoUring,
    buffers: BufferRing,
    devices: Vec<Device>,
    /// Devices whose read ended and must be started again.
    idle: Vec<u32>,
    read: VecDeque<Read>,
}

impl Reads {
    /// For frames of up to `mtu` bytes behind the Ethernet header.
    ///
    /// # Errors
    /// Of io_uring_setup and io_uring_register.
    pub(crate) fn open(devices: Vec<Device>, mtu: u32) -> io::Result<Self> {
        // Four bytes for a tag, and one more, so that a frame that is too long shows.
        let size = (mtu as usize + 14 + 4 + 1).next_power_of_two().max(2048);
        let count = BUFFER_BYTES / size;
        let entries = devices.len().clamp(8, 4096).next_power_of_two() as u32;
        let ring = ring(entries, (2 * count + devices.len()).next_power_of_two() as u32)?;
        let files: Vec<RawFd> = devices.iter().map(|device| device.1.as_raw_fd()).collect();
        if !files.is_empty() {
            ring.submitter().register_files(&files)?;
        }
        let buffers = BufferRing::new(&ring, size)?;
        let mut idle = Vec::with_capacity(devices.len());
        idle.extend(0..devices.len() as u32);
        Ok(Self {
            ring,
            read: VecDeque::with_capacity(buffers.count),
            buffers,
            devices,
            idle,
        })
    }

    /// Starts reads where there are none; true if there is something to submit.
    fn arm(&mut self) -> bool {
        let mut queue = self.ring.submission();
        while let Some(device) = self.idle.last() {
            // io-uring 0.7.15 forgets here that the file is a registered one.
            let entry = opcode::ReadMulti::new(types::Fixed(*device), 0, GROUP)
                .build()
                .flags(squeue::Flags::FIXED_FILE)
                .user_data((*device).into());
            // SAFETY: the entry refers to a registered file and group, no memory of ours.
            if unsafe { queue.push(&entry) }.is_err() {
                break;
            }
            self.idle.pop();
        }
        !queue.is_empty()
    }

    fn reap(&mut self) {
        let stamp = clock::monotonic();
        for completion in self.ring.completion() {
            let device = completion.user_data() as u32;
            let result = completion.result();
            if let (Some(buffer), true) = (cqueue::buffer_select(completion.flags()), result > 0) {
                self.read.push_back(Read {
                    buffer,
                    length: result as u32,
                    device,
                    stamp,
                });
            }
            // Out of buffers is over soon; a device that is gone is not.
            if !cqueue::more(completion.flags()) && (result > 0 || result == -libc::ENOBUFS) {
                self.idle.push(device);
            }
        }
    }
}

impl Inlet for Reads {
    const STAMPS: Stamps = Stamps::Reaped;

    fn start(&mut self) {
        // From here on this thread alone may use the ring.
        let _ = self.ring.submitter().register_enable_rings();
    }

    fn gather(&mut self) {
        self.buffers.publish();
        // With all buffers lent out a read would end at once: wait for them to come back.
        let submits = !self.idle.is_empty() && self.read.len() < self.buffers.count && self.arm();
        // SAFETY: only this thread uses the submission queue.
        let pending = unsafe { self.ring.submission_shared() }.taskrun();
        if submits || pending {
            // SAFETY: no argument is passed; asks for completions (GETEVENTS) without waiting for any.
            let _ = unsafe {
                let length = self.ring.submission_shared().len() as u32;
                self.ring.submitter().enter::<libc::sigset_t>(length, 0, 1, None)
            };
        }
        self.reap();
    }

    #[inline]
    fn peek(&self) -> Option<Received<'_>> {
        let read = self.read.front()?;
        let bytes = self.buffers.get(read.buffer, read.length as usize);
        Some(Received {
            bytes,
            stamp: read.stamp,
            interface: self.devices[read.device as usize].0,
            truncated: bytes.len() == self.buffers.size,
        })
    }

    #[inline]
    fn consume(&mut self) {
        if let Some(read) = self.read.pop_front() {
            self.buffers.give(read.buffer);
        }
    }

    fn is_ready(&self) -> bool {
        // SAFETY: only this thread uses the queues; flags and tail are read.
        !self.read.is_empty()
            || !self.idle.is_empty()
            || unsafe { self.ring.submission_shared().taskrun() || !self.ring.completion_shared().is_empty() }
    }

    fn watch(&self, mut add: impl FnMut(RawFd)) {
        add(self.ring.as_raw_fd());
    }

    /// What finds a device's queue full is counted by the node's kernel, with the drops of its own queueing discipline.
    fn take_lost(&mut self) -> u64 {
        0
    }

    fn frame_capacity(&self) -> usize {
        self.buffers.size
    }
}

/// What is written to TAP devices.
pub(crate) struct Writes {
    ring: IoUring,
    /// Descriptor by attachment number, -1 where there is none.
    files: Vec<RawFd>,
    /// Keeps them open.
    _devices: Vec<Device>,
    filled: usize,
}

impl Writes {
    /// # Errors
    /// Of io_uring_setup.
    pub(crate) fn open(devices: Vec<Device>) -> io::Result<Self> {
        let most = devices.iter().map(|device| device.0).max().unwrap_or(0) as usize;
        let mut files = vec![-1; most + 1];
        for (number, file) in &devices {
            files[*number as usize] = file.as_raw_fd();
        }
        Ok(Self {
            ring: ring(BATCH as u32, 2 * BATCH as u32)?,
            files,
            _devices: devices,
            filled: 0,
        })
    }
}

impl Departures for Writes {
    fn start(&mut self) {
        let _ = self.ring.submitter().register_enable_rings();
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.filled == BATCH
    }

    unsafe fn push(&mut self, interface: u32, frame: &[u8]) {
        let file = self.files.get(interface as usize).copied().unwrap_or(-1);
        let entry = opcode::Write::new(types::Fd(file), frame.as_ptr(), frame.len() as u32).build();
        // SAFETY: the caller keeps the frame until `flush`, which waits for every write.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "more than {BATCH} frames in a batch");
        self.filled += 1;
    }

    fn flush(&mut self) -> u64 {
        let (mut refused, mut left) = (0, std::mem::take(&mut self.filled));
        while left > 0 {
            // A TAP takes a frame without waiting, so everything is complete when the call returns.
            match self.ring.submit_and_wait(left) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The frames must not be touched while the kernel may read them; there is no other way out.
                Err(error) => panic!("io_uring: {error}"),
            }
            for completion in self.ring.completion() {
                refused += u64::from(completion.result() < 0);
                left -= 1;
            }
        }
        refused
    }
}
