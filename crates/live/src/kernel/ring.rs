//! An AF_PACKET receive ring (TPACKET_V2) over all interfaces of a namespace, with kernel arrival stamps.

use super::{check, set_option};
use crate::plane::{Inlet, Received, Stamps};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};

const TPACKET_V2: libc::c_int = 1;
/// linux/if_packet.h
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const TP_STATUS_USER: u32 = 1;
/// Room in front of the frame: tpacket2_hdr, sockaddr_ll and alignment (TPACKET2_HDRLEN is 52, plus 16 for the MAC header).
const HEADROOM: usize = 128;
/// Memory of the ring; 8192 ordinary frames, 0.4 s of 20,000 frames/s.
const RING_BYTES: usize = 16 << 20;
const BLOCK: usize = 64 << 10;

#[repr(C)]
struct RingRequest {
    block_size: u32,
    block_count: u32,
    frame_size: u32,
    frame_count: u32,
}

/// struct tpacket2_hdr, linux/if_packet.h
#[repr(C)]
struct FrameHeader {
    status: AtomicU32,
    length: u32,
    captured: u32,
    mac_offset: u16,
    net_offset: u16,
    seconds: u32,
    nanos: u32,
    vlan: u16,
    vlan_protocol: u16,
    padding: [u8; 4],
}

/// struct sockaddr_ll begins right behind the aligned header: the interface tells the host.
const ADDRESS_OFFSET: usize = 32;

/// A part of all interfaces: those whose index modulo the number of rings is this.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    pub(crate) number: usize,
}

// linux/if_packet.h, linux/filter.h
const PACKET_FANOUT: libc::c_int = 18;
const PACKET_FANOUT_DATA: libc::c_int = 22;
const FANOUT_CBPF: libc::c_int = 6;
const FANOUT_FLAG_IGNORE_OUTGOING: libc::c_int = 0x4000;
const LOAD_INTERFACE: libc::sock_filter = libc::sock_filter {
    code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
    jt: 0,
    jf: 0,
    // SKF_AD_OFF + SKF_AD_IFINDEX
    k: (-0x1000i32 + 8) as u32,
};
const RETURN_IT: libc::sock_filter = libc::sock_filter {
    code: (libc::BPF_RET | libc::BPF_A) as u16,
    jt: 0,
    jf: 0,
    k: 0,
};

/// The ring.
pub(crate) struct Ring {
    socket: OwnedFd,
    memory: *mut u8,
    size: usize,
    slot: usize,
    slots: usize,
    next: usize,
}

// SAFETY: the mapping is owned by the ring alone and may be used from whichever thread holds it.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring over every interface of the calling thread's namespace, for frames of up to `mtu` bytes behind the Ethernet header.
    ///
    /// With a `share` it takes that share of the interfaces; the shares must be opened in order, starting with 0. All frames of one interface come through one ring, so their order is kept.
    pub(crate) fn open(mtu: u32, share: Option<Share>) -> io::Result<Self> {
        // Protocol 0: receives nothing before it is bound, so the ring is complete when the first frame comes.
        // SAFETY: plain system call; the descriptor is owned from here on.
        let socket = unsafe {
            OwnedFd::from_raw_fd(check(libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                0,
            ))?)
        };
        let fd = socket.as_raw_fd();
        set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, TPACKET_V2)?;
        set_option(fd, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        // Frames are then stamped when they enter the near end, not when a (perhaps busy) CPU gets round to them.
        set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        let slot = (mtu as usize + 14 + 4 + HEADROOM)
            .next_power_of_two()
            .clamp(2048, BLOCK);
        let slots = RING_BYTES / slot;
        let request = RingRequest {
            block_size: BLOCK as u32,
            block_count: (RING_BYTES / BLOCK) as u32,
            frame_size: slot as u32,
            frame_count: slots as u32,
        };
        // SAFETY: the kernel reads the request; it lives for the call.
        check(unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_PACKET,
                libc::PACKET_RX_RING,
                (&raw const request).cast(),
                size_of::<RingRequest>() as libc::socklen_t,
            )
        })?;
        // SAFETY: a fresh mapping of the ring's exact size.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                RING_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let ring = Self {
            socket,
            memory: memory.cast(),
            size: RING_BYTES,
            slot,
            slots,
            next: 0,
        };
        ring.bind()?;
        if let Some(share) = share {
            ring.join(share)?;
        }
        Ok(ring)
    }

    /// Joins the group of rings that share the interfaces; the kernel takes the filter's result modulo their number, and counts
    /// them in the order of joining (packet(7), PACKET_FANOUT_CBPF).
    fn join(&self, share: Share) -> io::Result<()> {
        let group = 1 | ((FANOUT_CBPF | FANOUT_FLAG_IGNORE_OUTGOING) << 16);
        let fd = self.socket.as_raw_fd();
        set_option(fd, libc::SOL_PACKET, PACKET_FANOUT, group)?;
        if share.number > 0 {
            return Ok(());
        }
        let program = [LOAD_INTERFACE, RETURN_IT];
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_ptr().cast_mut(),
        };
        // SAFETY: the kernel copies the program, which lives for the call.
        check(unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_PACKET,
                PACKET_FANOUT_DATA,
                (&raw const filter).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    fn bind(&self) -> io::Result<()> {
        // SAFETY: an all-zero sockaddr_ll is a valid one (interface 0: all).
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: the address lives for the call and has the stated length.
        check(unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    fn header(&self) -> *const FrameHeader {
        // SAFETY: `next < slots`, and slots lie back to back since the slot size divides the block size.
        unsafe { self.memory.add(self.next * self.slot).cast() }
    }
}

impl Inlet for Ring {
    const STAMPS: Stamps = Stamps::Kernel;

    fn gather(&mut self) {}

    fn watch(&self, mut add: impl FnMut(libc::c_int)) {
        add(self.socket.as_raw_fd());
    }

    fn is_ready(&self) -> bool {
        // SAFETY: as in `peek`.
        unsafe { (*self.header()).status.load(Ordering::Acquire) & TP_STATUS_USER != 0 }
    }

    fn frame_capacity(&self) -> usize {
        self.slot - HEADROOM
    }

    #[inline]
    fn peek(&self) -> Option<Received<'_>> {
        let header = self.header();
        // SAFETY: the header lies in the mapping; only the status is shared with the kernel until it says USER.
        let status = unsafe { (*header).status.load(Ordering::Acquire) };
        if status & TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: with status USER the slot is ours: header, address and `captured` bytes are initialised within the slot.
        unsafe {
            let start = header.cast::<u8>();
            let address = &*start.add(ADDRESS_OFFSET).cast::<libc::sockaddr_ll>();
            let bytes = std::slice::from_raw_parts(
                start.add((*header).mac_offset.into()),
                (*header).captured as usize,
            );
            Some(Received {
                bytes,
                stamp: u64::from((*header).seconds) * 1_000_000_000 + u64::from((*header).nanos),
                interface: address.sll_ifindex as u32,
                truncated: (*header).captured < (*header).length,
            })
        }
    }

    #[inline]
    fn consume(&mut self) {
        fence(Ordering::Release);
        // SAFETY: as in `peek`.
        unsafe { (*self.header()).status.store(0, Ordering::Release) };
        self.next = if self.next + 1 == self.slots {
            0
        } else {
            self.next + 1
        };
    }

    fn take_lost(&mut self) -> u64 {
        let mut statistics = [0u32; 2];
        let mut length = size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: struct tpacket_stats is two u32; the kernel writes at most `length` bytes.
        let done = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                statistics.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if done == 0 { u64::from(statistics[1]) } else { 0 }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `open`; nothing borrows from it any more.
        unsafe { libc::munmap(self.memory.cast(), self.size) };
    }
}
