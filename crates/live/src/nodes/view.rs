//! What of the host's files a node sees: all of them read-only, but for the run folder; its own `/tmp`, `/run` and `/dev`; no sockets.
//!
//! A scenario may come from a stranger, and its programs may have the host's root: nothing that they can reach by a path may change
//! the host. Without CAP_SYS_ADMIN they cannot take away what lies above it here.

use super::room::{bind, mount, terminated};
use crate::kernel::mounts::{self, NO_DEVICES, NO_EXEC, NO_SUID, READ_ONLY};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Folders that a node has for itself, empty at first: name in the stage, place, mode. In the others' places lies what other
/// programs of the host listen at and leave behind.
const OWN: [(&str, &str, u32); 4] = [
    ("tmp", "/tmp", 0o1777),
    ("var-tmp", "/var/tmp", 0o1777),
    ("run", "/run", 0o755),
    ("var-run", "/var/run", 0o755),
];
/// What a node finds in `/dev` (filesystem hierarchy standard, and TUN/TAP, which needs its network alone).
const DEVICES: [&str; 7] = ["null", "zero", "full", "random", "urandom", "tty", "net/tun"];
/// Of virtual machines.
const KVM: &str = "kvm";
/// Secrets of the host's root that nothing in a node has to read.
const SECRETS: [&str; 4] = ["/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-"];
/// Memory that files in a node's own folders may take together.
const MOST_BYTES: &str = "size=1g,mode=755";

/// What a run shows its nodes of the host beside the rule.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    /// Seen, read-only, where a node's own folder would hide it.
    pub(crate) paths: Vec<PathBuf>,
    /// Folders that may be written to.
    pub(crate) writable: Vec<PathBuf>,
    /// Sockets of the host's programs, which are hidden.
    pub(crate) sockets: Vec<PathBuf>,
}

impl Shown {
    /// Is `path` hidden from nodes by a folder of their own? The run folder never is.
    pub(crate) fn hides(&self, path: &Path, run: &Path) -> bool {
        let Ok(path) = std::fs::canonicalize(path) else {
            return false;
        };
        let is_seen = |folder: &Path| {
            let folder = std::fs::canonicalize(folder);
            folder.is_ok_and(|folder| path.starts_with(&folder) && !is_own(&folder))
        };
        let seen = self.paths.iter().chain(&self.writable).map(PathBuf::as_path);
        OWN.iter().any(|(_, place, _)| path.starts_with(place))
            && !is_own(&path)
            && !seen.chain([run]).any(is_seen)
    }
}

/// Is it a folder that nodes have for themselves?
fn is_own(path: &Path) -> bool {
    OWN.iter().any(|(_, place, _)| path == Path::new(place))
}

/// What goes to a place of its own once everything else is read-only.
pub(super) struct View {
    /// Ordered by place, so that what is beneath comes later.
    places: Vec<(PathBuf, OwnedFd)>,
    devices: Vec<(&'static str, OwnedFd)>,
    run: PathBuf,
    sockets: Vec<PathBuf>,
}

impl View {
    /// Takes hold of what stays, and makes all that this thread's mount namespace shows read-only.
    ///
    /// # Errors
    /// A refusal of the kernel.
    pub(super) fn close(shown: &Shown, run: &Path, machine: bool) -> io::Result<Self> {
        let run = std::fs::canonicalize(run)?;
        let mut places = Vec::new();
        let own: Vec<PathBuf> = OWN
            .iter()
            .filter_map(|(_, place, _)| std::fs::canonicalize(place).ok())
            .collect();
        let is_hidden = |path: &Path| own.iter().any(|own| path.starts_with(own) && path != own);
        for path in shown
            .paths
            .iter()
            .filter_map(|path| std::fs::canonicalize(path).ok())
        {
            // What lies in the run folder is seen there, and may be written.
            if is_hidden(&path) && !path.starts_with(&run) {
                let tree = mounts::copy(&terminated(&path)?)?;
                mounts::change(&tree, READ_ONLY | NO_SUID | NO_DEVICES, 0)?;
                places.push((path, tree));
            }
        }
        for path in shown
            .writable
            .iter()
            .filter_map(|path| std::fs::canonicalize(path).ok())
        {
            let tree = mounts::copy(&terminated(&path)?)?;
            mounts::change(&tree, NO_SUID | NO_DEVICES, 0)?;
            places.push((path, tree));
        }
        let tree = mounts::copy(&terminated(&run)?)?;
        mounts::change(&tree, NO_SUID | NO_DEVICES, 0)?;
        // PID 1 follows no links there; the node's own programs may.
        let _ = mounts::change(&tree, 0, mounts::NO_SYMLINKS);
        places.push((run.clone(), tree));
        places.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut devices = Vec::new();
        for name in DEVICES.into_iter().chain(machine.then_some(KVM)) {
            let path = Path::new("/dev").join(name);
            if path.exists() {
                let tree = mounts::copy(&terminated(&path)?)?;
                mounts::change(&tree, NO_SUID | NO_EXEC, 0)?;
                devices.push((name, tree));
            }
        }
        mounts::change_all(READ_ONLY | NO_SUID | NO_DEVICES).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSYS) => io::Error::other(
                "the host's files cannot be made read-only for it: programs in nodes need Linux 5.12",
            ),
            _ => error,
        })?;
        Ok(Self {
            places,
            devices,
            run,
            sockets: shown.sockets.clone(),
        })
    }

    /// Furnishes the node's own folders in `stage` (a tmpfs of the room's own) and puts everything in its place.
    ///
    /// # Errors
    /// A refusal of the kernel.
    pub(super) fn arrange(&self, stage: &Path) -> io::Result<()> {
        // Where links lead out of what is about to be hidden.
        let resolver = std::fs::canonicalize("/etc/resolv.conf").ok();
        self.make_devices(&stage.join("dev"))?;
        for (name, place, mode) in OWN {
            let meta = std::fs::symlink_metadata(place);
            if meta.is_ok_and(|meta| meta.is_dir()) {
                let folder = make_folder(&stage.join(name), mode)?;
                bind(&folder, Path::new(place))?;
            }
        }
        // Where locks go by custom.
        let _ = make_folder(Path::new("/run/lock"), 0o1777);
        bind(&stage.join("dev"), Path::new("/dev"))?;
        for (path, tree) in &self.places {
            if !path.exists() {
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent)?;
                }
                match is_folder(tree)? {
                    true => std::fs::create_dir(path)?,
                    false => drop(File::create(path)?),
                }
            }
            mounts::put(tree, &terminated(path)?)?;
        }
        if let Some(path) = resolver.filter(|path| !path.exists()) {
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            File::create(path)?;
        }
        self.hide(stage)
    }

    /// A socket is of use to whoever sees it, however read-only the file system.
    fn hide(&self, stage: &Path) -> io::Result<()> {
        let nothing = stage.join("nothing");
        drop(File::create(&nothing)?);
        std::fs::set_permissions(&nothing, Permissions::from_mode(0o0))?;
        let is_socket = |path: &Path| path.metadata().is_ok_and(|meta| meta.file_type().is_socket());
        let sockets = self.sockets.iter().map(PathBuf::as_path);
        let sockets = sockets.filter(|path| is_socket(path) && !path.starts_with(&self.run));
        let secrets = SECRETS.iter().map(Path::new).filter(|path| path.exists());
        for path in sockets.chain(secrets) {
            bind(&nothing, path)?;
        }
        Ok(())
    }

    fn make_devices(&self, folder: &Path) -> io::Result<()> {
        make_folder(folder, 0o755)?;
        make_folder(&folder.join("net"), 0o755)?;
        make_folder(&folder.join("shm"), 0o1777)?;
        let terminals = make_folder(&folder.join("pts"), 0o755)?;
        let options = c"newinstance,ptmxmode=0666,mode=620";
        // A node that cannot have terminals of its own has none.
        let flags = libc::MS_NOSUID | libc::MS_NOEXEC;
        if mount(
            Path::new("devpts"),
            &terminals,
            Some(c"devpts"),
            flags,
            Some(options),
        )
        .is_ok()
        {
            symlink("pts/ptmx", folder.join("ptmx"))?;
        }
        for (name, tree) in &self.devices {
            let place = folder.join(name);
            drop(File::create(&place)?);
            mounts::put(tree, &terminated(&place)?)?;
        }
        for (name, number) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
            symlink(format!("/proc/self/fd{number}"), folder.join(name))?;
        }
        Ok(())
    }
}

/// A tmpfs for all that a node has for itself.
///
/// # Errors
/// As mount(2).
pub(super) fn mount_stage(stage: &Path) -> io::Result<()> {
    let (flags, options) = (
        libc::MS_NOSUID | libc::MS_NODEV,
        terminated(Path::new(MOST_BYTES))?,
    );
    mount(Path::new("tmpfs"), stage, Some(c"tmpfs"), flags, Some(&options))
}

fn make_folder(path: &Path, mode: u32) -> io::Result<PathBuf> {
    std::fs::create_dir(path)?;
    // Beyond the umask.
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(path.to_owned())
}

fn is_folder(tree: &OwnedFd) -> io::Result<bool> {
    Ok(File::from(tree.try_clone()?).metadata()?.is_dir())
}

/// Where programs of the host listen (proc_pid_net(5), `unix`), as seen from the calling thread's network namespace.
pub(crate) fn host_sockets() -> Vec<PathBuf> {
    let text = std::fs::read("/proc/self/net/unix").unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines = text
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]));
    let mut found: Vec<PathBuf> = lines.map(PathBuf::from).collect();
    found.sort();
    found.dedup();
    found
}
