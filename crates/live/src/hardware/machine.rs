//! Virtual machines: QEMU's command line, when the machine is ready, and how it is shut down.
//!
//! QEMU runs as the node's program in the node's (empty) network namespace; its card is a TAP that it gets as an open
//! descriptor, and its monitor (QMP) a socket pair, so that it has no way out but these two. Its guest's clock is the
//! host's: under TCG a busy host makes it slower than its own timers think, and nothing here dilates time.

use super::Inquiry;
use crate::failure::Failure;
use crate::kernel::{check, clock, set_option};
use crate::nodes::{Node, Nodes, within};
use crate::plan::{Acceleration, HardwarePlan, HostPlan, MachineCard, MachinePlan, Plan, ProgramPlan};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) const QEMU: &str = "qemu-system-x86_64";
/// A kernel that works under KVM has found in this time that it has no root file system.
const PROBE: Duration = Duration::from_secs(5);
/// One try to reach the machine's port.
const CONNECT: u64 = 2_000_000_000;

/// How far a machine is. Transitions: see [`Machine::poll`] and [`Machine::shut_down`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its address does not answer yet.
    Booting,
    /// Its address answers, its port not yet.
    Answering,
    Ready,
    /// Told to shut down (ACPI power button).
    Stopping,
}

/// A machine that runs, or will.
pub(crate) struct Machine {
    plan: MachinePlan,
    state: State,
    monitor: Option<UnixStream>,
    inquiry: Option<Inquiry>,
    attempt: Option<(OwnedFd, u64)>,
}

/// A machine's start.
pub(crate) struct Launch {
    /// Everything behind QEMU's name.
    pub(crate) arguments: Vec<String>,
    /// QEMU's end of its monitor; must live until it runs.
    pub(crate) monitor: UnixStream,
    /// The node's TAP.
    pub(crate) tap: RawFd,
}

/// The program that is the node `host`: QEMU, but for the descriptors that it gets at its start.
pub(crate) fn program(host: &HostPlan, plan: &MachinePlan) -> ProgramPlan {
    ProgramPlan {
        name: host.node.clone(),
        node: host.node.clone(),
        argv: vec![QEMU.to_owned()],
        env: std::collections::BTreeMap::new(),
        folder: None,
        log: None,
        essential: true,
        ready: None,
        start_ns: None,
        after_ready: false,
        stop_grace_ns: plan.shutdown_ns,
    }
}

impl Machine {
    pub(crate) fn new(plan: MachinePlan) -> Self {
        Self {
            plan,
            state: State::Booting,
            monitor: None,
            inquiry: None,
            attempt: None,
        }
    }

    /// What it boots from.
    pub(crate) fn files(&self) -> impl Iterator<Item = std::path::PathBuf> {
        let files = [&self.plan.image, &self.plan.kernel, &self.plan.initrd];
        files.into_iter().flatten().cloned()
    }

    /// Longest time until it is ready.
    pub(crate) fn boot_ns(&self) -> u64 {
        self.plan.boot_ns
    }

    /// In words, for one that is not ready in its time.
    pub(crate) fn waits_for(&self) -> &'static str {
        match self.state {
            State::Booting => "does not answer ARP for its address",
            _ => "accepts no connection on its ready-port",
        }
    }

    /// What QEMU is started with this time; `prefix` is the length of the subnet's.
    pub(crate) fn launch(&mut self, node: &Node, prefix: u8) -> io::Result<Launch> {
        let tap = node
            .tap
            .as_ref()
            .ok_or_else(|| io::Error::other("the machine has no TAP"))?;
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let arguments = arguments(&self.plan, node, prefix, tap.as_raw_fd(), theirs.as_raw_fd());
        *self = Self {
            monitor: Some(ours),
            ..Self::new(self.plan.clone())
        };
        Ok(Launch {
            arguments,
            monitor: theirs,
            tap: tap.as_raw_fd(),
        })
    }

    /// Is it ready?
    pub(crate) fn poll(&mut self, nodes: &Nodes, name: &str) -> io::Result<bool> {
        self.drain();
        let Some(position) = nodes.list.iter().position(|node| node.name == name) else {
            return Err(io::Error::other("no such node"));
        };
        match (self.state, self.plan.ready_port) {
            (State::Booting, port) => {
                let inquiry = match &mut self.inquiry {
                    Some(inquiry) => inquiry,
                    None => self.inquiry.insert(super::inquire(&nodes.list, position)?),
                };
                if inquiry.poll().is_some() {
                    self.inquiry = None;
                    self.state = match port {
                        Some(_) => State::Answering,
                        None => State::Ready,
                    };
                }
            }
            (State::Answering, Some(port)) => {
                if self.accepts(nodes, position, port)? {
                    self.state = State::Ready;
                }
            }
            (State::Answering, None) => self.state = State::Ready,
            (State::Ready | State::Stopping, _) => {}
        }
        Ok(self.state == State::Ready)
    }

    /// Tries the machine's port from the first other node, through the emulated network as a client would.
    fn accepts(&mut self, nodes: &Nodes, position: usize, port: u16) -> io::Result<bool> {
        let now = clock::monotonic();
        if let Some((socket, _)) = &self.attempt {
            match connected(socket.as_raw_fd()) {
                Some(true) => {
                    self.attempt = None;
                    return Ok(true);
                }
                Some(false) => self.attempt = None,
                None => {}
            }
        }
        self.attempt.take_if(|(_, since)| now - *since > CONNECT);
        let other = nodes.list.iter().find(|node| !node.external);
        if let (None, Some(other)) = (&self.attempt, other) {
            let address = SocketAddr::from((nodes.list[position].address, port));
            self.attempt = Some((within(other.namespace(), || begin(address))?, now));
        }
        // Without another node of ours nobody can try; its address answers, and that must do.
        Ok(other.is_none())
    }

    /// Presses the power button; false where there is no monitor to do it with.
    pub(crate) fn shut_down(&mut self) -> bool {
        self.state = State::Stopping;
        let words = b"{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"system_powerdown\"}\n";
        self.monitor
            .as_mut()
            .is_some_and(|monitor| monitor.write_all(words).is_ok())
    }

    /// What QEMU says is of no interest, but must not fill its socket.
    fn drain(&mut self) {
        let mut bytes = [0u8; 4096];
        if let Some(monitor) = &mut self.monitor {
            while monitor.read(&mut bytes).is_ok_and(|count| count > 0) {}
        }
    }
}

/// Starts to connect.
fn begin(address: SocketAddr) -> io::Result<OwnedFd> {
    let SocketAddr::V4(v4) = address else {
        return Err(io::Error::other("IPv4 only"));
    };
    // SAFETY: plain system calls; the address lives for the call and has the stated length.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let socket = OwnedFd::from_raw_fd(check(libc::socket(libc::AF_INET, kind, 0))?);
        set_option(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        let mut to: libc::sockaddr_in = std::mem::zeroed();
        to.sin_family = libc::AF_INET as u16;
        to.sin_port = v4.port().to_be();
        to.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
        let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        match check(libc::connect(socket.as_raw_fd(), (&raw const to).cast(), length)) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(socket),
        }
    }
}

/// Connected, refused, or undecided (`None`).
fn connected(fd: RawFd) -> Option<bool> {
    let mut watched = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one live entry; returns at once.
    if unsafe { libc::poll(&raw mut watched, 1, 0) } <= 0 {
        return None;
    }
    Some(watched.revents & (libc::POLLERR | libc::POLLHUP) == 0)
}

/// QEMU's notation ends a value at a comma; two stand for one.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

fn arguments(plan: &MachinePlan, node: &Node, prefix: u8, tap: RawFd, monitor: RawFd) -> Vec<String> {
    let accel = match plan.accel {
        Acceleration::Kvm => "kvm",
        Acceleration::Tcg | Acceleration::Auto => "tcg",
    };
    let mac = node.mac.map(|byte| format!("{byte:02x}")).join(":");
    // Nothing may be left to a card that does not exist: checksums, segmentation and merging are done in the guest.
    let card = match plan.card {
        MachineCard::Virtio => format!(
            "virtio-net-pci,netdev=net,mac={mac},romfile=,csum=off,guest_csum=off,gso=off,guest_tso4=off,guest_tso6=off,\
             guest_ecn=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,mrg_rxbuf=off"
        ),
        MachineCard::E1000 => format!("e1000,netdev=net,mac={mac},romfile="),
    };
    let mut words: Vec<String> = [
        "-name",
        &node.name,
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        "-chardev",
        "stdio,id=console,signal=off",
        "-serial",
        "chardev:console",
        "-machine",
        &format!("pc,accel={accel}"),
        "-m",
        &format!("{}M", plan.memory_bytes >> 20),
        "-smp",
        &plan.cpus.to_string(),
        "-netdev",
        &format!("tap,id=net,fd={tap}"),
        "-device",
        &card,
        "-chardev",
        &format!("socket,id=monitor,fd={monitor}"),
        "-mon",
        "chardev=monitor,mode=control",
    ]
    .map(str::to_owned)
    .into();
    if plan.accel == Acceleration::Kvm {
        words.extend(["-cpu".to_owned(), "host".to_owned()]);
    }
    if let Some(kernel) = &plan.kernel {
        words.extend(["-kernel".to_owned(), kernel.display().to_string()]);
        words.extend(["-append".to_owned(), command_line(plan, node, prefix)]);
    }
    if let Some(initrd) = &plan.initrd {
        words.extend(["-initrd".to_owned(), initrd.display().to_string()]);
    }
    if let Some(image) = &plan.image {
        let format = match image.extension().and_then(|suffix| suffix.to_str()) {
            Some("qcow2") => ",format=qcow2",
            Some("raw" | "img") => ",format=raw",
            _ => "",
        };
        // Changes go to a temporary file that nobody can see: every run starts from the same disk.
        words.extend([
            "-drive".to_owned(),
            format!("file={},if=virtio,snapshot=on{format}", escaped(image)),
        ]);
    }
    words
}

/// Linux's own notation of an address (Documentation/admin-guide/nfs/nfsroot.rst):
/// `ip=client::gateway:netmask:hostname:device:off`; whatever the initrd is must read it where the kernel does not.
fn command_line(plan: &MachinePlan, node: &Node, prefix: u8) -> String {
    let mask = Ipv4Addr::from(u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0));
    let line = format!(
        "console=ttyS0 ip={}:::{mask}:{}:eth0:off {}",
        node.address, node.name, plan.append
    );
    line.trim_end().to_owned()
}

/// Decides `auto` for every machine of the plan: KVM where a kernel boots with it, TCG otherwise. Runs before the sandbox.
///
/// # Errors
/// QEMU is missing, a file cannot be read, or KVM is asked for where there is none.
pub(crate) fn probe(plan: &mut Plan) -> Result<(), Failure> {
    let mut found: Vec<(std::path::PathBuf, bool)> = Vec::new();
    for host in &mut plan.hosts {
        let Some(HardwarePlan::Machine(machine)) = &mut host.hardware else {
            continue;
        };
        for file in [&machine.image, &machine.kernel, &machine.initrd]
            .into_iter()
            .flatten()
        {
            std::fs::File::open(file).map_err(|error| {
                Failure::host(
                    format!("node {:?}: cannot read {}", host.node, file.display()),
                    error,
                )
            })?;
        }
        let kvm = has_kvm();
        machine.accel = match (machine.accel, &machine.kernel) {
            (Acceleration::Kvm, _) if !kvm => {
                return Err(Failure::Host(format!(
                    "node {:?}: no access to /dev/kvm; use accel: tcg, or let this user into group kvm",
                    host.node
                )));
            }
            (Acceleration::Auto, Some(kernel)) if kvm => {
                let known = found.iter().find(|(path, _)| path == kernel).map(|entry| entry.1);
                let boots = known.unwrap_or_else(|| boots_with_kvm(kernel));
                found.push((kernel.clone(), boots));
                if boots {
                    Acceleration::Kvm
                } else {
                    Acceleration::Tcg
                }
            }
            (Acceleration::Auto, _) => Acceleration::Tcg,
            (stated, _) => stated,
        };
    }
    Ok(())
}

fn has_kvm() -> bool {
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_ok()
}

/// Without a root file system a kernel panics, and `panic=-1` makes it reboot, which ends QEMU. One that hangs does not come that far.
fn boots_with_kvm(kernel: &Path) -> bool {
    let mut command = Command::new(QEMU);
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
        .args([
            "-machine",
            "pc,accel=kvm",
            "-cpu",
            "host",
            "-m",
            "256M",
            "-kernel",
        ])
        .arg(kernel)
        .args(["-append", "panic=-1 quiet"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: one system call between fork and exec, with integers.
    unsafe { command.pre_exec(|| check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL)).map(drop)) };
    let Ok(mut child) = command.spawn() else {
        return false;
    };
    let begun = std::time::Instant::now();
    while begun.elapsed() < PROBE {
        if let Ok(Some(status)) = child.try_wait() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> MachinePlan {
        serde_json::from_str(
            r#"{"kernel": "/k/vmlinuz", "initrd": "/k/initrd", "append": "quiet", "memory_bytes": 134217728, "cpus": 1,
                "accel": "tcg", "card": "virtio", "boot_ns": 1, "shutdown_ns": 1}"#,
        )
        .unwrap()
    }

    fn node() -> Node {
        Node::for_tests("vm1", Ipv4Addr::new(10, 0, 0, 7), [2, 0x54, 10, 0, 0, 7])
    }

    #[test]
    fn the_guest_is_told_its_address_and_gets_no_offloads() {
        let words = arguments(&plan(), &node(), 16, 20, 21);
        let after = |key: &str| &words[words.iter().position(|word| word == key).unwrap() + 1];
        assert_eq!(
            after("-append"),
            "console=ttyS0 ip=10.0.0.7:::255.255.0.0:vm1:eth0:off quiet"
        );
        assert_eq!(after("-netdev"), "tap,id=net,fd=20");
        let card = after("-device");
        assert!(
            card.contains("mac=02:54:0a:00:00:07") && card.contains("csum=off") && card.contains("gso=off")
        );
        assert!(after("-machine").ends_with("accel=tcg") && !words.contains(&"-cpu".to_owned()));
    }

    #[test]
    fn a_disk_is_never_changed_and_a_comma_does_not_end_its_name() {
        let plan = MachinePlan {
            kernel: None,
            image: Some("/d/a,readonly=off.qcow2".into()),
            ..plan()
        };
        let words = arguments(&plan, &node(), 16, 20, 21);
        let drive = words.iter().find(|word| word.starts_with("file=")).unwrap();
        assert_eq!(
            drive,
            "file=/d/a,,readonly=off.qcow2,if=virtio,snapshot=on,format=qcow2"
        );
        assert!(!words.contains(&"-append".to_owned()));
    }

    #[test]
    fn shutting_down_presses_the_power_button() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut machine = Machine::new(plan());
        assert!(!machine.shut_down(), "nothing to press");
        machine.monitor = Some(ours);
        assert!(machine.shut_down() && machine.state == State::Stopping);
        drop(machine);
        let mut said = String::new();
        theirs.read_to_string(&mut said).unwrap();
        let words: Vec<serde_json::Value> = said
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(words[0]["execute"], "qmp_capabilities");
        assert_eq!(words[1]["execute"], "system_powerdown");
    }

    #[test]
    fn a_port_is_known_to_accept_or_refuse() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let decide = |address| {
            let socket = begin(address).ok()?;
            (0..200).find_map(|_| {
                std::thread::sleep(Duration::from_millis(5));
                connected(socket.as_raw_fd())
            })
        };
        assert_eq!(decide(address), Some(true));
        drop(listener);
        assert_ne!(decide(address), Some(true));
    }
}
