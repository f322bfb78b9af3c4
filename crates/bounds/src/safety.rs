//! How far an analysis may be trusted, carried beside its figures wherever they go.

use crate::result::Analysis;
use serde::Serialize;

/// May a figure be promised?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Safety {
    /// No run exceeds it.
    Safe,
    /// Close to the truth, but optimistic in corners: rare runs exceed it.
    Experimental,
    /// Runs are known that exceed it. For comparison with what was published only.
    Unsafe,
}

/// An analysis with its method's name and label. In JSON both lie beside the analysis's own keys.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Labelled {
    pub method: &'static str,
    pub safety: Safety,
    #[serde(flatten)]
    pub analysis: Analysis,
}
