//! A run from PID 1's point of view: network, pre-flight check, set-up, measuring, stop, report.

use crate::certificate::Verdict;
use crate::cgroups::Cgroups;
use crate::choice::{self, Choice};
use crate::control::{Desk, Surroundings};
use crate::failure::{EXIT_DISTURBED, EXIT_HOST, EXIT_OK, Failure};
use crate::hardware::{Keeper, tunnel};
use crate::kernel::{clock, mounts};
use crate::messages::{self, Message};
use crate::nodes::{self, Nodes};
use crate::plan::Plan;
use crate::plane::{Command, Kind, Lane};
use crate::preflight::Blame;
use crate::programs::Programs;
use crate::report::{self, Check, Circumstances, LiveReport, Names, Times};
use crate::sandbox::Sandbox;
use crate::signals;
use crate::stage::Stage;
use crate::stats::NodeStatistics;
use crate::switches::{Carrier, Ovs, Presence, Station, Switches};
use crate::traffic::{State, Traffic};
use crate::{conditions, preflight};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use timebound_fabric::Fabric;
use timebound_model::{Network, Time};

/// How often the main thread looks around.
const TICK: Duration = Duration::from_millis(10);
/// Between the last preparation and time zero.
const LEAD: u64 = 30_000_000;
/// How often the pre-flight check may be tried; each attempt has the plan's `limit_ns`.
const PREFLIGHT_ATTEMPTS: u32 = 3;
/// Longest pause between two attempts.
const PREFLIGHT_PAUSE: u64 = 1_000_000_000;
/// Interval of progress messages.
const PROGRESS: u64 = 250_000_000;
/// How often switches are asked whether they have found their controller.
const LOOK: u64 = 100_000_000;
/// How long endpoints may take beyond the end of the run.
const ENDPOINTS_GRACE: u64 = 10_000_000_000;
/// How long commands may take to end; what is left ends with us.
const COMMANDS_GRACE: u64 = 4_000_000_000;

/// What is checked before the sandbox exists.
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    pub(crate) network: Arc<Network>,
    pub(crate) changes: Vec<(Time, timebound_fabric::Change)>,
    /// Real switches of the network, and what runs them.
    pub(crate) switches: Option<(Switches, Ovs)>,
    pub(crate) programs: Programs,
    /// The namespace from which a run on two machines was started.
    pub(crate) outside: Option<OwnedFd>,
    /// Limits of nodes.
    pub(crate) groups: Option<Arc<Cgroups>>,
    /// Where the run takes orders.
    pub(crate) listener: Option<UnixListener>,
    /// Where programs of the host listen.
    pub(crate) sockets: Vec<PathBuf>,
}

/// Runs in the sandbox; returns its exit code.
pub(crate) fn inside(prepared: Prepared, sandbox: &Sandbox, keeper: Option<&mut Keeper>) -> i32 {
    messages::phase("network");
    match Run::open(prepared, sandbox, keeper) {
        Ok(mut run) => {
            let outcome = run.measure();
            run.finish(outcome)
        }
        Err(failure) => {
            messages::emit(&Message::Failed {
                exit_code: failure.exit_code(),
                message: &failure.to_string(),
            });
            failure.exit_code()
        }
    }
}

/// A line of the pre-flight check in words.
fn sentence(check: &Check) -> String {
    let Check {
        check,
        expected,
        measured,
        ..
    } = check;
    format!("{check}: expected {expected}, measured {measured}")
}

struct Run {
    prepared: Prepared,
    rootless: bool,
    choice: Choice,
    nodes: Nodes,
    traffic: Option<Traffic>,
    stage: Stage,
    desk: Desk,
    statistics: NodeStatistics,
    /// Ports of real switches that lose or get back their carrier, the next one last.
    carriers: Vec<Carrier>,
    signals: libc::sigset_t,
    input: signals::Input,
    stopping: bool,
    times: Times,
    /// CLOCK_MONOTONIC at time zero.
    epoch: Option<u64>,
    epoch_unix: Option<u64>,
    measured: u64,
    preflight: Vec<Check>,
    warnings: Vec<String>,
}

impl Run {
    fn open(mut prepared: Prepared, sandbox: &Sandbox, keeper: Option<&mut Keeper>) -> Result<Self, Failure> {
        let begun = clock::monotonic();
        let signals = signals::block();
        // Programs of nodes write there, too, and could have what we open be a file of the host.
        let links = mounts::follow_no_links(&prepared.plan.folder);
        let choice = choice::decide(&prepared.plan)?;
        let mut nodes = nodes::bring_up(
            &prepared.plan,
            &prepared.network,
            prepared.groups.clone(),
            keeper,
            choice.back_end,
            prepared.switches.as_ref().map(|(switches, _)| switches),
            nodes::Shown {
                paths: prepared.programs.named_files(&prepared.plan.shown),
                writable: prepared.plan.writable.clone(),
                sockets: std::mem::take(&mut prepared.sockets),
            },
        )?;
        if let (Some(cut), Some(outside)) = (&prepared.plan.cut, &prepared.outside) {
            let index = tunnel::open(&prepared.plan, cut, outside.as_fd(), nodes.fabric.as_fd())?;
            nodes.tunnel = Some((index, cut.run));
        }
        let mut times = Times {
            bring_up_ns: clock::monotonic() - begun,
            ..Times::default()
        };
        let plan = &prepared.plan;
        // Before the first thread of ours: a fork takes only the calling one along.
        let traffic = Traffic::fork(plan, &nodes)?;
        let switches = prepared.switches.as_ref().map(|(switches, _)| switches);
        let stage = Stage::open(plan, &prepared.network, &nodes, &choice, switches)?;
        times.bring_up_ns = times.bring_up_ns.max(clock::monotonic() - begun);
        let statistics = match plan.statistics.node_interval_ns {
            0 => NodeStatistics::unwritten(),
            _ => NodeStatistics::create(&plan.folder)
                .map_err(|error| Failure::host("cannot write nodes.csv", error))?,
        };
        let mut warnings = sandbox.warnings.clone();
        warnings.extend(links.err().map(|error| {
            format!("programs of nodes could lead what is written into the run folder elsewhere by symbolic links ({error}): needs Linux 5.14")
        }));
        warnings.extend(nodes.warnings.iter().cloned());
        warnings.iter().for_each(|warning| messages::warn(warning));
        let mut carriers = switches.map_or_else(Vec::new, |switches| {
            crate::switches::carriers(&prepared.network, switches, &prepared.plan.events)
        });
        carriers.reverse();
        let desk = Desk::open(&prepared.plan, prepared.listener.take());
        Ok(Self {
            desk,
            prepared,
            rootless: sandbox.rootless,
            choice,
            nodes,
            traffic,
            stage,
            statistics,
            carriers,
            signals,
            input: signals::Input::default(),
            stopping: false,
            times,
            epoch: None,
            epoch_unix: None,
            measured: 0,
            preflight: Vec::new(),
            warnings,
        })
    }

    fn measure(&mut self) -> Result<(), Failure> {
        self.start_switches()?;
        if self.prepared.plan.preflight.enabled {
            self.check_conditions()?;
        }
        self.hand_to_controller()?;
        self.set_up()?;
        self.begin()?;
        let result = self.watch();
        if let Some(epoch) = self.epoch {
            self.measured = clock::monotonic().saturating_sub(epoch);
        }
        result
    }

    /// Real switches as the network has them, forwarding along the compiled routes.
    fn start_switches(&mut self) -> Result<(), Failure> {
        let Some((switches, ovs)) = self.prepared.switches.clone() else {
            return Ok(());
        };
        self.phase("switches");
        let begun = clock::monotonic();
        ovs.create(&self.nodes, &switches, &self.prepared.plan.folder)?;
        for daemon in crate::switches::DAEMONS {
            self.prepared.programs.start_early(&self.nodes, daemon)?;
            while !self.prepared.programs.are_ready(&self.nodes)? {
                self.tick(TICK)?;
            }
        }
        ovs.build(&self.nodes, &switches)?;
        let network = &self.prepared.network;
        let rules =
            crate::switches::rules(network, &switches, &self.stations(), &self.prepared.plan.markers)?;
        ovs.install(&self.nodes, &switches, &rules)?;
        self.times.switches_ns = clock::monotonic() - begun;
        Ok(())
    }

    /// What the pre-flight check needed goes; from now on a controller decides, if there is one.
    fn hand_to_controller(&mut self) -> Result<(), Failure> {
        match &self.prepared.switches {
            Some((switches, ovs)) => match &switches.controller {
                Some(controller) => ovs.hand_over(&self.nodes, switches, controller),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Are all real switches connected to their controller?
    fn is_controlled(&self) -> Result<bool, Failure> {
        match &self.prepared.switches {
            Some((_, ovs)) => ovs.are_connected(&self.nodes),
            None => Ok(true),
        }
    }

    /// All hosts as switches see them.
    fn stations(&self) -> Vec<Station> {
        (self.nodes.list.iter())
            .map(|node| Station {
                node: node.id,
                address: node.address,
                mac: node.mac,
            })
            .collect()
    }

    /// Hosts that a controller has yet to hear of; `None` where nobody learns who is there.
    fn presence(&self) -> Result<Option<Presence>, Failure> {
        let learning = self.prepared.switches.as_ref().map(|(switches, _)| switches);
        let Some(switches) = learning.filter(|switches| switches.controller.is_some()) else {
            return Ok(None);
        };
        let network = &self.prepared.network;
        Presence::open(self.nodes.fabric.as_fd(), network, switches, &self.stations())
            .map(Some)
            .map_err(|error| Failure::host("cannot open a socket towards the real switches", error))
    }

    /// The fabric leaves to the real switches what is theirs.
    fn with_switches(&self, mut fabric: Box<Fabric>) -> Box<Fabric> {
        if let Some((switches, _)) = &self.prepared.switches {
            fabric.hand_over(&switches.nodes());
        }
        fabric
    }

    fn check_conditions(&mut self) -> Result<(), Failure> {
        self.phase("preflight");
        let begun = clock::monotonic();
        let network = conditions::for_preflight(&self.prepared.network);
        let unprobed = conditions::unprobed(&self.prepared.network, &self.prepared.changes);
        let mut attempt = 1;

        loop {
            let plan = &self.prepared.plan;
            let switches = self
                .prepared
                .switches
                .as_ref()
                .map(|(switches, _)| switches.nodes());
            let switches = switches.unwrap_or_default();
            let result = preflight::check(plan, &network, &switches, &unprobed, &self.nodes, &self.stage);
            self.times.preflight_ns = clock::monotonic() - begun;
            let lines = result?;
            let failed = preflight::verdict(&lines).map(|(blame, check)| (blame, sentence(check)));
            self.preflight = lines.into_iter().map(|line| line.check).collect();
            self.tick(Duration::ZERO)?;
            match failed {
                None => {
                    self.say_what_was_not_checked();
                    return Ok(());
                }
                Some((_, why)) if attempt < PREFLIGHT_ATTEMPTS => {
                    attempt += 1;
                    let text = format!(
                        "the pre-flight check is repeated ({attempt} of {PREFLIGHT_ATTEMPTS}): {why}"
                    );
                    messages::warn(&text);
                    self.warnings.push(text);
                    self.await_empty_model();
                }
                Some((Blame::Machine, why)) => {
                    return Err(Failure::Disturbed(format!(
                        "the machine was too busy for the pre-flight check, {PREFLIGHT_ATTEMPTS} times: {why}"
                    )));
                }
                Some((_, why)) => return Err(Failure::Host(format!("the pre-flight check failed: {why}"))),
            }
        }
    }

    fn say_what_was_not_checked(&mut self) {
        let open = self.preflight.iter().filter(|line| line.ok.is_none());
        let parts: Vec<String> = open
            .map(|line| format!("{} ({})", line.check, line.measured))
            .collect();
        if !parts.is_empty() {
            let text = format!("not checked before the run: {}", parts.join("; "));
            messages::warn(&text);
            self.warnings.push(text);
        }
    }

    /// What an attempt left under way must not be taken for the next one's.
    fn await_empty_model(&self) {
        let begun = clock::monotonic();
        while self.stage.inside() > 0 && clock::monotonic() - begun < PREFLIGHT_PAUSE {
            std::thread::sleep(TICK);
        }
    }

    fn set_up(&mut self) -> Result<(), Failure> {
        self.phase("setup");
        let begun = clock::monotonic();
        let (plan, network) = (&self.prepared.plan, &self.prepared.network);
        let fabric = conditions::measured(&conditions::unimpaired(network), plan.seed, &[]);
        let mut fabric = self.with_switches(fabric);
        fabric.cut(&tunnel::ports(plan.cut.as_ref(), network));
        self.stage
            .send(Command::Open(Lane::new(Kind::Setup, fabric, begun)));
        let limit = plan.setup_timeout_ns;
        self.prepared.programs.start_due(&self.nodes, None, false)?;
        let (mut connecting, mut met) = (false, false);
        let mut controlled = self
            .prepared
            .switches
            .as_ref()
            .is_none_or(|(switches, _)| switches.controller.is_none());
        let mut presence = self.presence()?;
        let mut next_look = 0;
        loop {
            self.tick(TICK)?;
            let mut programs_ready = self.prepared.programs.are_ready(&self.nodes)?;
            if programs_ready && !controlled && clock::monotonic() >= next_look {
                next_look = clock::monotonic() + LOOK;
                controlled = self.is_controlled()?;
            }
            programs_ready &= controlled;
            if programs_ready {
                programs_ready = presence
                    .as_mut()
                    .is_none_or(|hosts| hosts.turn(clock::monotonic()));
            }
            if programs_ready && !met {
                met = true;
                self.prepared.programs.start_due(&self.nodes, None, true)?;
                // Those of them that say when they are ready are waited for as well.
                programs_ready = self.prepared.programs.are_ready(&self.nodes)?;
                self.barrier("connect")?;
            }
            match &mut self.traffic {
                Some(traffic) if programs_ready && !connecting => {
                    connecting = true;
                    traffic.connect()?;
                }
                Some(traffic) if connecting && traffic.state() != State::Waiting => break,
                Some(_) => {}
                None if programs_ready => break,
                None => {}
            }
            if clock::monotonic() - begun > limit {
                let what = if connecting {
                    "the endpoints are not connected"
                } else if !controlled {
                    "programs are not ready, or the real switches are not connected to their controller"
                } else {
                    "programs are not ready"
                };
                return Err(Failure::Host(format!(
                    "{what} after {} s of set-up",
                    limit / 1_000_000_000
                )));
            }
        }
        self.times.setup_ns = clock::monotonic() - begun;
        Ok(())
    }

    /// On two machines: says how far this one is and waits until both are; time zero, where it has been agreed upon.
    fn barrier(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        if self.prepared.plan.cut.is_none() {
            return Ok(None);
        }
        messages::emit(&Message::Barrier { name });
        let begun = clock::monotonic();
        while clock::monotonic() - begun < self.prepared.plan.setup_timeout_ns {
            self.tick(TICK)?;
            let Some(order) = self.input.take_order() else {
                continue;
            };
            let mut words = order.split_ascii_whitespace();
            if words.next() == Some(name) {
                return Ok(words.next().and_then(|time| time.parse().ok()));
            }
        }
        Err(Failure::Host(format!(
            "the other machine did not get as far as {name:?} in {} s",
            self.prepared.plan.setup_timeout_ns / 1_000_000_000
        )))
    }

    /// Time zero: a fresh fabric takes over.
    fn begin(&mut self) -> Result<(), Failure> {
        let agreed = self.barrier("start")?;
        let Prepared {
            plan,
            network,
            changes,
            ..
        } = &self.prepared;
        let mut fabric = self.with_switches(conditions::measured(network, plan.seed, changes));
        fabric.cut(&tunnel::ports(plan.cut.as_ref(), network));
        let epoch = agreed.unwrap_or_else(|| clock::monotonic() + LEAD);
        self.stage
            .send(Command::Open(Lane::new(Kind::Measured, fabric, epoch)));
        if let Some(traffic) = &mut self.traffic {
            traffic.begin(epoch);
        }
        self.epoch = Some(epoch);
        self.epoch_unix = Some(epoch.saturating_add_signed(clock::realtime_offset()));
        self.phase("measure");
        Ok(())
    }

    fn phase(&mut self, name: &'static str) {
        self.desk.phase = name;
        messages::phase(name);
    }

    /// Until the run is over.
    fn watch(&mut self) -> Result<(), Failure> {
        let epoch = self.epoch.unwrap_or_default();
        let (duration, drain) = (self.prepared.plan.duration_ns, self.prepared.plan.drain_ns);
        let interval = self.prepared.plan.statistics.node_interval_ns;
        let (mut next_progress, mut next_sample) = (0, 0);
        loop {
            let now = clock::monotonic();
            let time = now.saturating_sub(epoch);
            let next_start = self
                .prepared
                .programs
                .next_start()
                .into_iter()
                .chain(self.desk.next())
                .chain(self.carriers.last().map(|carrier| carrier.at_ns))
                .min()
                .unwrap_or(u64::MAX)
                .saturating_sub(time);
            self.tick(TICK.min(Duration::from_nanos(next_start)))?;
            let now = clock::monotonic();
            let time = now.saturating_sub(epoch);
            if now >= epoch {
                self.prepared.programs.start_due(&self.nodes, Some(time), true)?;
                self.plug_cables(time)?;
            }
            if time >= next_progress {
                next_progress = time + PROGRESS;
                let run_ns = now as i64 - epoch as i64;
                messages::emit(&Message::Progress {
                    run_ns,
                    duration_ns: duration,
                    frames: self.stage.received(),
                });
            }
            if interval > 0 && time >= next_sample {
                next_sample = time - time % interval + interval;
                self.sample(time as i64)?;
            }
            let endpoints_over = self
                .traffic
                .as_ref()
                .is_none_or(|traffic| traffic.state() == State::Over);
            if time >= duration + drain && (endpoints_over || time >= duration + drain + ENDPOINTS_GRACE) {
                return Ok(());
            }
        }
    }

    /// Real switches learn of links that are down by now.
    fn plug_cables(&mut self, time: u64) -> Result<(), Failure> {
        while let Some(carrier) = self.carriers.pop_if(|carrier| carrier.at_ns <= time) {
            let Carrier { port, up, .. } = carrier;
            let why = |error| Failure::host(format!("cannot set the carrier of {}", port.name), error);
            if !up {
                self.stage.set_unplugged(port.port, true);
            }
            nodes::plug(&self.nodes, port.interface, up).map_err(why)?;
            if up {
                self.stage.set_unplugged(port.port, false);
            }
        }
        Ok(())
    }

    fn sample(&mut self, time: i64) -> Result<(), Failure> {
        self.statistics
            .sample(time, &self.nodes, &self.prepared.programs, self.traffic.as_ref())
            .map_err(|error| Failure::host("cannot write nodes.csv", error))
    }

    /// Waits a moment and takes note of whatever happened.
    fn tick(&mut self, wait: Duration) -> Result<(), Failure> {
        let stop =
            signals::wait(&self.signals, wait).is_some_and(signals::is_stop) || self.input.asks_to_stop();
        let (ended, failure) = self.prepared.programs.reap(&self.nodes);
        for (pid, status) in &ended {
            self.desk.note_end(*pid, *status);
        }
        self.take_orders();
        self.prepared.programs.trim(self.prepared.plan.log_limit_bytes);
        if stop && !self.stopping {
            return Err(Failure::Interrupted);
        }
        failure.map_or(Ok(()), Err)?;
        if let Some(traffic) = &mut self.traffic {
            traffic.listen()?;
            for (pid, status) in ended {
                traffic.note_end(pid, status)?;
            }
        }
        match self.stage.writer_failure() {
            Some(text) if !self.stopping => Err(Failure::Host(text)),
            _ => Ok(()),
        }
    }

    fn take_orders(&mut self) {
        let now = clock::monotonic();
        let measured = self.epoch.filter(|epoch| now >= *epoch && !self.stopping);
        self.desk.turn(Surroundings {
            plan: &self.prepared.plan,
            network: &self.prepared.network,
            nodes: &self.nodes,
            programs: &mut self.prepared.programs,
            stage: &self.stage,
            statistics: &mut self.statistics,
            traffic: self.traffic.as_mut(),
            time: measured.map(|epoch| (now - epoch) as i64),
        });
    }

    /// Ends everything, in order, and writes down what there is.
    fn finish(mut self, outcome: Result<(), Failure>) -> i32 {
        self.phase("stop");
        let begun = clock::monotonic();
        self.stopping = true;
        self.desk.close(&self.nodes);
        self.stop_endpoints();
        // While the network still works: connections close as they would.
        while !self.prepared.programs.stop()
            || !(self.desk.is_idle() || clock::monotonic() - begun > COMMANDS_GRACE)
        {
            // Whatever ends badly now was told to end.
            let _ = self.tick(TICK);
        }
        self.times.stop_ns = clock::monotonic() - begun;
        let (report, failure) = self.report(outcome.err());
        messages::emit(&Message::Precision {
            precision: &report.precision,
        });
        let path = self.prepared.plan.folder.join("live.json");
        let written = serde_json::to_vec_pretty(&report)
            .map_err(std::io::Error::other)
            .and_then(|text| std::fs::write(&path, text));
        if written.is_err() {
            // Half a report would be taken for a whole one.
            let _ = std::fs::remove_file(&path);
        }
        let failure = failure.or_else(|| {
            written
                .err()
                .map(|error| Failure::host("cannot write live.json", error))
        });
        let exit_code = failure.as_ref().map_or(report.exit_code, Failure::exit_code);
        match failure {
            Some(failure) => messages::emit(&Message::Failed {
                exit_code,
                message: &failure.to_string(),
            }),
            None => messages::emit(&Message::Done {
                exit_code,
                report: &path,
            }),
        }
        exit_code
    }

    fn stop_endpoints(&mut self) {
        if let Some(traffic) = &mut self.traffic {
            traffic.stop();
        }
        let begun = clock::monotonic();
        let is_over = |run: &Self| {
            run.traffic
                .as_ref()
                .is_none_or(|traffic| traffic.state() == State::Over)
        };
        while !is_over(self) && clock::monotonic() - begun < ENDPOINTS_GRACE {
            let _ = self.tick(TICK);
        }
    }

    fn report(&mut self, failure: Option<Failure>) -> (LiveReport, Option<Failure>) {
        let plan = &self.prepared.plan;
        let (plane, writer_failure) = self.stage.close();
        let failure = failure.or_else(|| writer_failure.map(Failure::Host));
        let (endpoints, failure) = match self.traffic.as_mut().map(Traffic::collect) {
            Some(Ok(summary)) => (summary, failure),
            Some(Err(error)) => (None, failure.or(Some(error))),
            None => (None, failure),
        };
        self.times.statistics_ns = self.statistics.spent_ns;
        let about = Circumstances {
            rootless: self.rootless,
            measured: self.epoch.map(|_| plan.duration_ns),
            preflight: std::mem::take(&mut self.preflight),
            folder: &plan.folder,
        };
        let precision = report::precision(&plan.precision, &plane, about);
        let exit_code = match (&failure, precision.certificate.verdict) {
            (Some(failure), _) => failure.exit_code(),
            (None, Verdict::Disturbed) => EXIT_DISTURBED,
            (None, Verdict::Good) => EXIT_OK,
            (None, Verdict::NotRun) => EXIT_HOST,
        };
        let names = Names::new(plan);
        let report = LiveReport {
            schema: 1,
            run_id: plan.run_id.clone(),
            exit_code,
            failure: failure.as_ref().map(ToString::to_string),
            epoch_unix_ns: self.epoch_unix,
            epoch_monotonic_ns: self.epoch,
            measured_ns: self.measured,
            planned_ns: plan.duration_ns,
            times: self.times.clone(),
            precision,
            data_plane: report::data_plane(&self.choice, &plane),
            ports: report::ports(&plane, &self.prepared.network),
            undeclared: report::undeclared(&plane.flows, &names),
            undeclared_overflow: plane.overflow.into(),
            refused_frames: plane.refusals,
            tcp: report::tcp(&plane.flows, &names),
            own: plane.own,
            programs: self
                .prepared
                .programs
                .reports(self.epoch.unwrap_or_else(clock::monotonic)),
            endpoints,
            lifecycle: self.desk.reports(),
            warnings: std::mem::take(&mut self.warnings),
            cut: plane.cut,
            switches: plane.switches,
        };
        (report, failure)
    }
}
