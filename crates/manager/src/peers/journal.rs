//! What the broker has been given with QoS 2, on disk, so that a manager that is started again gives it nothing twice.
//!
//! A file of lines, appended to before the broker is told, written anew without what is over when it has grown. A line that the end of the process cut
//! off counts as not there. It survives the end of the process; it is not forced to the disk with every line, so the end of the
//! machine may cost the last ones.
//!
//! | line | when |
//! |---|---|
//! | `P CLASS PACKET LIFE NUMBER END KEY ORIGIN` | before the message is sent to the broker, with this packet identifier |
//! | `R CLASS PACKET` | the broker has it (PUBREC); before PUBREL |
//! | `C CLASS PACKET` | it is through (PUBCOMP); the identifier is free |
//! | `N CLASS PACKET` | the broker did not want it |
//! | `F KEY ORIGIN` | its publisher has released it |

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use timebound_protocol::peer::StreamId;
use timebound_protocol::peer::injector::Record;

/// Lines beyond those that count, before the file is written anew.
const SLACK: usize = 10_000;

/// How far a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Published,
    Released,
    Completed,
}

/// A message that is not released by its publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) stage: Stage,
    pub(super) class: u8,
    pub(super) packet: u16,
    pub(super) stream: StreamId,
    pub(super) end: u64,
}

/// The file and what counts in it.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    lines: usize,
    /// By origin and key.
    entries: BTreeMap<(String, u64), Entry>,
    packets: BTreeMap<(u8, u16), (String, u64)>,
}

impl Journal {
    /// Reads the file, or makes one, and keeps others from it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = appending(path)?;
        file.try_lock()
            .map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, "another manager has it open"))?;
        let text = String::from_utf8_lossy(&std::fs::read(path)?).into_owned();
        let mut journal = Self {
            path: path.to_owned(),
            file,
            lines: 0,
            entries: BTreeMap::new(),
            packets: BTreeMap::new(),
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            // A line that cannot be read says nothing.
            let _ = journal.take(line);
        }
        journal.rewrite()?;
        Ok(journal)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, u64, &Entry)> {
        let entries = self.entries.iter();
        entries.map(|((origin, key), entry)| (origin.as_str(), *key, entry))
    }

    fn take(&mut self, line: &str) -> Option<()> {
        // The name of the origin is the last word, whatever is in it.
        let mut words = line.splitn(if line.starts_with('F') { 3 } else { 8 }, ' ');
        match words.next()? {
            "P" => {
                let class = words.next()?.parse().ok()?;
                let packet = words.next()?.parse().ok()?;
                let life = words.next()?.parse().ok()?;
                let number = words.next()?.parse().ok()?;
                let end = words.next()?.parse().ok()?;
                let key = words.next()?.parse().ok()?;
                let at = (words.next()?.to_owned(), key);
                let stream = StreamId { life, number };
                self.packets.insert((class, packet), at.clone());
                let entry = Entry {
                    stage: Stage::Published,
                    class,
                    packet,
                    stream,
                    end,
                };
                self.entries.insert(at, entry);
            }
            step @ ("R" | "C" | "N") => {
                let packet = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                self.step(step, packet);
            }
            "F" => {
                let key = words.next()?.parse().ok()?;
                self.entries.remove(&(words.next()?.to_owned(), key));
            }
            _ => return None,
        }
        Some(())
    }

    fn step(&mut self, step: &str, packet: (u8, u16)) {
        let Some(at) = self.packets.get(&packet) else {
            return;
        };
        // Another message may have its key by now.
        let is_its = |entry: &&mut Entry| (entry.class, entry.packet) == packet;
        match (step, self.entries.get_mut(at).filter(is_its)) {
            ("R", Some(entry)) => entry.stage = Stage::Released,
            ("C", Some(entry)) => entry.stage = Stage::Completed,
            ("N", Some(_)) => drop(self.entries.remove(at)),
            _ => {}
        }
        if step != "R" {
            self.packets.remove(&packet);
        }
    }

    /// Writes down what the client of a class says; `origin` is that of the token.
    pub(super) fn record(&mut self, class: u8, record: &Record, origin: &str) -> io::Result<()> {
        let line = match record {
            Record::Published { token, .. } if token.key == 0 => return Ok(()),
            Record::Published { packet, token } => {
                let StreamId { life, number } = token.stream;
                let (end, key) = (token.end, token.key);
                format!("P {class} {packet} {life} {number} {end} {key} {origin}\n")
            }
            Record::Released { packet } => format!("R {class} {packet}\n"),
            Record::Completed { packet, delivered } => {
                let step = if *delivered { "C" } else { "N" };
                format!("{step} {class} {packet}\n")
            }
        };
        self.append(&line)
    }

    /// Its publisher has released a message.
    pub(super) fn forget(&mut self, origin: &str, key: u64) -> io::Result<()> {
        if self.entries.contains_key(&(origin.to_owned(), key)) {
            self.append(&format!("F {key} {origin}\n"))?;
        }
        Ok(())
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        self.take(line.trim_end());
        self.lines += 1;
        self.file.write_all(line.as_bytes())?;
        if self.lines > 4 * self.entries.len() + SLACK {
            self.rewrite()?;
        }
        Ok(())
    }

    /// Puts a file with what counts in the place of this one.
    fn rewrite(&mut self) -> io::Result<()> {
        let mut text = String::new();
        self.lines = 0;
        for ((origin, key), entry) in &self.entries {
            let StreamId { life, number } = entry.stream;
            let (class, packet, end) = (entry.class, entry.packet, entry.end);
            text += &format!("P {class} {packet} {life} {number} {end} {key} {origin}\n");
            text += &match entry.stage {
                Stage::Published => String::new(),
                Stage::Released => format!("R {class} {packet}\n"),
                Stage::Completed => format!("C {class} {packet}\n"),
            };
            self.lines += 1;
        }
        let mut name = self.path.clone().into_os_string();
        name.push(".new");
        let mut file = appending(Path::new(&name))?;
        file.set_len(0)?;
        file.try_lock()
            .map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        std::fs::rename(&name, &self.path)?;
        self.file = file;
        Ok(())
    }
}

fn appending(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use timebound_protocol::peer::injector::Token;

    fn path(name: &str) -> PathBuf {
        let file = format!("timebound-journal-{}-{name}", std::process::id());
        std::env::temp_dir().join(file)
    }

    fn published(packet: u16, key: u64, end: u64) -> Record {
        let stream = StreamId { life: 7, number: 1 };
        let token = Token {
            peer: 0,
            stream,
            end,
            key,
        };
        Record::Published { packet, token }
    }

    fn found(journal: &Journal) -> Vec<(String, u64, Stage, u16)> {
        let entries = journal.entries();
        entries
            .map(|(origin, key, entry)| (origin.to_owned(), key, entry.stage, entry.packet))
            .collect()
    }

    #[test]
    fn what_was_written_is_there_in_the_next_life() {
        let path = path("life");
        let delivered = true;
        {
            let mut journal = Journal::open(&path).unwrap();
            assert!(Journal::open(&path).is_err(), "two managers, one file");
            for (packet, key) in [(1, 10), (2, 20), (3, 30), (4, 40)] {
                journal.record(5, &published(packet, key, key), "m 1").unwrap();
            }
            journal.record(5, &Record::Released { packet: 2 }, "").unwrap();
            for packet in [3, 4] {
                journal.record(5, &Record::Released { packet }, "").unwrap();
                let record = Record::Completed { packet, delivered };
                journal.record(5, &record, "").unwrap();
            }
            journal.forget("m 1", 40).unwrap();
            // A new message with the key of one that is through.
            journal.record(5, &published(4, 30, 31), "m 1").unwrap();
            // The end of the process, in the middle of a line.
            journal.file.write_all(b"F 10 m").unwrap();
        }
        let m = |key, stage, packet| ("m 1".to_owned(), key, stage, packet);
        let expected = [
            m(10, Stage::Published, 1),
            m(20, Stage::Released, 2),
            m(30, Stage::Published, 4),
        ];
        for _ in 0..2 {
            let journal = Journal::open(&path).unwrap();
            assert_eq!(found(&journal), expected);
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_has_grown_is_written_anew() {
        let path = path("grown");
        let mut journal = Journal::open(&path).unwrap();
        for end in 1..=u64::try_from(SLACK).unwrap() {
            journal.record(1, &published(1, 9, end), "m").unwrap();
            journal.forget("m", 9).unwrap();
        }
        drop(journal);
        let length = std::fs::metadata(&path).unwrap().len();
        assert!(length < 400_000, "{length}");
        assert!(found(&Journal::open(&path).unwrap()).is_empty());
        std::fs::remove_file(&path).unwrap();
    }
}
