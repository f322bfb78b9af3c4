//! A build without endpoints refuses plans that ask for them.

use super::Word;
use super::split::Part;
use crate::failure::Failure;
use crate::nodes::Nodes;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Never made: [`parse`] refuses.
pub(super) enum Parsed {}

pub(super) fn parse(_plan: &serde_json::Value) -> Result<Parsed, Failure> {
    Err(Failure::Host(
        "this build has no built-in endpoints (feature `endpoints`)".to_owned(),
    ))
}

pub(super) fn run(plan: &Parsed, _nodes: &Nodes, _output: &Path, _stream: UnixStream) {
    match *plan {}
}

pub(super) fn run_alone(part: &Part, _nodes: &Nodes, _output: &Path, _stream: UnixStream) {
    match part.plan {}
}

pub(super) fn say(_stream: &UnixStream, _word: &Word) {}

pub(super) fn merge_records(
    _files: &mut dyn Iterator<Item = &Path>,
    _output: &Path,
    _zero: i64,
) -> io::Result<()> {
    Ok(())
}

pub(super) fn merge_summaries(_parts: Vec<serde_json::Value>) -> serde_json::Value {
    serde_json::Value::Null
}
