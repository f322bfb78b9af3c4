//! A node's own host name, files and processes: a UTS, a mount and a process namespace, made when its first program starts.
//!
//! Bring-up does not pay for them: of hundreds of nodes most run nothing but the built-in endpoints, which need none. What
//! lies in a room is a bind mount from a tmpfs that only the room knows (mount_namespaces(7), user_namespaces(7): allowed
//! without root), so nothing is written to the host and nothing outlives the last process of the node.

use super::cell;
use super::view::{self, Shown, View};
use crate::kernel::{check, mounts};
use crate::plan::FilePlan;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

/// A folder with more entries is not shown with an additional file in it: each entry becomes a mount.
const MOST_ENTRIES: usize = 4096;
/// In the run folder; a room's tmpfs is mounted there while it is furnished.
pub(super) const STAGE: &str = ".room";

/// The namespaces of one node beside its network.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) uts: OwnedFd,
    pub(super) mount: OwnedFd,
    processes: OwnedFd,
    /// Its first process, which ends with the run.
    pub(super) first: i32,
}

/// What to put into a room.
#[derive(Debug, Clone)]
pub(super) struct Furniture<'a> {
    pub(super) hostname: &'a str,
    /// The node's network namespace, whose interfaces `/sys/class/net` is to show.
    pub(super) network: BorrowedFd<'a>,
    /// Names of all nodes of the run; shown read-only as `/etc/hosts`.
    pub(super) hosts: &'a Path,
    pub(super) files: &'a [FilePlan],
    /// Folder of the run.
    pub(super) folder: &'a Path,
    pub(super) shown: &'a Shown,
    /// The node is a virtual machine.
    pub(super) machine: bool,
}

/// Bytes and mode of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Content {
    bytes: Vec<u8>,
    mode: u32,
}

impl Room {
    /// Makes the namespaces in a thread that ends with the call.
    ///
    /// # Errors
    /// What the kernel refuses, or a file that cannot be put where it is wanted.
    pub(super) fn furnish(furniture: &Furniture<'_>) -> io::Result<Self> {
        let stage = furniture.folder.join(STAGE);
        std::fs::create_dir_all(&stage)?;
        let room = apart(|| furniture.build(&stage));
        // The next room makes it again.
        let _ = std::fs::remove_dir(&stage);
        room
    }

    /// Runs `work`, which starts a process, so that the process is one of the node's.
    ///
    /// # Errors
    /// Of `setns`, or what `work` returns.
    pub(super) fn launch<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        apart(|| {
            // SAFETY: takes two integers. This thread alone has its children there, and starts no threads (setns(2), CLONE_NEWPID).
            check(unsafe { libc::setns(self.processes.as_raw_fd(), libc::CLONE_NEWPID) })?;
            work()
        })
    }
}

/// Runs `work` in a thread that ends with the call.
fn apart<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(work);
        (thread.join()).unwrap_or_else(|_| Err(io::Error::other("a helper thread panicked")))
    })
}

impl Furniture<'_> {
    fn build(&self, stage: &Path) -> io::Result<Room> {
        // Unsharing the mount namespace also takes this thread's root and working folder from the process's (unshare(2)).
        // SAFETY: takes an integer.
        check(unsafe { libc::unshare(libc::CLONE_NEWUTS | libc::CLONE_NEWNS | libc::CLONE_NEWPID) })?;
        mounts::make_private()?;
        // Read while the host's files are where they are.
        let contents = self.contents()?;
        self.show_devices()?;
        let name = self.hostname.as_bytes();
        // SAFETY: the name is live for the call and is given with its length.
        check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })?;
        let view = View::close(self.shown, self.folder, self.machine)?;
        view::mount_stage(stage)?;
        // By its descriptor: what is put into place may cover its path.
        let held = File::open(stage)?;
        let stage = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        view.arrange(&stage)?;
        self.place(&stage, &contents)?;
        // What is bound stays; the folder that it came from goes.
        let name = terminated(&stage)?;
        // SAFETY: a terminated string.
        check(unsafe { libc::umount2(name.as_ptr(), libc::MNT_DETACH) })?;
        let open = |kind: &str| File::open(format!("/proc/thread-self/ns/{kind}")).map(OwnedFd::from);
        let (uts, mount) = (open("uts")?, open("mnt")?);
        let (first, processes) = cell::start()?;
        Ok(Room {
            uts,
            mount,
            processes,
            first,
        })
    }

    /// A sysfs shows the network devices of the namespace in which it was mounted (as `ip netns exec` has it).
    fn show_devices(&self) -> io::Result<()> {
        // SAFETY: takes two integers; this thread ends with the call.
        check(unsafe { libc::setns(self.network.as_raw_fd(), libc::CLONE_NEWNET) })?;
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        match mount(Path::new("sysfs"), Path::new("/sys"), Some(c"sysfs"), flags, None) {
            // A user namespace may not uncover what something of the host covers in /sys (mount_namespaces(7)): it stays as it is.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            other => other,
        }
    }

    /// Everything that the node sees otherwise than the host.
    fn contents(&self) -> io::Result<BTreeMap<PathBuf, Content>> {
        let plain = |text: String| Content {
            bytes: text.into_bytes(),
            mode: 0o644,
        };
        let mut all = BTreeMap::from([
            (
                PathBuf::from("/etc/hostname"),
                plain(format!("{}\n", self.hostname)),
            ),
            (
                PathBuf::from("/etc/resolv.conf"),
                plain(
                    "# No name server in this network: the names of its nodes are in /etc/hosts.\n"
                        .to_owned(),
                ),
            ),
        ]);
        for file in self.files {
            let bytes = match (&file.content, &file.source) {
                (Some(text), _) => text.clone().into_bytes(),
                (None, Some(source)) => std::fs::read(source).map_err(|error| about(source, &error))?,
                (None, None) => Vec::new(),
            };
            let mode = file.mode;
            all.insert(file.path.clone(), Content { bytes, mode });
        }
        Ok(all)
    }

    fn place(&self, stage: &Path, contents: &BTreeMap<PathBuf, Content>) -> io::Result<()> {
        let has_own_hosts = contents.contains_key(Path::new("/etc/hosts"));
        // Folders in which something new appears, and what appears there (relative).
        let mut additions: BTreeMap<PathBuf, Vec<(PathBuf, &Content)>> = BTreeMap::new();
        let mut replaced: Vec<(&Path, &Content)> = Vec::new();
        for (path, content) in contents {
            match path.metadata() {
                Ok(meta) if meta.is_dir() => {
                    return Err(about(path, &io::Error::other("is a folder of the host")));
                }
                Ok(_) => replaced.push((path, content)),
                Err(_) => {
                    let (folder, rest) = split(path)?;
                    additions.entry(folder).or_default().push((rest, content));
                }
            }
        }
        for (index, (folder, list)) in additions.iter().enumerate() {
            mirror(folder, &stage.join(format!("folder{index}")), list)
                .map_err(|error| about(folder, &error))?;
        }
        for (index, (path, content)) in replaced.into_iter().enumerate() {
            let file = stage.join(format!("file{index}"));
            content.write(&file)?;
            bind(&file, path).map_err(|error| about(path, &error))?;
        }
        let hosts = Path::new("/etc/hosts");
        if !has_own_hosts && hosts.exists() {
            bind(self.hosts, hosts).map_err(|error| about(hosts, &error))?;
            // Nodes share this file, so none may write it.
            let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY;
            mount(Path::new("none"), hosts, None, flags | locked_flags(hosts)?, None)?;
        }
        Ok(())
    }
}

impl Content {
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(self.mode)
            .open(path)?;
        file.write_all(&self.bytes)?;
        // The mode of an open is subject to the umask.
        file.set_permissions(std::fs::Permissions::from_mode(self.mode))
    }
}

/// The deepest existing folder of a path, and the rest.
fn split(path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let folder = path
        .ancestors()
        .skip(1)
        .find(|folder| folder.is_dir())
        .unwrap_or(Path::new("/"));
    if folder == Path::new("/") {
        let why = "no part of its folder exists on this host: choose a path beneath a folder that does";
        return Err(about(path, &io::Error::other(why)));
    }
    let rest = path.strip_prefix(folder).map_err(io::Error::other)?.to_owned();
    Ok((std::fs::canonicalize(folder)?, rest))
}

/// Shows `folder` with additional files: a folder of the room's own in which everything else is bound.
fn mirror(folder: &Path, stage: &Path, additions: &[(PathBuf, &Content)]) -> io::Result<()> {
    std::fs::create_dir(stage)?;
    let new = |name: &std::ffi::OsStr| {
        additions
            .iter()
            .any(|(path, _)| path.components().next() == Some(Component::Normal(name)))
    };
    for (count, entry) in std::fs::read_dir(folder)?.enumerate() {
        let entry = entry?;
        if count >= MOST_ENTRIES {
            return Err(io::Error::other(format!(
                "has more than {MOST_ENTRIES} entries: choose another folder for the file"
            )));
        }
        let (from, to, kind) = (entry.path(), stage.join(entry.file_name()), entry.file_type()?);
        if new(&entry.file_name()) {
            // A link that leads nowhere; what is wanted takes its place.
            continue;
        }
        if kind.is_symlink() {
            symlink(std::fs::read_link(&from)?, &to)?;
        } else if kind.is_dir() {
            std::fs::create_dir(&to)?;
            bind(&from, &to)?;
        } else {
            File::create(&to)?;
            bind(&from, &to)?;
        }
    }
    for (path, content) in additions {
        let file = stage.join(path);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent)?;
        }
        content.write(&file)?;
    }
    std::fs::set_permissions(stage, folder.metadata()?.permissions())?;
    bind(stage, folder)
}

/// Shows `from` at `to`, with all that is mounted below: parts of a less privileged mount namespace cannot be shown without (locked
/// mounts, mount_namespaces(7)).
pub(super) fn bind(from: &Path, to: &Path) -> io::Result<()> {
    mount(from, to, None, libc::MS_BIND | libc::MS_REC, None)
}

/// Flags of a mount that may not be taken from it without the rights of its owner (mount_namespaces(7)).
fn locked_flags(path: &Path) -> io::Result<libc::c_ulong> {
    let path = terminated(path)?;
    // SAFETY: an all-zero statvfs is valid; path and result live for the call.
    let found = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        check(libc::statvfs(path.as_ptr(), &raw mut found))?;
        found.f_flag
    };
    let pairs = [
        (libc::ST_NOSUID, libc::MS_NOSUID),
        (libc::ST_NODEV, libc::MS_NODEV),
        (libc::ST_NOEXEC, libc::MS_NOEXEC),
        (libc::ST_NOATIME, libc::MS_NOATIME),
        (libc::ST_NODIRATIME, libc::MS_NODIRATIME),
        (libc::ST_RELATIME, libc::MS_RELATIME),
    ];
    Ok(pairs
        .into_iter()
        .filter(|(set, _)| found & set != 0)
        .fold(0, |all, (_, flag)| all | flag))
}

pub(super) fn mount(
    from: &Path,
    to: &Path,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    options: Option<&CStr>,
) -> io::Result<()> {
    let (from, to) = (terminated(from)?, terminated(to)?);
    // SAFETY: all strings are terminated and live for the call.
    check(unsafe {
        libc::mount(
            from.as_ptr(),
            to.as_ptr(),
            kind.map_or(std::ptr::null(), CStr::as_ptr),
            flags,
            options.map_or(std::ptr::null(), |options| options.as_ptr().cast()),
        )
    })
    .map(drop)
}

pub(super) fn terminated(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
