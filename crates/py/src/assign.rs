//! Assignment of classes and routes: JSON with names in place of ids, both ways.

use crate::options::BoundsOptions;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use timebound_bounds::assign::{
    Assignment, Bundle, Claim, Follow, Judged, Latency, Limits, PriorityMethod, Requirement, Routing, Task,
    Unit, Wanted, Way, Worst,
};
use timebound_model::{Class, Network, Span, StreamId, Tree};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AssignOptions {
    #[serde(default)]
    bounds: BoundsOptions,
    units: Vec<UnitOptions>,
    bundles: Vec<BundleOptions>,
    requirements: Vec<RequirementOptions>,
    follows: Vec<FollowOptions>,
    #[serde(default)]
    priorities: Option<PriorityOptions>,
    #[serde(default)]
    routes: Option<RouteOptions>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnitOptions {
    name: String,
    streams: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BundleOptions {
    name: String,
    forward: Vec<String>,
    #[serde(default)]
    backward: Vec<String>,
    #[serde(default)]
    fixed: bool,
}

/// A stream and the name of one of its receivers.
type End = (String, String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequirementOptions {
    name: String,
    /// Position in `units`.
    unit: usize,
    parts: Vec<End>,
    extra_ns: u64,
    #[serde(default)]
    deadline_ns: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FollowOptions {
    stream: String,
    after: End,
    extra_ns: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriorityOptions {
    method: MethodName,
    classes: Vec<u8>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum MethodName {
    Best,
    DeadlineMonotonic,
    Audsley,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteOptions {
    candidates: usize,
    seed: u64,
}

/// Names to ids; an unknown name becomes an error.
struct Names<'a> {
    network: &'a Network,
    streams: BTreeMap<&'a str, StreamId>,
}

impl<'a> Names<'a> {
    fn of(network: &'a Network) -> Self {
        let streams = network.streams.iter().enumerate();
        Self {
            network,
            streams: streams
                .map(|(index, stream)| (stream.name.as_str(), StreamId::new(index)))
                .collect(),
        }
    }

    fn stream(&self, name: &str) -> Result<StreamId, String> {
        self.streams
            .get(name)
            .copied()
            .ok_or_else(|| format!("no stream {name:?}"))
    }

    fn streams(&self, names: &[String]) -> Result<Vec<StreamId>, String> {
        names.iter().map(|name| self.stream(name)).collect()
    }

    fn end(&self, (stream, receiver): &End) -> Result<(StreamId, usize), String> {
        let id = self.stream(stream)?;
        let leaves = &self.network.streams[id.index()].tree.leaves;
        let place = leaves
            .iter()
            .position(|leaf| self.network.nodes[leaf.node.index()].name == *receiver);
        Ok((
            id,
            place.ok_or_else(|| format!("{stream:?} has no receiver {receiver:?}"))?,
        ))
    }
}

impl AssignOptions {
    pub(crate) fn resolve(&self, network: &Network) -> Result<(Task, Wanted), String> {
        let names = Names::of(network);
        let units = self.units.iter().map(|unit| {
            Ok(Unit {
                name: unit.name.clone(),
                streams: names.streams(&unit.streams)?,
            })
        });
        let bundles = self.bundles.iter().map(|bundle| {
            Ok(Bundle {
                name: bundle.name.clone(),
                forward: names.streams(&bundle.forward)?,
                backward: names.streams(&bundle.backward)?,
                fixed: bundle.fixed,
            })
        });
        let requirements = self.requirements.iter().map(|requirement| {
            Ok(Requirement {
                name: requirement.name.clone(),
                unit: requirement.unit,
                parts: requirement
                    .parts
                    .iter()
                    .map(|end| names.end(end))
                    .collect::<Result<_, String>>()?,
                extra: Span(requirement.extra_ns),
                deadline: requirement.deadline_ns.map(Span),
            })
        });
        let follows = self.follows.iter().map(|follow| {
            Ok(Follow {
                stream: names.stream(&follow.stream)?,
                after: names.end(&follow.after)?,
                extra: Span(follow.extra_ns),
            })
        });
        let task = Task {
            units: units.collect::<Result<_, String>>()?,
            bundles: bundles.collect::<Result<_, String>>()?,
            requirements: requirements.collect::<Result<_, String>>()?,
            follows: follows.collect::<Result<_, String>>()?,
            options: self.bounds.resolve(network),
        };
        let priorities = self.priorities.as_ref().map(|wanted| {
            let method = match wanted.method {
                MethodName::Best => PriorityMethod::Best,
                MethodName::DeadlineMonotonic => PriorityMethod::DeadlineMonotonic,
                MethodName::Audsley => PriorityMethod::Audsley,
            };
            (method, wanted.classes.iter().map(|class| Class(*class)).collect())
        });
        let routes = self.routes.as_ref().map(|wanted| Limits {
            candidates: wanted.candidates,
            seed: wanted.seed,
            ..Limits::default()
        });
        Ok((task, Wanted { priorities, routes }))
    }
}

/// What was found, as JSON.
pub(crate) fn told(network: &Network, found: &Assignment) -> Value {
    json!({
        "before": judged(&found.before),
        "after": judged(&found.after),
        "classes": found.classes,
        "priorities": found.priorities.as_ref().map(|priorities| {
            let why = match &priorities.claim {
                Claim::Optimal => None,
                Claim::Heuristic(why) => Some(why),
            };
            json!({
                "method": priorities.method, "optimal": why.is_none(), "why": why, "reason": priorities.reason,
            })
        }),
        "routing": found.routing.as_ref().map(|routing| routes(network, routing)),
        "kept_routes": found.kept_routes,
        "stopped": found.stopped,
        "analyses": found.analyses,
    })
}

fn judged(judged: &Judged) -> Value {
    let latency = |latency: &Latency| match latency {
        Latency::Bound(bound) => json!({"bound_ns": bound, "reason": null}),
        Latency::None(reason) => json!({"bound_ns": null, "reason": reason}),
    };
    json!({
        "latencies": judged.latencies.iter().map(latency).collect::<Vec<_>>(),
        "missed": judged.missed,
    })
}

fn routes(network: &Network, routing: &Routing) -> Value {
    let worst = |worst: Option<Worst>| {
        worst.map(
            |worst| json!({"port": network.port_name(worst.port), "utilisation": worst.parts as f64 / 1e12}),
        )
    };
    let way = |way: &Way| {
        let streams: BTreeMap<&str, Vec<Vec<&str>>> = way
            .trees
            .iter()
            .map(|(id, tree)| {
                (
                    network.streams[id.index()].name.as_str(),
                    nodes(network, *id, tree),
                )
            })
            .collect();
        json!({"bundle": way.bundle, "streams": streams})
    };
    json!({
        "before": worst(routing.before),
        "after": worst(routing.after),
        "movable_before": worst(routing.movable_before),
        "movable_after": worst(routing.movable_after),
        "exact": routing.exact,
        "all_ways": routing.all_ways,
        "ways": routing.ways.iter().map(way).collect::<Vec<_>>(),
    })
}

/// The nodes on the way to each receiver, source first: a `route` of the declaration.
fn nodes<'a>(network: &'a Network, id: StreamId, tree: &Tree) -> Vec<Vec<&'a str>> {
    let source = network.streams[id.index()].source;
    let name = |node: timebound_model::NodeId| network.nodes[node.index()].name.as_str();
    let path = |leaf: &timebound_model::Leaf| {
        let hops = tree.path(*leaf);
        let peers = hops
            .iter()
            .map(|hop| network.ports[tree.hops[*hop as usize].port.index()].peer);
        std::iter::once(source).chain(peers).map(name).collect()
    };
    tree.leaves.iter().map(path).collect()
}
