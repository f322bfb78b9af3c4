//! Memory that large buffers took goes back to the system: the allocator keeps what lies between others that are still there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Between two looks.
const EACH: Duration = Duration::from_secs(1);
/// Bytes of buffers for which it is worth while.
const WORTH: usize = 8 << 20;
/// A buffer that is no larger is nothing out of the ordinary.
const ORDINARY: usize = 8 << 10;

/// Bytes of buffers that are gone since the last look. Of the process, as its allocator is.
static GONE: AtomicUsize = AtomicUsize::new(0);

/// A buffer of so many bytes is gone.
pub(crate) fn gone(bytes: usize) {
    if bytes > ORDINARY {
        GONE.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Looks after it, without end.
pub(crate) async fn give_back() {
    loop {
        tokio::time::sleep(EACH).await;
        if GONE.load(Ordering::Relaxed) >= WORTH {
            GONE.store(0, Ordering::Relaxed);
            trim();
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: it takes a number, and may be called at any time on any thread (malloc_trim(3)).
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}
