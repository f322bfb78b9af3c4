//! What the kernel allows the process.

/// File descriptors that are not connections.
const OTHERS: u64 = 128;

/// Raises the limit of open files to what the connections need, as far as the process may: how many connections that is.
pub(crate) fn connections(wanted: usize) -> usize {
    let needed = 2 * wanted as u64 + OTHERS;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live struct of the type that the call fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return wanted;
    }
    for most in [needed.max(limit.rlim_max), limit.rlim_max] {
        if limit.rlim_cur >= needed {
            break;
        }
        let raised = libc::rlimit {
            rlim_cur: needed.min(most),
            rlim_max: most,
        };
        // SAFETY: the pointer is to a live struct of the type that the call reads.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            limit = raised;
        }
    }
    let fits = limit.rlim_cur.saturating_sub(OTHERS) / 2;
    wanted.min(usize::try_from(fits).unwrap_or(usize::MAX))
}
