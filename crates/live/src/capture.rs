//! Captures as pcapng (draft-ietf-opsawg-pcapng), readable by Wireshark: one interface per port, stamps in ns.
//!
//! A stamp is the wall clock at the end of the frame's *virtual* transmission at the port, whatever the emulator's lateness.

use crate::failure::Failure;
use crate::plan::{CapturePlan, PortPlan};
use crate::plane::tap_header;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;
use timebound_model::{Network, PortId};

/// Bytes between data plane and writer.
const RING: usize = 16 << 20;
/// if_tsresol: 10^-9 s.
const NANOSECONDS: u8 = 9;

/// The writer's side of all captures.
pub(crate) struct Captures {
    ring: Option<rtrb::Consumer<u8>>,
    files: Vec<PcapNgWriter<BufWriter<File>>>,
    /// Of each interface over all files: (file, number in the file).
    interfaces: Vec<(usize, u32)>,
    /// Wall clock minus CLOCK_MONOTONIC.
    offset: i64,
}

/// For each port of the network: (interface number over all files, bytes to keep).
pub(crate) type Taps = Vec<Vec<(u32, u32)>>;

/// The port that a plan names.
pub(crate) fn find_port(network: &Network, plan: &PortPlan) -> Option<PortId> {
    let (from, to) = (network.node(&plan.from)?, network.node(&plan.to)?);
    let ports = network.nodes[from.index()].ports.iter().copied();
    ports
        .filter(|port| network.ports[port.index()].peer == to)
        .nth(plan.parallel as usize)
}

/// Creates the files of all captures.
///
/// # Errors
/// An unknown port, a file name that leaves the folder, or a file that cannot be created.
pub(crate) fn create(
    plans: &[CapturePlan],
    folder: &Path,
    network: &Network,
    offset: i64,
) -> Result<(Captures, Taps, Option<rtrb::Producer<u8>>), Failure> {
    let mut taps: Taps = vec![Vec::new(); network.ports.len()];
    if plans.is_empty() {
        return Ok((
            Captures {
                ring: None,
                files: Vec::new(),
                interfaces: Vec::new(),
                offset,
            },
            taps,
            None,
        ));
    }
    let folder = folder.join("captures");
    let cannot = |error: &dyn std::fmt::Display| Failure::host("cannot create a capture", error);
    std::fs::create_dir_all(&folder).map_err(|error| cannot(&error))?;
    let (mut files, mut interfaces) = (Vec::new(), Vec::new());
    for plan in plans {
        let bad = |why: String| Failure::internal(format!("plan: capture {:?}", plan.file), why);
        if Path::new(&plan.file).file_name() != Some(plan.file.as_ref()) {
            return Err(bad("must be a plain file name".to_owned()));
        }
        let file = File::create(folder.join(&plan.file)).map_err(|error| cannot(&error))?;
        let mut writer = PcapNgWriter::new(BufWriter::new(file)).map_err(|error| cannot(&error))?;
        for (number, wanted) in plan.ports.iter().enumerate() {
            let port = find_port(network, wanted).ok_or_else(|| {
                bad(format!(
                    "no port {}->{} (parallel {})",
                    wanted.from, wanted.to, wanted.parallel
                ))
            })?;
            taps[port.index()].push((interfaces.len() as u32, plan.snap_bytes));
            interfaces.push((files.len(), number as u32));
            let block = describe(network, port, plan.snap_bytes);
            writer.write_pcapng_block(block).map_err(|error| cannot(&error))?;
        }
        files.push(writer);
    }
    let (producer, consumer) = rtrb::RingBuffer::new(RING);
    Ok((
        Captures {
            ring: Some(consumer),
            files,
            interfaces,
            offset,
        },
        taps,
        Some(producer),
    ))
}

fn describe(network: &Network, port: PortId, snap: u32) -> InterfaceDescriptionBlock<'static> {
    let name = network.port_name(port);
    let rate = network.ports[port.index()].rate.0;
    InterfaceDescriptionBlock {
        linktype: DataLink::ETHERNET,
        snaplen: snap,
        options: vec![
            InterfaceDescriptionOption::IfDescription(Cow::Owned(format!(
                "egress port {name}, {rate} bit/s"
            ))),
            InterfaceDescriptionOption::IfName(Cow::Owned(name)),
            InterfaceDescriptionOption::IfSpeed(rate),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ],
    }
}

impl Captures {
    /// Writes the frames that wait.
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        // A frame is committed as one chunk, so header and bytes are there together.
        while let Ok(header) = ring.read_chunk(tap_header::LENGTH) {
            let fields: Vec<u8> = header.into_iter().collect();
            let header = tap_header::parse(&fields);
            let data: Vec<u8> = match ring.read_chunk(header.kept as usize) {
                Ok(chunk) => chunk.into_iter().collect(),
                Err(_) => return Err(io::Error::other("the capture queue is damaged")),
            };
            let (file, number) = self.interfaces[header.interface as usize];
            let block = EnhancedPacketBlock {
                interface_id: number,
                timestamp: Duration::from_nanos(header.time.saturating_add_signed(self.offset)),
                original_len: header.length,
                data: Cow::Owned(data),
                options: Vec::new(),
            };
            self.files[file]
                .write_pcapng_block(block)
                .map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Empties the files' buffers.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.drain()?;
        self.files.iter_mut().try_for_each(|file| file.get_mut().flush())
    }
}
