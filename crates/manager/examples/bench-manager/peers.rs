//! What is measured: a broker, and the ways to it, each a process of its own.

use crate::{Failure, machine};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use timebound_manager::Manager;

/// First argument that makes this program the manager.
pub(crate) const SERVE: &str = "serve";

/// A process that ends with its owner, and its file.
struct Process(Child, Option<PathBuf>);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        if let Some(path) = &self.1 {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn program(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn configured(path: PathBuf, before: &[&str], port: u16, configuration: &str) -> Result<Process, Failure> {
    let file = std::env::temp_dir().join(format!("timebound-bench-{}-{port}.conf", std::process::id()));
    std::fs::write(&file, configuration)?;
    let mut command = Command::new(path);
    command
        .args(before)
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: between fork and exec there is one system call, which a child may make there.
    unsafe {
        command.pre_exec(|| {
            // It ends with this process, however that ends.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let process = Process(command.spawn()?, Some(file));
    wait_for(port)?;
    Ok(process)
}

fn wait_for(port: u16) -> Result<(), Failure> {
    let until = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if Instant::now() > until {
            return Err(format!("nobody listens at port {port}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

pub(crate) struct Mosquitto {
    port: u16,
    process: Process,
}

impl Mosquitto {
    pub(crate) fn start() -> Result<Self, Failure> {
        let port = free_port()?;
        let lines = format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 100000\nmax_inflight_messages 1000\n"
        );
        let path = program("mosquitto").ok_or("mosquitto is not installed")?;
        let process = configured(path, &["-c"], port, &lines)?;
        Ok(Self { port, process })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.0.id()
    }
}

/// A way to the broker.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    /// The way to which it is compared.
    pub(crate) beside: Option<&'static str>,
    pub(crate) port: u16,
    process: Option<Process>,
}

impl Way {
    /// Directly, which comes first; HAProxy, where that is installed; a manager: both with one thread, and with two.
    pub(crate) fn all(broker: &Mosquitto) -> Result<Vec<Self>, Failure> {
        let mut ways = vec![Self {
            name: "direct",
            beside: None,
            port: broker.port,
            process: None,
        }];
        match program("haproxy") {
            Some(path) => {
                ways.push(Self::haproxy("HAProxy/1", path.clone(), 1, broker)?);
                ways.push(Self::haproxy("HAProxy/2", path, 2, broker)?);
            }
            None => println!("HAProxy is not installed: it is left out, and nothing is compared with it"),
        }
        ways.push(Self::manager("manager/1", "HAProxy/1", 1, broker)?);
        ways.push(Self::manager("manager/2", "HAProxy/2", 2, broker)?);
        Ok(ways)
    }

    fn haproxy(
        name: &'static str,
        path: PathBuf,
        threads: usize,
        broker: &Mosquitto,
    ) -> Result<Self, Failure> {
        let port = free_port()?;
        let lines = format!(
            "global\n  maxconn {}\n  nbthread {threads}\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
             listen mqtt\n  bind 127.0.0.1:{port} backlog 4096\n  server broker 127.0.0.1:{}\n",
            most_connections(),
            broker.port
        );
        Ok(Self {
            name,
            beside: None,
            port,
            process: Some(configured(path, &["-db", "-f"], port, &lines)?),
        })
    }

    fn manager(
        name: &'static str,
        beside: &'static str,
        threads: usize,
        broker: &Mosquitto,
    ) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([SERVE, &broker.port.to_string(), &threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let process = Process(child, None);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        Ok(Self {
            name,
            beside: Some(beside),
            port: line.trim().parse()?,
            process: Some(process),
        })
    }

    /// Its process; `None` where there is none.
    pub(crate) fn id(&self) -> Option<u32> {
        Some(self.process.as_ref()?.0.id())
    }

    /// Of its process; `None` where there is none.
    pub(crate) fn resident_kib(&self) -> Option<u64> {
        let id = self.id()?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }
}

/// Two files each; HAProxy does not start when it may not open as many as it is told to hold.
pub(crate) fn most_connections() -> u64 {
    (machine::files().saturating_sub(200) / 2).min(20_000)
}

/// Is the manager until its input ends.
pub(crate) fn serve(arguments: &[String]) -> Result<(), Failure> {
    let port: u16 = arguments.first().ok_or("no port")?.parse()?;
    let threads: usize = arguments.get(1).ok_or("no threads")?.parse()?;
    let config = json!({
        "name": "bench",
        "threads": threads,
        "listeners": [{"address": "127.0.0.1", "port": 0, "kind": "tcp"}],
        "broker": {"address": "127.0.0.1", "port": port},
    });
    let manager = Manager::start(&serde_json::from_value(config)?)?;
    println!("{}", manager.addresses()[0].port());
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
