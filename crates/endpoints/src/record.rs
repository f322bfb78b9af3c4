//! `endpoints.bin`: one record of 40 bytes per message sent, received or acknowledged.
//!
//! | offset | type | content |
//! |---|---|---|
//! | 0 | u8 | kind: 0 sent, 1 received, 2 acknowledged (PUBACK or PUBCOMP at the publisher) |
//! | 1 | u8 | quality of service |
//! | 2 | u16 | flags: bit 0 MQTT duplicate flag; bit 1 sent: it had waited for room in the socket or at the broker |
//! | 4 | u32 | flow |
//! | 8 | u32 | receiver; 4294967295 unless received |
//! | 12 | u32 | sequence; of a received message below 24 bytes as far as order and low bytes tell ([`timebound_wire::short`]) |
//! | 16 | u32 | size of the payload |
//! | 20 | u32 | reserved, 0 |
//! | 24 | i64 | nominal release; for received messages the send time that stood in the payload (of one without room for it: `time`) |
//! | 32 | i64 | time: sent = right before the write, received and acknowledged = when the packet was decoded |
//!
//! All little-endian, times in ns since the epoch of the run's clock. Records of a run that was cut off are whole but for the last.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;

/// Size of one record.
pub const RECORD_BYTES: usize = 40;
/// `receiver` of records that have none.
pub const NO_RECEIVER: u32 = u32::MAX;

/// What happened to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Sent = 0,
    Received = 1,
    Acknowledged = 2,
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    pub kind: Kind,
    pub qos: u8,
    pub flags: u16,
    pub flow: u32,
    pub receiver: u32,
    pub sequence: u32,
    pub size: u32,
    pub nominal_ns: i64,
    pub time_ns: i64,
}

/// MQTT duplicate flag in [`Record::flags`].
pub const FLAG_DUPLICATE: u16 = 1;
/// In [`Record::flags`] of a message that was sent: the client had it in time, and the connection did not take it then.
pub const FLAG_HELD: u16 = 2;

impl Record {
    #[must_use]
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = self.qos;
        bytes[2..4].copy_from_slice(&self.flags.to_le_bytes());
        for (at, value) in [
            (4, self.flow),
            (8, self.receiver),
            (12, self.sequence),
            (16, self.size),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes[24..32].copy_from_slice(&self.nominal_ns.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.time_ns.to_le_bytes());
        bytes
    }

    /// Reads a record; `None` if its kind does not exist.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let i64_at = |at: usize| i64::from(u32_at(at)) | (i64::from(u32_at(at + 4)) << 32);
        Some(Self {
            kind: match bytes[0] {
                0 => Kind::Sent,
                1 => Kind::Received,
                2 => Kind::Acknowledged,
                _ => return None,
            },
            qos: bytes[1],
            flags: u16::from_le_bytes([bytes[2], bytes[3]]),
            flow: u32_at(4),
            receiver: u32_at(8),
            sequence: u32_at(12),
            size: u32_at(16),
            nominal_ns: i64_at(24),
            time_ns: i64_at(32),
        })
    }
}

/// All whole records of a file.
///
/// # Errors
/// Whatever the file system says; records of unknown kind are `InvalidData`.
pub fn read_records(path: &Path) -> io::Result<Vec<Record>> {
    let bytes = std::fs::read(path)?;
    let (records, _cut_off) = bytes.as_chunks::<RECORD_BYTES>();
    records
        .iter()
        .map(|bytes| Record::from_bytes(bytes).ok_or_else(|| io::Error::other("record of unknown kind")))
        .collect()
}

/// Buffer size at which records go to the writer thread.
const BATCH: usize = 6000 * RECORD_BYTES;
/// Likewise where no thread writes.
const SMALL_BATCH: usize = 200 * RECORD_BYTES;
/// Buffers in use at most; beyond that the traffic thread waits for the disk rather than losing records.
const BUFFERS: usize = 64;

/// Collects records without system calls and hands them on when told to.
#[derive(Debug)]
pub struct Recorder {
    buffer: Vec<u8>,
    batch: usize,
    sink: Sink,
}

/// Where full buffers go.
#[derive(Debug)]
enum Sink {
    /// A thread of its own writes them, so that a busy traffic thread never waits for a disk.
    Thread {
        full: Option<SyncSender<Vec<u8>>>,
        empty: Receiver<Vec<u8>>,
        writer: Option<JoinHandle<io::Result<()>>>,
    },
    /// Written at once: for endpoints that share a host with hundreds of their like and have little to say.
    File(File),
}

impl Recorder {
    /// Creates (or empties) the file, and a thread that writes it.
    ///
    /// # Errors
    /// When the file cannot be created or the thread not be started.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        let (full, filled) = sync_channel(BUFFERS);
        let (emptied, empty) = channel();
        let writer = std::thread::Builder::new()
            .name("timebound-records".to_owned())
            .spawn(move || write_all(file, &filled, &emptied))?;
        Ok(Self {
            buffer: Vec::with_capacity(2 * BATCH),
            batch: BATCH,
            sink: Sink::Thread {
                full: Some(full),
                empty,
                writer: Some(writer),
            },
        })
    }

    /// Opens the file behind its last whole record (a predecessor may have been killed while it wrote); no thread.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn append(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        let length = file.metadata()?.len();
        file.set_len(length - length % RECORD_BYTES as u64)?;
        Ok(Self {
            buffer: Vec::new(),
            batch: SMALL_BATCH,
            sink: Sink::File(file),
        })
    }

    /// Adds a record.
    #[inline]
    pub fn push(&mut self, record: &Record) {
        self.buffer.extend_from_slice(&record.to_bytes());
    }

    /// Is there enough for the writer?
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.buffer.len() >= self.batch
    }

    /// Is there nothing to write?
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Hands what there is to the writer.
    ///
    /// # Errors
    /// What stopped the writer (a full disk, for one).
    pub fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let (full, empty) = match &mut self.sink {
            Sink::File(file) => {
                file.write_all(&self.buffer)?;
                self.buffer.clear();
                return Ok(());
            }
            Sink::Thread { full, empty, .. } => (full, empty),
        };
        let fresh = match empty.try_recv() {
            Ok(buffer) => buffer,
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => Vec::with_capacity(2 * BATCH),
        };
        let filled = std::mem::replace(&mut self.buffer, fresh);
        match full.as_ref().map(|full| full.send(filled)) {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => self.join(),
        }
    }

    /// Writes what is left and waits for it.
    ///
    /// # Errors
    /// What stopped the writer.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        let Sink::Thread { full, writer, .. } = &mut self.sink else {
            return Ok(());
        };
        *full = None;
        match writer.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the writer of records panicked")),
            None => Err(io::Error::other("the writer of records had stopped")),
        }
    }
}

fn write_all(mut file: File, filled: &Receiver<Vec<u8>>, emptied: &Sender<Vec<u8>>) -> io::Result<()> {
    for mut buffer in filled {
        file.write_all(&buffer)?;
        buffer.clear();
        // The recorder may be gone already: then nobody needs the buffer.
        let _ = emptied.send(buffer);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_come_back(kind in 0u8..4, qos: u8, flags: u16, words: [u32; 4], nominal_ns: i64, time_ns: i64) {
            let mut bytes = [0; RECORD_BYTES];
            bytes[0] = kind;
            let Some(blank) = Record::from_bytes(&bytes) else {
                prop_assert_eq!(kind, 3);
                return Ok(());
            };
            let [flow, receiver, sequence, size] = words;
            let record = Record { qos, flags, flow, receiver, sequence, size, nominal_ns, time_ns, ..blank };
            prop_assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record));
        }
    }

    #[test]
    fn a_successor_goes_on_behind_the_last_whole_record() {
        let path = std::env::temp_dir().join(format!("timebound-append-{}.bin", std::process::id()));
        std::fs::write(&path, [0; RECORD_BYTES + 7]).unwrap();
        let record = Record::from_bytes(&[1; RECORD_BYTES]).unwrap();
        let mut recorder = Recorder::append(&path).unwrap();
        recorder.push(&record);
        recorder.finish().unwrap();
        let found = read_records(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((found.len(), found[1]), (2, record));
    }

    #[test]
    fn a_full_disk_is_told() {
        let mut recorder = Recorder::create(Path::new("/dev/full")).unwrap();
        let record = Record::from_bytes(&[0; RECORD_BYTES]).unwrap();
        recorder.push(&record);
        let error = recorder.flush().and_then(|()| recorder.finish()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    }
}
