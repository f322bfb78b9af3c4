//! What runs in the nodes.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// UDP payload of platform measurements.
pub(crate) const PAYLOAD: usize = 1400;

/// As fast as the kernel takes them, by `sendmmsg`, until killed.
pub(crate) fn flood(to: &str) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect(to).expect("a route");
    let bytes = [0u8; PAYLOAD];
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: an all-zero mmsghdr is valid, and its one part outlives the loop.
    let mut messages: [libc::mmsghdr; 32] = unsafe { std::mem::zeroed() };
    for message in &mut messages {
        message.msg_hdr.msg_iov = &raw mut part;
        message.msg_hdr.msg_iovlen = 1;
    }
    loop {
        // SAFETY: the array and what it points to are alive.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), 32, 0) };
        if sent < 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

fn realtime() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    now.as_nanos() as u64
}

/// One datagram every `gap` ns with the time at which it was sent, until killed.
pub(crate) fn pace(to: &str, gap: u64) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // Senders that start together shall not send together.
    std::thread::sleep(Duration::from_nanos(
        u64::from(std::process::id()) * 7_919_777 % gap,
    ));
    let mut next = std::time::Instant::now();
    let mut payload = [0u8; 200];
    loop {
        payload[..8].copy_from_slice(&realtime().to_le_bytes());
        let _ = socket.send_to(&payload, to);
        next += Duration::from_nanos(gap);
        std::thread::sleep(next.saturating_duration_since(std::time::Instant::now()));
    }
}

/// Has a socket there and reads nothing: the frames reach it, and nobody is woken.
pub(crate) fn hold(at: &str) {
    let _socket = UdpSocket::bind(at).expect("a socket");
    std::thread::sleep(Duration::from_secs(60));
}

/// Prints, for each datagram of [`pace`], the kernel's arrival stamp minus the time of sending, ns; ends 0.5 s after the last.
pub(crate) fn stamp(at: &str) {
    let socket = UdpSocket::bind(at).expect("a socket");
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .expect("a timeout");
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads one int from a live variable.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
    let mut found = Vec::new();
    let mut misses = 0;
    while misses < 4 {
        match receive(&socket) {
            Some((sent, stamp)) => {
                misses = 0;
                found.push(stamp as i64 - sent as i64);
            }
            None => misses += 1,
        }
        // The run ends by killing us: say what there is in time.
        if found.len() % 64 == 63 {
            println!(
                "{}",
                found
                    .drain(..)
                    .map(|ns| ns.to_string())
                    .collect::<Vec<_>>()
                    .join("\n")
            );
        }
    }
}

fn receive(socket: &UdpSocket) -> Option<(u64, u64)> {
    let mut bytes = [0u8; 256];
    let mut control = [0u64; 16];
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: an all-zero msghdr is valid; every pointer below is to a live variable of the stated size.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        if libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) < 8 {
            return None;
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() {
            return None;
        }
        let time = libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned();
        let sent = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        Some((sent, time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64))
    }
}
