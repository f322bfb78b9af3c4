//! Where orders are taken, from outside and from the schedule, and answered.

use super::channel::{Control, Received};
use super::exec::Commands;
use super::orders::{Order, Said};
use super::snapshot::{self, Status, Top};
use crate::kernel::clock;
use crate::lifecycle::NodeEventReport;
use crate::lifecycle::keeper::{By, Keeper, World};
use crate::nodes::Nodes;
use crate::plan::Plan;
use crate::programs::Programs;
use crate::stage::Stage;
use crate::stats::NodeStatistics;
use crate::traffic::Traffic;
use std::os::unix::net::UnixListener;
use timebound_model::Network;

/// What an order may be about.
pub(crate) struct Surroundings<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) network: &'a Network,
    pub(crate) nodes: &'a Nodes,
    pub(crate) programs: &'a mut Programs,
    pub(crate) stage: &'a Stage,
    pub(crate) statistics: &'a mut NodeStatistics,
    pub(crate) traffic: Option<&'a mut Traffic>,
    /// Run time while the run is measured; null before and after.
    pub(crate) time: Option<i64>,
}

pub(crate) struct Desk {
    control: Option<Control>,
    commands: Commands,
    keeper: Keeper,
    pub(crate) phase: &'static str,
}

impl Desk {
    pub(crate) fn open(plan: &Plan, listener: Option<UnixListener>) -> Self {
        Self {
            control: listener.map(Control::new),
            commands: Commands::default(),
            keeper: Keeper::new(plan),
            phase: "network",
        }
    }

    /// Run time of the next order by schedule.
    pub(crate) fn next(&self) -> Option<u64> {
        self.keeper.next()
    }

    /// Takes in orders, goes on with those under way.
    pub(crate) fn turn(&mut self, mut around: Surroundings<'_>) {
        let news = self.control.as_mut().map(Control::turn).unwrap_or_default();
        self.commands.end_of_clients(&news.gone);
        for received in news.requests {
            let (client, id) = (received.client, received.request.id);
            let said = match self.obey(received, &mut around) {
                Ok(Some(value)) => Said::Ok(value),
                Ok(None) => continue,
                Err(why) => Said::Error(why),
            };
            self.answer(client, id, said);
        }
        self.commands.turn();
        if let Some(time) = around.time {
            let mut world = world(&mut around, &self.commands, time);
            for (client, id, said) in self.keeper.turn(&mut world) {
                self.answer(client, id, said);
            }
        }
    }

    /// Takes note of the end of a process that may be a command.
    pub(crate) fn note_end(&mut self, pid: i32, status: i32) {
        if let Some((client, id, said)) = self.commands.note_end(pid, status) {
            self.answer(client, id, said);
        }
    }

    /// The run ends: so do commands, and what stands still goes on, to end in order.
    pub(crate) fn close(&mut self, nodes: &Nodes) {
        self.keeper.release(nodes);
        self.commands.end_all();
    }

    /// Have all commands ended?
    pub(crate) fn is_idle(&self) -> bool {
        self.commands.is_empty()
    }

    pub(crate) fn reports(&mut self) -> Vec<NodeEventReport> {
        self.keeper.reports()
    }

    fn answer(&mut self, client: u64, id: u64, said: Said) {
        if let Some(control) = &mut self.control {
            control.answer(client, id, said);
        }
    }

    /// The answer; none where it comes later.
    fn obey(
        &mut self,
        received: Received,
        around: &mut Surroundings<'_>,
    ) -> Result<Option<serde_json::Value>, String> {
        let Received {
            client,
            request,
            descriptors,
        } = received;
        let value = |value: serde_json::Result<serde_json::Value>| value.map(Some).map_err(|e| e.to_string());
        match request.order {
            Order::Status => value(serde_json::to_value(self.status(around))),
            Order::Top => value(serde_json::to_value(self.top(around))),
            Order::Signal(signal) => match self.commands.signal(client, signal.id, signal.signal) {
                true => Ok(Some(serde_json::json!({}))),
                false => Err(format!("no command with id {}", signal.id)),
            },
            Order::Exec(exec) => {
                let node = around.nodes.position(&exec.node);
                let node = node.ok_or_else(|| format!("no host {:?}", exec.node))?;
                if around.nodes.list[node].external {
                    return Err(format!(
                        "{:?} is a device outside, in which nothing can be run from here",
                        exec.node
                    ));
                }
                if !self.keeper.is_up(node) {
                    let state = self.keeper.state(node);
                    return Err(format!(
                        "node {:?} is not running (it is {state}, or changing)",
                        exec.node
                    ));
                }
                let pid = self.commands.start(
                    (client, request.id),
                    &exec,
                    (around.nodes, &around.nodes.list[node]),
                    &around.plan.folder,
                    descriptors,
                )?;
                Ok(Some(serde_json::json!({ "pid": pid })))
            }
            Order::Node(order) => {
                let Some(time) = around.time else {
                    return Err(format!(
                        "nodes take orders while the run is measured; now it is in phase {:?}",
                        self.phase
                    ));
                };
                let world = world(around, &self.commands, time);
                self.keeper
                    .order(&order.nodes, order.order, By::Command(client, request.id), &world)?;
                Ok(None)
            }
        }
    }

    fn status<'a>(&self, around: &Surroundings<'a>) -> Status<'a> {
        Status {
            run_id: &around.plan.run_id,
            scenario: around
                .plan
                .control
                .as_ref()
                .map_or("", |control| &control.scenario),
            phase: self.phase,
            run_ns: around.time,
            duration_ns: around.plan.duration_ns,
            nodes: snapshot::nodes(around.nodes, &self.keeper),
        }
    }

    fn top<'a>(&self, around: &mut Surroundings<'a>) -> Top<'a> {
        let figures = around
            .statistics
            .figures(around.nodes, around.programs, around.traffic.as_deref());
        let standing = around.stage.standing();
        Top {
            status: self.status(around),
            taken_ns: clock::monotonic(),
            nodes: snapshot::figures(around.nodes, &figures),
            links: standing
                .as_ref()
                .map(|standing| snapshot::links(standing, around.network))
                .unwrap_or_default(),
            emulator: standing.as_ref().map(snapshot::emulator),
        }
    }
}

fn world<'a>(around: &'a mut Surroundings<'_>, commands: &'a Commands, time: i64) -> World<'a> {
    World {
        plan: around.plan,
        nodes: around.nodes,
        programs: around.programs,
        commands,
        stage: around.stage,
        traffic: around.traffic.as_deref_mut(),
        time,
    }
}
