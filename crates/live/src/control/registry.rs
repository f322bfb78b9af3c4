//! The list of running runs: a folder that only the user can enter, and in it, for each run, `PID-START.json` (what it is),
//! `PID-START.sock` (where it takes orders), and for a network that was brought up without a folder of its own
//! `PID-START.files/`.
//!
//! `PID` and `START` are process id and start time (clock ticks since boot) of the owner. The entry is locked (`flock(2)`) by the owner
//! and its PID 1, so the kernel lets go of it when the last of them is gone. Whoever sweeps removes an entry only if its
//! owner does not live (by both numbers: process ids are used again) *and* nobody holds its lock (whoever sweeps may
//! live in another process namespace and see other processes). Killed owners leave entries; the next command of any kind sweeps.

use crate::cgroups::start_time;
use crate::failure::Failure;
use crate::plan::Plan;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest path of a socket (`sockaddr_un` has 108 bytes with the terminator, unix(7)).
const LONGEST_PATH: usize = 107;
/// How long a sweep waits for what is dying.
const DYING: Duration = Duration::from_secs(2);

/// The entry of this process's run.
#[derive(Debug)]
pub(crate) struct Entry {
    file: PathBuf,
    socket: PathBuf,
    /// Open as long as the run lives, in PID 1 too.
    _lock: File,
}

impl Entry {
    /// Lists this run and opens its socket.
    ///
    /// # Errors
    /// When the folder cannot be written, or its path is too long for a socket.
    pub(crate) fn create(plan: &Plan) -> Result<Option<(Self, UnixListener)>, Failure> {
        let Some(control) = &plan.control else {
            return Ok(None);
        };
        let why = |error: io::Error| {
            Failure::host(
                format!("cannot list the run in {}", control.registry.display()),
                error,
            )
        };
        let pid = std::process::id();
        let start = start_time(pid).unwrap_or(0);
        let path = |end: &str| control.registry.join(format!("{pid}-{start}.{end}"));
        let (file, socket, part) = (path("json"), path("sock"), path("part"));
        if socket.as_os_str().len() > LONGEST_PATH {
            return Err(why(io::Error::other("its path is too long for a socket")));
        }
        let text = serde_json::json!({
            "schema": 1, "run_id": plan.run_id, "scenario": control.scenario, "file": control.file,
            "folder": plan.folder, "pid": pid, "start_ticks": start, "socket": socket,
            "started_unix_s": std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        });
        let mut lock = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&part)
            .map_err(why)?;
        lock.lock().map_err(why)?;
        let entry = Self {
            file,
            socket,
            _lock: lock.try_clone().map_err(why)?,
        };
        lock.write_all(text.to_string().as_bytes()).map_err(why)?;
        let listener = UnixListener::bind(&entry.socket).map_err(why)?;
        listener.set_nonblocking(true).map_err(why)?;
        // Complete before anybody can read it.
        std::fs::rename(&part, &entry.file).map_err(why)?;
        Ok(Some((entry, listener)))
    }

    /// The run is over.
    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_file(&self.file);
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Removes what dead runs left in a registry folder; what is dying is waited for, up to two seconds in all.
pub fn sweep(folder: &Path) {
    let mut waited = Duration::ZERO;
    for (pid, start) in owners(folder) {
        if start_time(pid) == Some(start) {
            continue;
        }
        let stem = format!("{pid}-{start}");
        // The owner is gone, so whoever holds the lock is its PID 1 on its way, or lives where we cannot see it.
        while is_locked(folder, &stem) && waited < DYING {
            std::thread::sleep(Duration::from_millis(10));
            waited += Duration::from_millis(10);
        }
        if !is_locked(folder, &stem) {
            remove(folder, &stem);
        }
    }
}

/// Every owner that something in the folder is named after.
fn owners(folder: &Path) -> BTreeSet<(u32, u64)> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return BTreeSet::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| owner(name.to_str()?)).collect()
}

fn owner(name: &str) -> Option<(u32, u64)> {
    let (stem, end) = name.split_once('.')?;
    let (pid, start) = stem.split_once('-')?;
    ["json", "part", "sock", "files"]
        .contains(&end)
        .then_some((pid.parse().ok()?, start.parse().ok()?))
}

fn is_locked(folder: &Path, stem: &str) -> bool {
    ["json", "part", "files/.lock"].iter().any(|end| {
        let Ok(file) = File::open(folder.join(format!("{stem}.{end}"))) else {
            return false;
        };
        // SAFETY: takes a descriptor that lives, and an integer.
        let taken = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) };
        taken != 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
    })
}

fn remove(folder: &Path, stem: &str) {
    for end in ["json", "part", "sock"] {
        let _ = std::fs::remove_file(folder.join(format!("{stem}.{end}")));
    }
    // Symbolic links in it are removed, not followed.
    let _ = std::fs::remove_dir_all(folder.join(format!("{stem}.files")));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("timebound-registry-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn only_names_of_ours_are_owners() {
        assert_eq!(owner("17-4711.json"), Some((17, 4711)));
        assert_eq!(owner("17-4711.files"), Some((17, 4711)));
        for name in [
            "17-4711",
            "17.json",
            "a-b.json",
            "17-4711.txt",
            "-.json",
            "17-4711.json.bak",
        ] {
            assert_eq!(owner(name), None, "{name}");
        }
    }

    #[test]
    fn the_dead_are_swept_and_nobody_else() {
        let folder = folder("sweep");
        let own = std::process::id();
        let start = start_time(own).unwrap();
        let living = format!("{own}-{start}");
        // The same process id at another time: a name alone says nothing.
        let dead = format!("{own}-{}", start - 1);
        let elsewhere = format!("{}-17", u32::MAX);
        for stem in [&living, &dead, &elsewhere] {
            std::fs::write(folder.join(format!("{stem}.json")), "{}").unwrap();
            std::fs::write(folder.join(format!("{stem}.sock")), "").unwrap();
        }
        std::fs::create_dir_all(folder.join(format!("{dead}.files/logs"))).unwrap();
        std::fs::write(folder.join("notes.txt"), "").unwrap();
        let held = File::open(folder.join(format!("{elsewhere}.json"))).unwrap();
        held.lock().unwrap();
        sweep(&folder);
        let exists = |stem: &str, end: &str| folder.join(format!("{stem}.{end}")).exists();
        assert!(exists(&living, "json") && exists(&living, "sock"));
        assert!(!exists(&dead, "json") && !exists(&dead, "sock") && !exists(&dead, "files"));
        assert!(
            exists(&elsewhere, "json") && exists(&elsewhere, "sock"),
            "its lock is held"
        );
        assert!(folder.join("notes.txt").exists());
        drop(held);
        sweep(&folder);
        assert!(!exists(&elsewhere, "json"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
