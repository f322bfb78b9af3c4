//! Everything that touches the kernel: sandbox, namespaces, the ring data plane, captures, programs, node statistics;
//! the fabric under the real clock. Knows nothing of Python.

mod capture;
pub mod certificate;
mod cgroups;
mod choice;
mod conditions;
pub mod control;
mod doctor;
mod failure;
pub mod floor;
mod hardware;
pub mod history;
mod kernel;
pub mod lifecycle;
mod messages;
mod nodes;
pub mod plan;
mod plane;
mod preflight;
mod processes;
pub mod programs;
pub mod records;
pub mod report;
mod run;
mod sandbox;
mod signals;
mod stage;
pub mod stats;
mod switches;
mod timers;
mod traffic;
pub mod writer;

pub use doctor::{Doctor, doctor};
pub use failure::{EXIT_DISTURBED, EXIT_HOST, EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_OK, Failure};
pub use plane::Window;
pub use timers::{Timers, timers};

use plan::Plan;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs the plan in a file and returns the exit code: 0 well, 1 our failure or a plan that makes no sense, 3 the host cannot do it (or a
/// program is missing or died), 4 measured but disturbed, 130 interrupted.
///
/// The calling process must have one thread. It talks to its parent by lines of JSON on standard output, and stops in order at SIGINT,
/// SIGTERM, the line `stop` on standard input, or the end of standard input. It never touches the caller's namespaces otherwise:
/// it enters new ones, and everything it makes there vanishes with its processes.
#[must_use]
pub fn main(plan_path: &Path) -> i32 {
    let result = prepare(plan_path).and_then(|mut prepared| {
        let rootless = prepared.plan.force_rootless;
        let groups = cgroups::Cgroups::create(&prepared.plan)?.map(Arc::new);
        prepared.groups.clone_from(&groups);
        let mut keeper = hardware::Keeper::start(&prepared.plan)?;
        let listing = control::registry::Entry::create(&prepared.plan)?;
        let entry = listing.map(|(entry, listener)| {
            prepared.listener = Some(listener);
            entry
        });
        // With our own by now.
        prepared.sockets = nodes::host_sockets();
        let result = sandbox::run(rootless, |sandbox| run::inside(prepared, sandbox, keeper.as_mut()));
        let restored = keeper.is_none_or(hardware::Keeper::release);
        if let Some(entry) = entry {
            entry.remove();
        }
        if let Some(groups) = groups {
            groups.remove();
        }
        match result {
            Ok(_) if !restored => Err(Failure::Host(
                "an interface that the run took could not be given back as it was; see ip link and ip address".to_owned(),
            )),
            result => result,
        }
    });
    result.unwrap_or_else(|failure| {
        let exit_code = failure.exit_code();
        messages::emit(&messages::Message::Failed {
            exit_code,
            message: &failure.to_string(),
        });
        exit_code
    })
}

/// Removes what dead runs left: entries of these registries, cgroups. What is dying is waited for, up to two seconds a registry.
pub fn sweep(registries: &[PathBuf]) {
    registries
        .iter()
        .for_each(|folder| control::registry::sweep(folder));
    cgroups::sweep_all();
}

/// Everything that can be wrong before anything exists.
fn prepare(path: &Path) -> Result<run::Prepared, Failure> {
    let text = std::fs::read(path)
        .map_err(|error| Failure::internal(format!("cannot read {}", path.display()), error))?;
    let mut plan: Plan = serde_json::from_slice(&text)
        .map_err(|error| Failure::internal(format!("{} is no emulation plan", path.display()), error))?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if plan.schema != plan::SCHEMA {
        return Err(Failure::internal(
            "plan: schema",
            format!("{} is not {}", plan.schema, plan::SCHEMA),
        ));
    }
    if plan.run_id.is_empty() || plan.run_id.len() > 64 || !plan.run_id.chars().all(is_plain) {
        return Err(Failure::internal(
            "plan: run_id",
            "must be letters, digits, '-' and '_', at most 64",
        ));
    }
    let network = timebound_model::compile(&plan.network)
        .map_err(|errors| Failure::internal("plan: network", errors))?;
    let changes = conditions::changes(&plan, &network)?;
    let hosts: std::collections::BTreeSet<_> = plan.hosts.iter().map(|host| &host.node).collect();
    if let Some(event) = plan.lifecycle.iter().find(|event| !hosts.contains(&event.node)) {
        return Err(Failure::internal(
            "plan: lifecycle",
            format!("no host {:?}", event.node),
        ));
    }
    hardware::check(&plan)?;
    hardware::probe(&mut plan)?;
    let outside = hardware::tunnel::outside(&plan, &network)?;
    let switches = match switches::Switches::of(&plan, &network)? {
        Some(switches) => Some((switches, switches::Ovs::find(&plan)?)),
        None => None,
    };
    let programs = programs::Programs::find(&plan)?;
    Ok(run::Prepared {
        listener: None,
        plan,
        network: Arc::new(network),
        changes,
        switches,
        outside,
        programs,
        groups: None,
        sockets: Vec::new(),
    })
}
