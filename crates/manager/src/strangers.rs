//! Connections that the broker has not accepted yet: how many of one address there may be, and how much memory all of them may hold together.
//!
//! Who is over the one limit does not get in: the first of many that come at once are served, whatever the rest do. Where the other is reached the
//! connection that holds the most is closed: nobody with an ordinary CONNECT is ever that one while others hold long ones. It may have to wait for its
//! turn to give its memory back; so long as that is as much again, nobody else takes more than an ordinary CONNECT needs.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// Bytes that an ordinary CONNECT takes at most: whoever holds no more is not kept out for those that have yet to go.
const ORDINARY: usize = 16 * 1024;

/// All of them.
#[derive(Debug)]
pub(crate) struct Strangers {
    most_bytes: usize,
    most_of_one: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    bytes: usize,
    /// Held by those that were told to go.
    leaving: usize,
    /// Bytes and number of each that holds something and was not told to go.
    by_size: BTreeSet<(usize, u64)>,
    signs: HashMap<u64, Arc<Sign>>,
    of_address: HashMap<IpAddr, usize>,
    refused: u64,
    crowded_out: u64,
    /// Of the last one that was refused or crowded out.
    last: Option<IpAddr>,
}

/// By which a connection is told to go.
#[derive(Debug)]
struct Sign {
    address: IpAddr,
    is_up: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Sign {
    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Strangers {
    pub(crate) fn new(most_bytes: usize, most_of_one: usize) -> Arc<Self> {
        Arc::new(Self {
            most_bytes,
            most_of_one,
            inside: Mutex::default(),
        })
    }

    fn locked(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more; `None`: there are as many of its address as may be.
    pub(crate) fn enter(self: &Arc<Self>, number: u64, address: IpAddr) -> Option<Stranger> {
        let address = address.to_canonical();
        let origin = origin(address);
        let mut inside = self.locked();
        let there = inside.of_address.get(&origin).copied().unwrap_or(0);
        if there >= self.most_of_one {
            inside.refused += 1;
            inside.last = Some(address);
            return None;
        }
        let sign = Arc::new(Sign {
            address,
            is_up: AtomicBool::new(false),
            waker: Mutex::default(),
        });
        inside.of_address.insert(origin, there + 1);
        inside.signs.insert(number, Arc::clone(&sign));
        drop(inside);
        Some(Stranger {
            strangers: Arc::clone(self),
            number,
            sign,
            parts: Cell::default(),
            is_known: Cell::new(false),
        })
    }

    pub(crate) fn stats(&self) -> crate::contract::Strangers {
        let inside = self.locked();
        crate::contract::Strangers {
            now: inside.signs.len() as u64,
            bytes: inside.bytes as u64,
            refused: inside.refused,
            crowded_out: inside.crowded_out,
            last: inside.last,
        }
    }

    /// A connection holds another number of bytes; whoever holds the most goes while all hold too much.
    fn changed(&self, of: &Stranger, before: usize, now: usize) {
        let mut inside = self.locked();
        if !inside.signs.contains_key(&of.number) {
            inside.leaving = inside.leaving - before + now;
            return;
        }
        let mut wakers = Vec::new();
        inside.by_size.remove(&(before, of.number));
        inside.bytes = inside.bytes - before + now;
        if now > 0 {
            inside.by_size.insert((now, of.number));
        }
        while inside.bytes > self.most_bytes {
            let Some(largest) = inside.by_size.last().copied() else {
                break;
            };
            wakers.extend(inside.tell_to_go(largest));
        }
        let is_too_much = inside.bytes + inside.leaving > 2 * self.most_bytes;
        if now > before.max(ORDINARY) && is_too_much {
            wakers.extend(inside.tell_to_go((now, of.number)));
        }
        // Whoever is woken may come back here.
        drop(inside);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn leave(&self, stranger: &Stranger, bytes: usize) {
        let mut inside = self.locked();
        let origin = origin(stranger.sign.address);
        if let Some(count) = inside.of_address.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                inside.of_address.remove(&origin);
            }
        }
        if inside.signs.remove(&stranger.number).is_some() {
            inside.by_size.remove(&(bytes, stranger.number));
            inside.bytes -= bytes;
        } else {
            inside.leaving -= bytes;
        }
        if inside.signs.is_empty() {
            // A crowd leaves nothing behind.
            inside.signs.shrink_to_fit();
            inside.of_address.shrink_to_fit();
        }
    }
}

impl Inside {
    /// Whom to wake for it.
    fn tell_to_go(&mut self, (bytes, number): (usize, u64)) -> Option<Waker> {
        let sign = self.signs.remove(&number)?;
        self.by_size.remove(&(bytes, number));
        self.bytes -= bytes;
        self.leaving += bytes;
        self.crowded_out += 1;
        self.last = Some(sign.address);
        sign.is_up.store(true, Ordering::Release);
        sign.waker().take()
    }
}

/// For whom an address counts: of IPv6 a host has the last 64 bits to itself (RFC 4291, section 2.5.4).
fn origin(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// Bytes that a connection holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Parts {
    /// In its handshake.
    shaking: usize,
    /// In what it has said.
    said: usize,
}

/// One of them, until it is known or gone.
#[derive(Debug)]
pub(crate) struct Stranger {
    strangers: Arc<Strangers>,
    number: u64,
    sign: Arc<Sign>,
    parts: Cell<Parts>,
    is_known: Cell<bool>,
}

impl Stranger {
    /// An error: it is to go, at once.
    fn holds(&self, parts: Parts) -> io::Result<()> {
        if self.is_known.get() {
            return Ok(());
        }
        let before = self.parts.replace(parts);
        let (before, now) = (before.shaking + before.said, parts.shaking + parts.said);
        if before != now {
            self.strangers.changed(self, before, now);
        }
        match self.sign.is_up.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::QuotaExceeded.into()),
            false => Ok(()),
        }
    }

    /// Its handshakes of TLS and WebSocket have come to hold so many bytes.
    ///
    /// # Errors
    /// It is to go, at once.
    pub(crate) fn asks(&self, shaking: usize) -> io::Result<()> {
        let parts = self.parts.get();
        self.holds(Parts { shaking, ..parts })
    }

    /// So many bytes are held of what it has said.
    ///
    /// # Errors
    /// It is to go, at once.
    pub(crate) fn said(&self, said: usize) -> io::Result<()> {
        let parts = self.parts.get();
        self.holds(Parts { said, ..parts })
    }

    /// Bytes that its handshakes hold.
    pub(crate) fn asking(&self) -> usize {
        self.parts.get().shaking
    }

    /// Is it to go? If not, the task is woken when it is.
    pub(crate) fn is_to_go(&self, cx: &Context<'_>) -> bool {
        if self.is_known.get() {
            return false;
        }
        if !self.sign.is_up.load(Ordering::Acquire) {
            let mut waker = self.sign.waker();
            if waker.as_ref().is_none_or(|before| !before.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        self.sign.is_up.load(Ordering::Acquire)
    }

    /// The broker has accepted it.
    pub(crate) fn is_accepted(&self) {
        if !self.is_known.replace(true) {
            let parts = self.parts.get();
            self.strangers.leave(self, parts.shaking + parts.said);
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.is_accepted();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn at(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    fn goes(stranger: &Stranger) -> bool {
        stranger.is_to_go(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn who_holds_the_most_goes_and_nobody_else() {
        let all = Strangers::new(1_000, 10);
        let enter = |number| all.enter(number, at(number as u8)).unwrap();
        let (small, large, larger) = (enter(1), enter(2), enter(3));
        assert!(small.said(100).is_ok() && large.said(400).is_ok());
        assert!(larger.said(400).is_ok() && larger.asks(100).is_ok());
        assert!(![&small, &large, &larger].into_iter().any(goes));
        assert!(small.said(101).is_ok());
        assert!(goes(&larger) && !goes(&large) && !goes(&small));
        assert_eq!((all.stats().bytes, all.stats().last), (501, Some(at(3))));
        drop(larger);
        assert_eq!((all.stats().bytes, all.stats().crowded_out), (501, 1));
        large.is_accepted();
        assert!(large.said(5_000).is_ok());
        assert_eq!((all.stats().bytes, all.stats().now), (101, 1));
        // One that is too large by itself.
        assert!(small.said(1_001).is_err());
        assert!(goes(&small) && !goes(&large));
        drop((small, large));
        let stats = all.stats();
        assert_eq!((stats.now, stats.bytes, stats.crowded_out), (0, 0, 2));
    }

    #[test]
    fn those_that_have_yet_to_go_hold_no_more_than_as_much_again() {
        let all = Strangers::new(1_000 << 10, 100);
        let mut held = Vec::new();
        let (mut most, mut size) = (0, 400);
        for number in 0..50 {
            let one = all.enter(number, at(1)).unwrap();
            // Each is smaller than those before it, which go for it, and none of them has its turn.
            size -= 5;
            let mut total: usize = held.iter().map(|(_, size)| size).sum();
            if one.said(size << 10).is_ok() {
                total += size;
                held.push((one, size));
            }
            most = most.max(total);
        }
        assert!((1_500..=2_000).contains(&most), "{most}");
        let ordinary = all.enter(98, at(2)).unwrap();
        assert!(
            ordinary.said(8 << 10).is_ok() && !goes(&ordinary),
            "an ordinary CONNECT gets in"
        );
        drop(ordinary);
        drop(held);
        assert_eq!(all.stats().bytes, 0);
        assert!(all.enter(99, at(1)).unwrap().said(900 << 10).is_ok());
    }

    #[test]
    fn so_many_of_one_address() {
        let all = Strangers::new(1_000, 2);
        let first = all.enter(1, at(1)).unwrap();
        let mapped = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped();
        let second = all.enter(2, mapped.into()).unwrap();
        assert!(all.enter(3, at(1)).is_none());
        assert_eq!((all.stats().refused, all.stats().last), (1, Some(at(1))));
        let other = all.enter(4, at(2)).unwrap();
        first.is_accepted();
        let third = all.enter(5, at(1)).unwrap();
        drop((first, second, third, other));
        assert!(all.enter(6, at(1)).is_some());
        // Of IPv6 a network counts, which is one host's.
        let of = |text: &str| text.parse::<IpAddr>().unwrap();
        let _held = [all.enter(7, of("2001:db8::1")), all.enter(8, of("2001:db8::2"))];
        assert!(all.enter(9, of("2001:db8::3")).is_none());
        assert!(all.enter(10, of("2001:db8:0:1::1")).is_some());
    }

    #[test]
    fn who_waits_is_woken_to_go() {
        struct Woken(AtomicBool);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let (all, woken) = (Strangers::new(10, 9), Arc::new(Woken(AtomicBool::new(false))));
        let (one, other) = (all.enter(1, at(1)).unwrap(), all.enter(2, at(2)).unwrap());
        assert!(one.said(8).is_ok());
        assert!(!one.is_to_go(&Context::from_waker(&Waker::from(Arc::clone(&woken)))));
        assert!(other.said(3).is_ok());
        assert!(woken.0.load(Ordering::Relaxed) && goes(&one) && !goes(&other));
    }
}
