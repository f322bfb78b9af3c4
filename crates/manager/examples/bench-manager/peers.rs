//! What is measured: a broker, and the ways to it, each a process of its own.

use crate::Failure;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
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

fn configured(name: &str, before: &[&str], configuration: &str) -> Result<Process, Failure> {
    let path = program(name).ok_or_else(|| format!("{name} is not installed"))?;
    let file = std::env::temp_dir().join(format!("timebound-bench-{}-{name}.conf", std::process::id()));
    std::fs::write(&file, configuration)?;
    let child = Command::new(path)
        .args(before)
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(Process(child, Some(file)))
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
    _process: Process,
}

impl Mosquitto {
    pub(crate) fn start() -> Result<Self, Failure> {
        let port = free_port()?;
        let lines = format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 100000\nmax_inflight_messages 1000\n"
        );
        let process = configured("mosquitto", &["-c"], &lines)?;
        wait_for(port)?;
        Ok(Self {
            port,
            _process: process,
        })
    }
}

/// A way to the broker.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) port: u16,
    process: Option<Process>,
}

impl Way {
    /// Directly, which comes first; HAProxy, where that is installed; a manager.
    pub(crate) fn all(broker: &Mosquitto) -> Result<Vec<Self>, Failure> {
        let mut ways = vec![Self {
            name: "direct",
            port: broker.port,
            process: None,
        }];
        let port = free_port()?;
        let lines = format!(
            "global\n  maxconn {}\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
             listen mqtt\n  bind 127.0.0.1:{port}\n  server broker 127.0.0.1:{}\n",
            most_connections(),
            broker.port
        );
        match configured("haproxy", &["-db", "-f"], &lines) {
            Ok(process) => {
                wait_for(port)?;
                ways.push(Self {
                    name: "HAProxy",
                    port,
                    process: Some(process),
                });
            }
            Err(failure) => println!("left out: {failure}"),
        }
        let mut child = Command::new(std::env::current_exe()?)
            .args([SERVE, &broker.port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        ways.push(Self {
            name: "manager",
            port: line.trim().parse()?,
            process: Some(Process(child, None)),
        });
        Ok(ways)
    }

    /// Of its process; `None` where there is none.
    pub(crate) fn resident_kib(&self) -> Option<u64> {
        let id = self.process.as_ref()?.0.id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }
}

/// Two files each; HAProxy does not start when it may not open as many as it is told to hold.
fn most_connections() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live struct of the type that the call fills.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    (limit.rlim_max.saturating_sub(200) / 2).min(20_000)
}

/// Is the manager until its input ends.
pub(crate) fn serve(arguments: &[String]) -> Result<(), Failure> {
    let port: u16 = arguments.first().ok_or("no port")?.parse()?;
    let config = json!({
        "name": "bench",
        "listeners": [{"address": "127.0.0.1", "port": 0, "kind": "tcp"}],
        "broker": {"address": "127.0.0.1", "port": port},
    });
    let manager = Manager::start(&serde_json::from_value(config)?)?;
    println!("{}", manager.addresses()[0].port());
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
