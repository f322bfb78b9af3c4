//! What the sandbox tells its parent: one JSON object a line on standard output.
//!
//! | event | fields |
//! |---|---|
//! | `phase` | `phase`: `network`, `preflight`, `setup`, `measure`, `stop` |
//! | `progress` | `run_ns` (run time), `duration_ns`, `frames` (received in all) |
//! | `log` | `level`: `info`, `warning`; `message` |
//! | `precision` | `precision`: that of `live.json` |
//! | `barrier` | `name`: `connect` or `start`; waits for `go NAME` (a run on two machines) |
//! | `failed` | `exit_code`, `message` |
//! | `done` | `exit_code`, `report`: path of `live.json` |
//!
//! `failed` or `done` is the last line.

use serde::Serialize;
use std::path::Path;

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Message<'a> {
    Phase {
        phase: &'a str,
    },
    Progress {
        run_ns: i64,
        duration_ns: u64,
        frames: u64,
    },
    Log {
        level: &'a str,
        message: &'a str,
    },
    Precision {
        precision: &'a crate::report::Precision,
    },
    Failed {
        exit_code: i32,
        message: &'a str,
    },
    /// Waits for `go NAME` on standard input.
    Barrier {
        name: &'a str,
    },
    Done {
        exit_code: i32,
        report: &'a Path,
    },
}

/// Writes one line. A parent that no longer listens is no reason to fail: the end of its life ends ours anyway.
pub(crate) fn emit(message: &Message<'_>) {
    let Ok(mut line) = serde_json::to_vec(message) else {
        return;
    };
    line.push(b'\n');
    let mut rest = &line[..];
    while !rest.is_empty() {
        // SAFETY: writes from a live slice. Not std's stdout: its lock may be held for ever by a thread lost in a fork.
        let written = unsafe { libc::write(1, rest.as_ptr().cast(), rest.len()) };
        if written <= 0 {
            return;
        }
        rest = &rest[written as usize..];
    }
}

pub(crate) fn phase(name: &str) {
    emit(&Message::Phase { phase: name });
}

pub(crate) fn warn(text: &str) {
    emit(&Message::Log {
        level: "warning",
        message: text,
    });
}
