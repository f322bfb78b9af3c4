//! Tests that do not apply on this machine, as `tests/tools.py` has it for those in Python: by the same words, into the same list.

use std::io::Write;

/// Says why the running test does not apply here; with TIMEBOUND_CI=1 that is a failure.
pub(crate) fn skip(reason: &str) {
    let insists = std::env::var_os("TIMEBOUND_CI").is_some_and(|value| value == "1");
    assert!(!insists, "skipped, but TIMEBOUND_CI is set: {reason}");
    println!("skipped: {reason}");
    let Some(list) = std::env::var_os("TIMEBOUND_SKIPS") else {
        return;
    };
    let reason = reason.replace(['\t', '\n'], " ");
    let thread = std::thread::current();
    // With one thread tests run in the main one, and have no name there: then the whole file is meant.
    let test = thread.name().filter(|name| *name != "main").unwrap_or("");
    let line = format!("cargo\t{}\t{test}\t{reason}\n", env!("CARGO_CRATE_NAME"));
    let file = std::fs::File::options().append(true).create(true).open(&list);
    // One write: other tests add their lines at the same time.
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", list.display()));
}

/// Where a program is; Debian keeps servers where the path of a user does not look.
pub(crate) fn find(tool: &str) -> Option<std::path::PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(Into::into))
        .map(|folder| folder.join(tool))
        .find(|path| path.is_file())
}

/// Are these all here? Skips the test otherwise.
pub(crate) fn need(tools: &[&str]) -> bool {
    let missing: Vec<&str> = tools
        .iter()
        .copied()
        .filter(|tool| find(tool).is_none())
        .collect();
    if !missing.is_empty() {
        skip(&format!("not installed: {}", missing.join(", ")));
    }
    missing.is_empty()
}
