//! One ovsdb-server and one ovs-vswitchd for all bridges of a run, in the namespace of the switches: files, daemons, configuration.
//!
//! Everything of theirs lies in `ovs/` of the run folder: database, sockets (which Open vSwitch opens whatever the length of their path),
//! the rules as installed. Their logs lie with the others. The daemons are programs of the run: they end with it, or with PID 1.

use super::rules::Rules;
use super::{Switches, YARD};
use crate::failure::Failure;
use crate::nodes::Nodes;
use crate::plan::{Plan, ProgramPlan, ReadyPlan};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names of the two programs, in the order in which they start.
pub(crate) const DAEMONS: [&str; 2] = ["ovsdb-server", "ovs-vswitchd"];
/// Priority of the switches' thread among SCHED_FIFO threads: behind the data plane, which feeds it.
pub(crate) const PRIORITY: i32 = 40;
/// Of tools, seconds.
const PATIENCE: u32 = 20;
/// How long a daemon may take to listen.
const START_MS: u64 = 10_000;
/// In the run folder.
const FOLDER: &str = "ovs";
/// Where Debian keeps servers, which an ordinary user's path does not have.
const SERVERS: &str = "/usr/local/sbin:/usr/sbin:/sbin";
/// What installs all of it.
pub(crate) const INSTALL: &str = "sudo apt-get install --no-install-recommends openvswitch-switch";
/// Longest wait of a switch before it tries its controller again, ms; left alone it grows to 8 s.
const MOST_BACKOFF_MS: u32 = 1_000;

/// The tools and the folder of the run's Open vSwitch.
#[derive(Debug, Clone)]
pub(crate) struct Ovs {
    folder: PathBuf,
    database_tool: PathBuf,
    vsctl: PathBuf,
    ofctl: PathBuf,
}

fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
    format!("{path}:{SERVERS}")
}

/// Environment with which programs find this Open vSwitch, in whatever node they run.
pub(crate) fn environment(run: &Path) -> BTreeMap<String, String> {
    let folder = run.join(FOLDER);
    let text = |path: &Path| path.display().to_string();
    let mut found: BTreeMap<String, String> = ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"]
        .into_iter()
        .map(|key| (key.to_owned(), text(&folder)))
        .collect();
    found.insert("TIMEBOUND_RUN".to_owned(), text(run));
    found.insert(
        "TIMEBOUND_OVSDB".to_owned(),
        format!("unix:{}", folder.join("db.sock").display()),
    );
    found
}

/// The daemons as programs of the plan.
pub(crate) fn daemons(plan: &Plan) -> Vec<ProgramPlan> {
    let folder = plan.folder.join(FOLDER);
    let path = |name: &str| folder.join(name).display().to_string();
    let mut env = environment(&plan.folder);
    env.insert("PATH".to_owned(), search_path());
    let daemon = |name: &str, arguments: Vec<String>, ready: &str| ProgramPlan {
        name: name.to_owned(),
        node: YARD.to_owned(),
        argv: [name.to_owned()]
            .into_iter()
            .chain(arguments)
            .chain([
                format!("--unixctl={}", path(&format!("{name}.ctl"))),
                "-vconsole:info".to_owned(),
                "-vsyslog:off".to_owned(),
                "-vfile:off".to_owned(),
            ])
            .collect(),
        env: env.clone(),
        folder: Some(folder.clone()),
        log: None,
        essential: true,
        ready: Some(ReadyPlan {
            tcp_port: None,
            file: Some(folder.join(ready)),
            timeout_ms: START_MS,
        }),
        start_ns: None,
        after_ready: false,
        stop_grace_ns: 2_000_000_000,
    };
    let server = vec![path("conf.db"), format!("--remote=punix:{}", path("db.sock"))];
    // Without --enable-dummy there is no datapath for hosts where no TAP device can be made.
    let switch = vec![format!("unix:{}", path("db.sock")), "--enable-dummy".to_owned()];
    vec![
        daemon(DAEMONS[0], server, "db.sock"),
        daemon(DAEMONS[1], switch, "ovs-vswitchd.ctl"),
    ]
}

impl Ovs {
    /// Looks for the tools.
    ///
    /// # Errors
    /// One that is not there, with what installs it.
    pub(crate) fn find(plan: &Plan) -> Result<Self, Failure> {
        let tool = |name: &str| {
            let path = search_path();
            let found = std::env::split_paths(&path)
                .map(|folder| folder.join(name))
                .find(|path| path.is_file());
            found.ok_or_else(|| {
                Failure::Host(format!(
                    "switches with `engine: ovs` need {name}, which is not here: {INSTALL}"
                ))
            })
        };
        Ok(Self {
            folder: plan.folder.join(FOLDER),
            database_tool: tool("ovsdb-tool")?,
            vsctl: tool("ovs-vsctl")?,
            ofctl: tool("ovs-ofctl")?,
        })
    }

    /// An empty database, before its server starts, and what there is to know for people and controllers.
    ///
    /// # Errors
    /// What cannot be written.
    pub(crate) fn create(&self, nodes: &Nodes, switches: &Switches, run: &Path) -> Result<(), Failure> {
        let why = |error| Failure::host(format!("cannot write {}", self.folder.display()), error);
        std::fs::create_dir_all(&self.folder).map_err(why)?;
        let text = serde_json::to_vec_pretty(switches).map_err(|error| why(error.into()))?;
        std::fs::write(run.join("switches.json"), text).map_err(why)?;
        let database = self.folder.join("conf.db").display().to_string();
        self.run(nodes, &self.database_tool, &["create".to_owned(), database])
    }

    /// Bridges and their ports, once both daemons listen.
    ///
    /// # Errors
    /// A refusal of Open vSwitch.
    pub(crate) fn build(&self, nodes: &Nodes, switches: &Switches) -> Result<(), Failure> {
        // The local port of a bridge is a TAP device; the dummy datapath is the same one with a local port that is nothing.
        let can_tap = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/net/tun")
            .is_ok();
        self.vsctl(nodes, &build(switches, if can_tap { "netdev" } else { "dummy" }))?;
        // What an exit status does not say: a bridge without its ports.
        for switch in &switches.list {
            for port in &switch.ports {
                let known = ["get", "interface", &port.name, "ofport"].map(str::to_owned);
                let said = self.ask(nodes, &self.vsctl, &self.vsctl_arguments(&known))?;
                if said.trim() != port.number.to_string() {
                    return Err(Failure::Host(format!(
                        "Open vSwitch did not take {} as port {} of bridge {} but as {}; see logs/ovs-vswitchd.log",
                        port.name,
                        port.number,
                        switch.name,
                        said.trim()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Puts rules into the switches, in the place of all that were there.
    ///
    /// # Errors
    /// A refusal of Open vSwitch.
    pub(crate) fn install(&self, nodes: &Nodes, switches: &Switches, rules: &[Rules]) -> Result<(), Failure> {
        for (switch, rules) in switches.list.iter().zip(rules) {
            let put = |what: &str, lines: &[String]| {
                let file = self.folder.join(format!("{}.{what}", switch.name));
                std::fs::write(&file, lines.join("\n") + "\n")
                    .map_err(|error| Failure::host(format!("cannot write {}", file.display()), error))?;
                if lines.is_empty() {
                    return Ok(());
                }
                self.ofctl(
                    nodes,
                    &format!("add-{what}"),
                    &switch.name,
                    &[file.display().to_string()],
                )
            };
            put("groups", &rules.groups)?;
            put("flows", &rules.flows)?;
        }
        Ok(())
    }

    /// Empties the switches and lets them look for their controller.
    ///
    /// # Errors
    /// A refusal of Open vSwitch.
    pub(crate) fn hand_over(
        &self,
        nodes: &Nodes,
        switches: &Switches,
        controller: &str,
    ) -> Result<(), Failure> {
        for switch in &switches.list {
            self.ofctl(nodes, "del-flows", &switch.name, &[])?;
            self.ofctl(nodes, "del-groups", &switch.name, &[])?;
        }
        self.vsctl(nodes, &controlled(switches, controller))
    }

    /// Has every bridge found its controller?
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) fn are_connected(&self, nodes: &Nodes) -> Result<bool, Failure> {
        let asked = ["--bare", "--columns=is_connected", "list", "controller"].map(str::to_owned);
        let said = self.ask(nodes, &self.vsctl, &self.vsctl_arguments(&asked))?;
        Ok(said.split_whitespace().all(|word| word == "true"))
    }

    fn vsctl_arguments(&self, arguments: &[String]) -> Vec<String> {
        let database = format!("--db=unix:{}", self.folder.join("db.sock").display());
        [format!("--timeout={PATIENCE}"), database]
            .into_iter()
            .chain(arguments.iter().cloned())
            .collect()
    }

    fn vsctl(&self, nodes: &Nodes, arguments: &[String]) -> Result<(), Failure> {
        self.run(nodes, &self.vsctl, &self.vsctl_arguments(arguments))
    }

    fn ofctl(&self, nodes: &Nodes, order: &str, bridge: &str, more: &[String]) -> Result<(), Failure> {
        let mut arguments = vec![
            "--protocols=OpenFlow13".to_owned(),
            format!("--timeout={PATIENCE}"),
            order.to_owned(),
            bridge.to_owned(),
        ];
        arguments.extend(more.iter().cloned());
        self.run(nodes, &self.ofctl, &arguments)
    }

    fn run(&self, nodes: &Nodes, tool: &Path, arguments: &[String]) -> Result<(), Failure> {
        self.ask(nodes, tool, arguments).map(drop)
    }

    /// Runs a tool in the namespace of the switches; what it says.
    fn ask(&self, nodes: &Nodes, tool: &Path, arguments: &[String]) -> Result<String, Failure> {
        let name = tool
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let why = |error| Failure::host(format!("cannot run {name}"), error);
        let yard = nodes
            .get(YARD)
            .ok_or_else(|| Failure::internal("switches", "their namespace is not there"))?;
        let mut command = Command::new(tool);
        command
            .args(arguments)
            .envs(environment(self.folder.parent().unwrap_or(Path::new("/"))))
            .stdin(Stdio::null());
        let output = nodes
            .run(yard, &mut command, &self.folder, Command::output)
            .map_err(why)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = said.trim().lines().rev().take(2).collect();
        Err(Failure::Host(format!(
            "{name} {} failed: {}; see logs/ovs-vswitchd.log",
            arguments
                .iter()
                .find(|word| !word.starts_with('-'))
                .cloned()
                .unwrap_or_default(),
            last.join("; ")
        )))
    }
}

/// Arguments of ovs-vsctl for bridges without rules, which forward nothing by themselves.
fn build(switches: &Switches, datapath: &str) -> Vec<String> {
    let mut arguments: Vec<String> = ["--no-wait", "init"].map(str::to_owned).to_vec();
    // Entries that nobody uses for a while are not to be worked out anew in the middle of a run.
    arguments.extend(["--", "set", "open_vswitch", ".", "other_config:max-idle=600000"].map(str::to_owned));
    arguments.remove(0);
    for switch in &switches.list {
        let name = &switch.name;
        let identifier = format!("other_config:datapath-id={}", switch.datapath_id);
        let kind = format!("datapath_type={datapath}");
        arguments.extend(["--", "add-br", name, "--", "set", "bridge", name, &kind].map(str::to_owned));
        arguments.extend(
            [
                "fail_mode=secure",
                "protocols=OpenFlow13",
                "other_config:disable-in-band=true",
                &identifier,
            ]
            .map(str::to_owned),
        );
        for port in &switch.ports {
            let number = format!("ofport_request={}", port.number);
            arguments.extend(["--", "add-port", name, &port.name].map(str::to_owned));
            arguments.extend(["--", "set", "interface", &port.name, &number].map(str::to_owned));
        }
    }
    arguments
}

/// Arguments of ovs-vsctl for bridges that look for a controller. In one transaction: a switch that tried before it knew its longest wait
/// would wait for longer.
fn controlled(switches: &Switches, controller: &str) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    for (index, switch) in switches.list.iter().enumerate() {
        let (id, target) = (format!("--id=@c{index}"), format!("target=\"{controller}\""));
        let backoff = format!("max_backoff={MOST_BACKOFF_MS}");
        let reference = format!("controller=@c{index}");
        arguments.extend(["--", &id, "create", "controller", &target, &backoff].map(str::to_owned));
        arguments.extend(["--", "set", "bridge", &switch.name, &reference].map(str::to_owned));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;

    #[test]
    fn bridges_are_built_as_documented() {
        let plan = plan();
        let network = timebound_model::compile(&plan.network).unwrap();
        let switches = Switches::of(&plan, &network).unwrap().unwrap();
        let text = build(&switches, "netdev").join(" ");
        assert!(text.starts_with("init -- set open_vswitch"), "{text}");
        for part in [
            "add-br s1 -- set bridge s1 datapath_type=netdev fail_mode=secure protocols=OpenFlow13",
            "other_config:datapath-id=0000000000000001",
            "add-port s1 s1-h2 -- set interface s1-h2 ofport_request=2",
            "add-port a-long-switch-2 3.a-long-switch",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
