//! Carries out orders for nodes, a step a turn: nothing here waits.
//!
//! Orders for one node are obeyed one after the other, each checked against the state that those before it lead to.

use super::{NodeEventReport, Order, State};
use crate::control::Commands;
use crate::control::orders::Said;
use crate::kernel::clock;
use crate::nodes::{self, Nodes};
use crate::plan::{NodeEventPlan, Plan};
use crate::processes::{self, Belonging, Located, Process};
use crate::programs::Programs;
use crate::stage::Stage;
use crate::traffic::Traffic;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Least time between SIGTERM and SIGKILL; that of a program of the node, where longer.
const GRACE: u64 = 2_000_000_000;
/// How long processes may take to stand still, and programs to be ready.
const PATIENCE: u64 = 10_000_000_000;
/// How often processes are looked at while something goes on.
const LOOK: u64 = 20_000_000;

/// Who gave an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Schedule,
    /// Connection and id of the request.
    Command(u64, u64),
}

/// What the keeper works with.
pub(crate) struct World<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) nodes: &'a Nodes,
    pub(crate) programs: &'a mut Programs,
    pub(crate) commands: &'a Commands,
    pub(crate) stage: &'a Stage,
    pub(crate) traffic: Option<&'a mut Traffic>,
    /// Run time.
    pub(crate) time: i64,
}

/// How far an order is.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Processes were told to end at this time; SIGKILL follows after the grace.
    Ending { since: u64, grace: u64 },
    /// Interface and programs are up; waiting until these are ready.
    Starting { since: u64 },
    /// Processes are being stopped until all stand still.
    Pausing { since: u64 },
}

/// An order that was accepted.
#[derive(Debug, Clone, Copy)]
struct Accepted {
    /// Index of its report.
    report: usize,
    order: Order,
    by: By,
}

#[derive(Debug)]
struct Life {
    state: State,
    /// What it will be once all accepted orders are obeyed.
    target: State,
    doing: Option<(Accepted, Step)>,
    waiting: VecDeque<Accepted>,
}

/// The lives of all nodes.
pub(crate) struct Keeper {
    lives: Vec<Life>,
    schedule: VecDeque<NodeEventPlan>,
    reports: Vec<NodeEventReport>,
    /// Orders by command -> nodes that have still to obey.
    owed: BTreeMap<(u64, u64), usize>,
    /// Nodes with built-in endpoints.
    endpoints: BTreeSet<String>,
    next_look: u64,
}

impl Keeper {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut schedule: Vec<_> = plan.lifecycle.clone();
        schedule.sort_by_key(|event| event.at_ns);
        let life = || Life {
            state: State::Running,
            target: State::Running,
            doing: None,
            waiting: VecDeque::new(),
        };
        Self {
            lives: plan.hosts.iter().map(|_| life()).collect(),
            schedule: schedule.into(),
            reports: Vec::new(),
            owed: BTreeMap::new(),
            endpoints: endpoint_nodes(plan),
            next_look: 0,
        }
    }

    pub(crate) fn state(&self, node: usize) -> State {
        self.lives[node].state
    }

    /// Is an order being obeyed?
    pub(crate) fn is_changing(&self, node: usize) -> bool {
        self.lives[node].doing.is_some()
    }

    /// Nodes that are not running, or not for long any more.
    pub(crate) fn is_up(&self, node: usize) -> bool {
        let life = &self.lives[node];
        (life.state, life.doing.is_none()) == (State::Running, true)
    }

    /// Accepts an order for several nodes, or for none of them.
    ///
    /// # Errors
    /// Why it makes no sense, in words for whoever gave it.
    pub(crate) fn order(
        &mut self,
        names: &[String],
        order: Order,
        by: By,
        world: &World<'_>,
    ) -> Result<(), String> {
        let mut found = Vec::with_capacity(names.len());
        for name in names.iter().collect::<BTreeSet<_>>() {
            let node = world
                .nodes
                .position(name)
                .ok_or_else(|| format!("no host {name:?}"))?;
            self.check(name, node, order, world)?;
            found.push(node);
        }
        if found.is_empty() {
            return Err("an order for no node".to_owned());
        }
        if let By::Command(client, id) = by
            && self.owed.insert((client, id), found.len()).is_some()
        {
            return Err(format!("an order with id {id} is being obeyed already"));
        }
        for node in found {
            let report = self.note(&world.nodes.list[node].name, order, by, world.time, None);
            let life = &mut self.lives[node];
            life.target = life.target.after(order).unwrap_or(life.target);
            life.waiting.push_back(Accepted { report, order, by });
        }
        self.next_look = 0;
        Ok(())
    }

    fn check(&self, name: &str, node: usize, order: Order, world: &World<'_>) -> Result<(), String> {
        let has_own = world
            .traffic
            .as_ref()
            .is_some_and(|traffic| traffic.has_own(name));
        if self.endpoints.contains(name) && !has_own {
            return Err(format!(
                "cannot {order} {name:?}: its built-in endpoints share a process with those of others (start the run with stack: {{mqtt: \
                 {{clients: per-node}}}}, or with an order for a node in `at`)"
            ));
        }
        if world.nodes.list[node].external {
            return Err(format!(
                "{name:?} is a device outside, which takes no orders from here"
            ));
        }
        if !processes::is_ours() {
            return Err("without a /proc of its own a run cannot find the processes of a node".to_owned());
        }
        let target = self.lives[node].target;
        match target.after(order) {
            Some(_) => Ok(()),
            None => Err(format!("cannot {order} {name:?}, which is {target}")),
        }
    }

    fn note(&mut self, node: &str, order: Order, by: By, time: i64, problem: Option<String>) -> usize {
        self.reports.push(NodeEventReport {
            node: node.to_owned(),
            order,
            by: if by == By::Schedule { "schedule" } else { "command" },
            asked_ns: time,
            done_ns: None,
            state: State::Running,
            killed: 0,
            problem,
        });
        self.reports.len() - 1
    }

    /// Gives what is due by schedule, goes on with what is under way; answers to commands that are obeyed.
    pub(crate) fn turn(&mut self, world: &mut World<'_>) -> Vec<(u64, u64, Said)> {
        while let Some(event) = self
            .schedule
            .front()
            .filter(|event| event.at_ns as i64 <= world.time)
        {
            let (node, order) = (event.node.clone(), event.order);
            self.schedule.pop_front();
            if let Err(problem) = self.order(std::slice::from_ref(&node), order, By::Schedule, world) {
                crate::messages::warn(&format!("schedule: {problem}"));
                self.note(&node, order, By::Schedule, world.time, Some(problem));
            }
        }
        let now = clock::monotonic();
        let busy = |life: &Life| life.doing.is_some() || !life.waiting.is_empty();
        if now < self.next_look || !self.lives.iter().any(busy) {
            return Vec::new();
        }
        self.next_look = now + LOOK;
        let processes = processes::located(&world.nodes.first_processes());
        let mut answers = Vec::new();
        for node in 0..self.lives.len() {
            if busy(&self.lives[node]) {
                self.advance(node, now, &processes, world, &mut answers);
            }
        }
        answers
    }

    /// Run time of the next order by schedule.
    pub(crate) fn next(&self) -> Option<u64> {
        self.schedule.front().map(|event| event.at_ns)
    }

    fn advance(
        &mut self,
        node: usize,
        now: u64,
        processes: &[Located],
        world: &mut World<'_>,
        answers: &mut Vec<(u64, u64, Said)>,
    ) {
        let name = &world.nodes.list[node].name;
        let mut belonging = Belonging::of(&world.nodes.list[node]);
        belonging.sessions.extend(world.commands.sessions(name));
        let of_node = world
            .programs
            .list
            .iter()
            .filter(|program| program.plan.node == *name);
        belonging
            .sessions
            .extend(of_node.flat_map(|program| &program.sessions));
        let living = belonging.pick(processes);
        let Some((accepted, step)) = self.lives[node].doing else {
            let Some(accepted) = self.lives[node].waiting.pop_front() else {
                return;
            };
            self.begin(node, accepted, now, &living, world, answers);
            return;
        };
        match step {
            Step::Ending { since, grace } => {
                if living.is_empty() && !world.programs.runs_in(name) {
                    self.ended(node, accepted, now, world, answers);
                } else if now - since > grace {
                    self.reports[accepted.report].killed += living.len() as u32;
                    living
                        .iter()
                        .for_each(|process| processes::signal(process, libc::SIGKILL));
                }
            }
            Step::Starting { since } => {
                let ready = world.programs.is_node_ready(world.nodes, name);
                if !ready && now - since > PATIENCE {
                    self.reports[accepted.report].problem = Some("its programs are not ready".to_owned());
                }
                if ready || now - since > PATIENCE {
                    self.done(node, accepted, State::Running, world.time, answers);
                }
            }
            Step::Pausing { since } => {
                let moving: Vec<_> = living
                    .iter()
                    .filter(|process| !matches!(process.state, b'T' | b't'))
                    .collect();
                moving
                    .iter()
                    .for_each(|process| processes::signal(process, libc::SIGSTOP));
                if !moving.is_empty() && now - since > PATIENCE {
                    let text = format!("{} processes do not stand still", moving.len());
                    self.reports[accepted.report].problem = Some(text);
                }
                if moving.is_empty() || now - since > PATIENCE {
                    self.done(node, accepted, State::Paused, world.time, answers);
                }
            }
        }
    }

    fn begin(
        &mut self,
        node: usize,
        accepted: Accepted,
        now: u64,
        living: &[Process],
        world: &mut World<'_>,
        answers: &mut Vec<(u64, u64, Said)>,
    ) {
        let name = &world.nodes.list[node].name;
        match (accepted.order, self.lives[node].state) {
            (Order::Stop | Order::Restart, State::Running | State::Paused) => {
                let grace = world.programs.block(name).max(GRACE);
                // First, so that it is known to end because it was told.
                if let Some(traffic) = &mut world.traffic {
                    traffic.kill(name);
                }
                for process in living {
                    processes::signal(process, libc::SIGTERM);
                    processes::signal(process, libc::SIGCONT);
                }
                self.lives[node].doing = Some((accepted, Step::Ending { since: now, grace }));
            }
            (Order::Start | Order::Restart, _) => self.start(node, accepted, now, world, answers),
            (Order::Pause, _) => {
                if let Some(traffic) = &mut world.traffic {
                    traffic.pause(name, true);
                }
                living
                    .iter()
                    .for_each(|process| processes::signal(process, libc::SIGSTOP));
                self.lives[node].doing = Some((accepted, Step::Pausing { since: now }));
            }
            (Order::Resume, _) => {
                if let Some(traffic) = &mut world.traffic {
                    traffic.pause(name, false);
                }
                living
                    .iter()
                    .for_each(|process| processes::signal(process, libc::SIGCONT));
                self.done(node, accepted, State::Running, world.time, answers);
            }
            // The table allows no other stop.
            (Order::Stop, state) => self.done(node, accepted, state, world.time, answers),
        }
    }

    fn ended(
        &mut self,
        node: usize,
        accepted: Accepted,
        now: u64,
        world: &mut World<'_>,
        answers: &mut Vec<(u64, u64, Said)>,
    ) {
        // First nobody hands frames to it any more, then its interface goes.
        world.stage.set_stopped(world.nodes.list[node].id, true);
        if let Err(error) = nodes::power(world.plan, world.nodes, node, false) {
            self.reports[accepted.report].problem = Some(format!("its interface did not go down: {error}"));
        }
        self.lives[node].state = State::Stopped;
        if accepted.order == Order::Restart {
            self.start(node, accepted, now, world, answers);
        } else {
            self.done(node, accepted, State::Stopped, world.time, answers);
        }
    }

    fn start(
        &mut self,
        node: usize,
        accepted: Accepted,
        now: u64,
        world: &mut World<'_>,
        answers: &mut Vec<(u64, u64, Said)>,
    ) {
        let host = &world.nodes.list[node];
        let begun = nodes::power(world.plan, world.nodes, node, true)
            .map_err(|error| format!("its interface did not come up: {error}"))
            .and_then(|()| {
                world.stage.set_stopped(host.id, false);
                world.programs.revive(&host.name);
                let time = u64::try_from(world.time).unwrap_or(0);
                let begun = world
                    .programs
                    .start_due(world.nodes, Some(time), true)
                    .and_then(|()| match &mut world.traffic {
                        Some(traffic) => traffic.spawn(&host.name).map(drop),
                        None => Ok(()),
                    });
                begun.map_err(|failure| failure.to_string())
            });
        match begun {
            Ok(()) => self.lives[node].doing = Some((accepted, Step::Starting { since: now })),
            Err(problem) => {
                self.reports[accepted.report].problem = Some(problem);
                self.done(node, accepted, State::Running, world.time, answers);
            }
        }
    }

    fn done(
        &mut self,
        node: usize,
        accepted: Accepted,
        state: State,
        time: i64,
        answers: &mut Vec<(u64, u64, Said)>,
    ) {
        let life = &mut self.lives[node];
        (life.state, life.doing) = (state, None);
        let report = &mut self.reports[accepted.report];
        (report.done_ns, report.state) = (Some(time), state);
        let By::Command(client, id) = accepted.by else {
            return;
        };
        let Some(owed) = self.owed.get_mut(&(client, id)) else {
            return;
        };
        *owed -= 1;
        if *owed == 0 {
            self.owed.remove(&(client, id));
            answers.push((client, id, Said::Ok(serde_json::json!({}))));
        }
    }

    /// The run ends: what stands still goes on, so that it can end in order.
    pub(crate) fn release(&mut self, nodes: &Nodes) {
        let paused = |life: &Life| {
            life.state == State::Paused || matches!(life.doing, Some((_, Step::Pausing { .. })))
        };
        if !self.lives.iter().any(paused) {
            return;
        }
        let processes = processes::located(&nodes.first_processes());
        for (life, node) in self
            .lives
            .iter()
            .zip(&nodes.list)
            .filter(|(life, _)| paused(life))
        {
            let _ = life;
            for process in Belonging::of(node).pick(&processes) {
                processes::signal(&process, libc::SIGCONT);
            }
        }
    }

    /// What was ordered and what became of it.
    pub(crate) fn reports(&mut self) -> Vec<NodeEventReport> {
        std::mem::take(&mut self.reports)
    }
}

/// Nodes that the endpoints' plan names: whose `node`, `source` or `destination` they are.
fn endpoint_nodes(plan: &Plan) -> BTreeSet<String> {
    let hosts: BTreeSet<&str> = plan.hosts.iter().map(|host| host.node.as_str()).collect();
    let mut found = BTreeSet::new();
    let lists = plan.endpoints.iter().flat_map(|endpoints| endpoints.as_object());
    for entry in lists
        .flat_map(|map| map.values())
        .filter_map(|list| list.as_array())
        .flatten()
    {
        for key in ["node", "source", "destination"] {
            if let Some(name) = entry.get(key).and_then(|value| value.as_str())
                && hosts.contains(name)
            {
                found.insert(name.to_owned());
            }
        }
    }
    found
}
