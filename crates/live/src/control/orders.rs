//! Requests and answers as JSON. Pure: what arrives is anybody's bytes.

use crate::lifecycle;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Version of the contract.
pub const VERSION: u32 = 1;
/// Longest request, bytes, with its newline.
pub const LONGEST_LINE: usize = 256 * 1024;
/// Most arguments and variables of a command.
const MOST_WORDS: usize = 4096;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// The sender's number.
    pub id: u64,
    pub order: Order,
}

/// What a run can be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Order {
    Status,
    Exec(Exec),
    Signal(Signal),
    Node(Node),
    Top,
}

/// A command for one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    pub node: String,
    pub argv: Vec<String>,
    /// Added to the node's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working folder; the run folder where null.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// The one descriptor that comes with it is a terminal.
    #[serde(default)]
    pub terminal: bool,
}

impl Exec {
    /// How many descriptors come with it.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        if self.terminal { 1 } else { 3 }
    }
}

/// A signal for a command of the same connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signal {
    /// That of the `exec` request.
    pub id: u64,
    /// Its number, 1 to 31.
    pub signal: i32,
}

/// An order for nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub nodes: Vec<String>,
    pub order: lifecycle::Order,
}

/// Reads one line (without its newline).
///
/// # Errors
/// Why it is no request, in words that name what is wrong.
pub fn parse(line: &[u8]) -> Result<Request, String> {
    if line.len() >= LONGEST_LINE {
        return Err(format!("a request has at most {LONGEST_LINE} bytes"));
    }
    let request: Request = serde_json::from_slice(line).map_err(|error| format!("no request: {error}"))?;
    if request.version != VERSION {
        return Err(format!(
            "version {} of the contract is not spoken here, but {VERSION}",
            request.version
        ));
    }
    match &request.order {
        Order::Exec(exec) => check(exec)?,
        Order::Signal(signal) if !(1..=31).contains(&signal.signal) => {
            return Err(format!("{} is no signal", signal.signal));
        }
        _ => {}
    }
    Ok(request)
}

/// What the kernel would refuse in the child, where the reason is harder to tell.
fn check(exec: &Exec) -> Result<(), String> {
    if exec.argv.first().is_none_or(String::is_empty) {
        return Err("exec without a command".to_owned());
    }
    if exec.argv.len() > MOST_WORDS || exec.env.len() > MOST_WORDS {
        return Err(format!("more than {MOST_WORDS} arguments or variables"));
    }
    let names = exec.env.keys();
    if names.clone().any(|name| name.is_empty() || name.contains('=')) {
        return Err("a variable without a name, or with '=' in it".to_owned());
    }
    let folder = exec.folder.iter().filter_map(|folder| folder.to_str());
    let words = exec.argv.iter().chain(names).chain(exec.env.values());
    if words
        .map(String::as_str)
        .chain(folder)
        .any(|word| word.contains('\0'))
    {
        return Err("a word with a zero byte".to_owned());
    }
    Ok(())
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    pub id: u64,
    #[serde(flatten)]
    pub said: Said,
}

/// The kinds of answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    Ok(serde_json::Value),
    Error(String),
    Ended {
        exit_code: Option<i32>,
        signal: Option<i32>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn requests_are_read_as_documented() {
        let text = r#"{"version": 1, "id": 7, "order": {"exec": {"node": "h1", "argv": ["ping", "-c1", "10.0.0.2"]}}}"#;
        let request = parse(text.as_bytes()).unwrap();
        let Order::Exec(exec) = &request.order else {
            panic!()
        };
        assert_eq!((request.id, exec.node.as_str(), exec.descriptors()), (7, "h1", 3));
        assert_eq!(
            parse(br#"{"version":1,"id":0,"order":"status"}"#).unwrap().order,
            Order::Status
        );
        let text = r#"{"version":1,"id":1,"order":{"node":{"nodes":["h1","h2"],"order":"restart"}}}"#;
        let Order::Node(node) = parse(text.as_bytes()).unwrap().order else {
            panic!()
        };
        assert_eq!(node.order, lifecycle::Order::Restart);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "no request"),
            ("{}", "no request"),
            (r#"{"version":2,"id":1,"order":"status"}"#, "version 2"),
            (r#"{"version":1,"id":1,"order":"reboot"}"#, "unknown variant"),
            (
                r#"{"version":1,"id":1,"order":"status","more":1}"#,
                "unknown field",
            ),
            (r#"{"version":1,"id":-1,"order":"status"}"#, "no request"),
            (
                r#"{"version":1,"id":1,"order":{"exec":{"node":"h1","argv":[]}}}"#,
                "without a command",
            ),
            (
                r#"{"version":1,"id":1,"order":{"exec":{"node":"h1","argv":["a\u0000b"]}}}"#,
                "zero byte",
            ),
            (
                r#"{"version":1,"id":1,"order":{"exec":{"node":"h1","argv":["a"],"env":{"A=B":"c"}}}}"#,
                "'='",
            ),
            (
                r#"{"version":1,"id":1,"order":{"signal":{"id":1,"signal":64}}}"#,
                "no signal",
            ),
            (
                r#"{"version":1,"id":1,"order":{"node":{"nodes":["h1"],"order":"halt"}}}"#,
                "unknown variant",
            ),
        ] {
            assert!(said(text).contains(reason), "{text}: {}", said(text));
        }
        assert!(parse(&vec![b' '; LONGEST_LINE]).unwrap_err().contains("at most"));
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_overflow() {
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
        assert!(parse(format!("{}{}", r#"{"version":"#, "{\"a\":".repeat(20_000)).as_bytes()).is_err());
    }

    #[test]
    fn answers_are_flat() {
        let ended = Answer {
            id: 3,
            said: Said::Ended {
                exit_code: Some(1),
                signal: None,
            },
        };
        assert_eq!(
            serde_json::to_string(&ended).unwrap(),
            r#"{"id":3,"ended":{"exit_code":1,"signal":null}}"#
        );
        let refused = Answer {
            id: 4,
            said: Said::Error("no".to_owned()),
        };
        assert_eq!(
            serde_json::to_string(&refused).unwrap(),
            r#"{"id":4,"error":"no"}"#
        );
    }
}
