//! Safe worst-case bounds: a compiled [`timebound_model::Network`] in; latency bounds per stream and receiver, and utilisation
//! and backlog per port out, or the reason why there is no number.
//!
//! This room is pure: it does no I/O, reads no clock, draws no random number, and knows neither fabric nor simulator.

mod admission;
pub mod assign;
mod bundle;
mod cause;
mod curves;
mod demand;
mod exact;
mod explain;
mod flow;
mod layout;
mod level;
mod once;
mod options;
mod order;
mod paths;
mod propagation;
pub mod published;
mod report;
mod result;
mod safety;
mod server;
mod service;
mod settled;
mod special;
mod train;
mod trajectory;
mod utilisation;

pub use admission::{
    Admission, AdmissionOptions, Admitted, Alternatives, Breach, Decision, Joined, Misuse, Refusal,
};
pub use exact::Exact;
pub use explain::{
    BlockedBy, Blocking, Credit, Explainer, Explanation, HopExplanation, Interference, NotExplained, Parts,
    explain,
};
pub use options::{Method, Options};
pub use result::{
    Analysis, ClassResult, HopResult, LeafResult, LookedAt, Outcome, PortResult, StreamResult, Utilisation,
};
pub use safety::{Labelled, Safety};
pub use server::{Job, Service, server};
pub use trajectory::trajectory;

use layout::Layout;
use propagation::Propagation;
use timebound_model::Network;

/// Worst-case latency bounds by a safe method.
///
/// A bound holds for every frame that is delivered, as long as each source keeps to its declared period and jitter, the classes carry what
/// is declared, and undeclared traffic stays below every declared class of a strict-priority port with frames of at most
/// [`Network::best_effort_frame`]. At a FIFO port nothing is below anything: one undeclared frame is allowed for, steady undeclared
/// traffic voids the bound unless it is declared.
///
/// Every staircase that the calculus shapes is one that the holistic approach takes as it is, and the rest is the same: port by port
/// the calculus is not above the holistic approach, but for the nanoseconds by which slow lines are rounded up; there
/// [`Method::PortByPort`] works out both and takes the less. It is settled by one pass. [`Method::Bound`] starts from it.
#[must_use]
pub fn analyse(network: &Network, options: &Options) -> Analysis {
    let exact = Exact::of(network);
    let pass = settle(exact.network(), &exact.options(options));
    exact.rounded(report::assemble(&pass, options.threads.max(1)))
}

/// All that an analysis works out.
fn settle<'a>(network: &'a Network, options: &Options) -> Propagation<'a> {
    let layout = Layout::new(network, options);
    let mut pass = Propagation::run(network, layout, options.threads.max(1));
    if options.method == Method::Bound {
        pass.travel();
        pass.looked_at = once::tighten(&mut pass, options.effort);
    }
    pass
}

/// [`analyse`] by the holistic approach, whatever method the options name.
#[must_use]
pub fn holistic(network: &Network, options: &Options) -> Analysis {
    let options = Options {
        method: Method::Holistic,
        ..options.clone()
    };
    analyse(network, &options)
}
