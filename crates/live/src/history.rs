//! `lateness.csv`: the emulator's own error over time, one line per window of 100 ms and thread of the data plane.
//!
//! Written as it happens, so that an interrupted run keeps it; read again when the run is judged ([`crate::certificate`]).
//! Columns: those of [`Window`], and `steal` and `jiffies`: what a hypervisor took of the CPUs' time in the window and how much
//! time that was for all CPUs together, in ticks of `/proc/stat` (proc_stat(5)).

use crate::plane::Window;
use crate::stats;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

/// Its name in the run folder.
pub const HISTORY_FILE: &str = "lateness.csv";
/// First line of the file.
pub const HISTORY_COLUMNS: &str = "start_ns,end_ns,thread,frames,p50_ns,p99_ns,max_ns,late,early,ring_lost,refused,clock_steps,overruns,\
                                   overrun_ns,gap_ns,gap_end_ns,cpu_ns,wait_ns,steal,jiffies";
const COLUMNS: usize = 20;

/// A line of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    pub window: Window,
    /// Ticks that a hypervisor took away, and ticks in all.
    pub steal: u64,
    pub jiffies: u64,
}

/// A line that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{HISTORY_FILE}:{line}: {what}")]
pub struct HistoryError {
    pub line: usize,
    pub what: String,
}

/// The file while it grows.
pub(crate) struct HistoryFile {
    file: BufWriter<File>,
    ticks: (u64, u64),
}

impl HistoryFile {
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(folder.join(HISTORY_FILE))?);
        writeln!(file, "{HISTORY_COLUMNS}")?;
        Ok(Self {
            file,
            ticks: stats::cpu_times(),
        })
    }

    /// The measured run begins: what was stolen before does not count.
    pub(crate) fn begin(&mut self) {
        self.ticks = stats::cpu_times();
    }

    pub(crate) fn write(&mut self, window: &Window) -> io::Result<()> {
        let ticks = stats::cpu_times();
        let moment = Moment {
            window: *window,
            steal: ticks.0.saturating_sub(self.ticks.0),
            jiffies: ticks.1.saturating_sub(self.ticks.1),
        };
        self.ticks = ticks;
        writeln!(self.file, "{}", moment.line())
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Moment {
    fn line(&self) -> String {
        let w = &self.window;
        let numbers: [u64; COLUMNS] = [
            w.start_ns,
            w.end_ns,
            w.thread.into(),
            w.frames.into(),
            w.p50_ns,
            w.p99_ns,
            w.max_ns,
            w.late.into(),
            w.early.into(),
            w.ring_lost.into(),
            w.refused.into(),
            w.clock_steps.into(),
            w.overruns.into(),
            w.overrun_ns,
            w.gap_ns,
            w.gap_end_ns,
            w.cpu_ns,
            w.wait_ns,
            self.steal,
            self.jiffies,
        ];
        numbers.map(|number| number.to_string()).join(",")
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut numbers = [0u64; COLUMNS];
        let mut parts = text.split(',');
        for (number, name) in numbers.iter_mut().zip(HISTORY_COLUMNS.split(',')) {
            let part = parts.next().ok_or_else(|| format!("{name} is missing"))?;
            *number = part
                .parse()
                .map_err(|_| format!("{name}: {part:?} is no count"))?;
        }
        if parts.next().is_some() {
            return Err(format!("more than {COLUMNS} columns"));
        }
        let small = |index: usize| {
            u32::try_from(numbers[index]).map_err(|_| format!("{} is no count of 32 bits", numbers[index]))
        };
        let window = Window {
            start_ns: numbers[0],
            end_ns: numbers[1],
            thread: small(2)?,
            frames: small(3)?,
            p50_ns: numbers[4],
            p99_ns: numbers[5],
            max_ns: numbers[6],
            late: small(7)?,
            early: small(8)?,
            ring_lost: small(9)?,
            refused: small(10)?,
            clock_steps: small(11)?,
            overruns: small(12)?,
            overrun_ns: numbers[13],
            gap_ns: numbers[14],
            gap_end_ns: numbers[15],
            cpu_ns: numbers[16],
            wait_ns: numbers[17],
        };
        if window.end_ns < window.start_ns {
            return Err("the window ends before it starts".to_owned());
        }
        Ok(Self {
            window,
            steal: numbers[18],
            jiffies: numbers[19],
        })
    }
}

/// Reads a history, line by line: a day of it is 100 MB.
///
/// # Errors
/// A first line that is not [`HISTORY_COLUMNS`], and any line that is no window. A last line that was cut off (the run was
/// killed) is left out.
pub fn read(file: impl io::Read) -> impl Iterator<Item = Result<Moment, HistoryError>> {
    let mut lines = BufReader::new(file);
    let mut number = 0;
    std::iter::from_fn(move || {
        loop {
            let mut text = String::new();
            number += 1;
            let fail = |what: String| Some(Err(HistoryError { line: number, what }));
            match lines.read_line(&mut text) {
                Err(error) => return fail(error.to_string()),
                Ok(_) if !text.ends_with('\n') => return None,
                Ok(_) => {}
            }
            let text = text.trim_end();
            if number > 1 {
                return Some(Moment::parse(text).map_err(|what| HistoryError { line: number, what }));
            }
            if text != HISTORY_COLUMNS {
                return fail("this is no history of lateness".to_owned());
            }
        }
    })
    .fuse()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[&str]) -> String {
        std::iter::once(HISTORY_COLUMNS)
            .chain(lines.iter().copied())
            .map(|line| format!("{line}\n"))
            .collect()
    }

    #[test]
    fn what_is_written_is_read_again_column_by_column() {
        let line = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20";
        let moment = Moment::parse(line).unwrap();
        assert_eq!(moment.line(), line);
        assert_eq!(
            (moment.window.gap_ns, moment.window.wait_ns, moment.jiffies),
            (15, 18, 20)
        );
        assert_eq!(HISTORY_COLUMNS.split(',').count(), COLUMNS);
        let all: Vec<_> = read(text(&[line, line]).as_bytes()).collect();
        assert_eq!(all, [Ok(moment), Ok(moment)]);
    }

    #[test]
    fn a_line_that_was_cut_off_is_left_out_and_nonsense_is_named() {
        let mut whole = text(&["0,2,0,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20"]);
        whole.push_str("0,2,0,4");
        assert_eq!(read(whole.as_bytes()).filter(Result::is_ok).count(), 1);
        assert_eq!(read(whole.as_bytes()).count(), 1);
        for (line, what) in [
            ("0,2,x", "thread: \"x\" is no count"),
            ("0,2", "thread is missing"),
            (
                "9,2,0,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20",
                "the window ends before it starts",
            ),
            (
                "0,2,0,4294967296,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20",
                "4294967296 is no count of 32 bits",
            ),
            (
                "0,2,0,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21",
                "more than 20 columns",
            ),
        ] {
            let found = read(text(&[line]).as_bytes()).next().unwrap().unwrap_err();
            assert_eq!((found.line, found.what.as_str()), (2, what));
        }
        assert_eq!(read(&b"a,b\n1,2\n"[..]).next().unwrap().unwrap_err().line, 1);
    }

    #[test]
    fn a_damaged_file_never_panics_and_what_is_read_is_what_stands_there() {
        let whole = text(&[
            "0,100,0,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20",
            "100,200,0,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20",
        ]);
        for place in 0..whole.len() {
            for byte in [b',', b'\n', b'0', b'9', b'-', b'x', 0, 0xFF] {
                let mut bytes = whole.clone().into_bytes();
                bytes[place] = byte;
                let bytes = &bytes[..];
                // An error of a line does not stop the reader, so it must end by itself.
                for moment in read(bytes).take(10).flatten() {
                    let line = moment.line();
                    assert!(
                        String::from_utf8_lossy(bytes).contains(&line) || byte == b'0',
                        "{line} is not in the file"
                    );
                }
                assert!(read(bytes).count() <= 5);
            }
            let cut = &whole[..place];
            let lines = cut.matches('\n').count().saturating_sub(1);
            assert_eq!(read(cut.as_bytes()).filter(Result::is_ok).count(), lines);
        }
    }
}
