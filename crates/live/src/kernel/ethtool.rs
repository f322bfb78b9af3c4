//! SIOCETHTOOL: turn off what a real wire would not do.

use std::io;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// ETHTOOL_SGSO, STSO, SSG, STXCSUM, SGRO (linux/ethtool.h), in an order in which each may be turned off.
const OFF: [u32; 5] = [0x24, 0x1f, 0x19, 0x17, 0x2c];

/// ETHTOOL_GGRO, SGRO, GFLAGS, SFLAGS and ETH_FLAG_LRO (linux/ethtool.h).
const GET_GRO: u32 = 0x2b;
const SET_GRO: u32 = 0x2c;
const GET_FLAGS: u32 = 0x25;
const SET_FLAGS: u32 = 0x26;
const FLAG_LRO: u32 = 1 << 15;

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    data: *mut EthtoolValue,
    padding: [u8; 16],
}

/// Turns transmit checksums, segmentation, scatter-gather and receive merging off on `interface` of the namespace in which
/// `fd` (any socket) was opened. With checksums left to a card that does not exist, ping works and TCP never connects.
///
/// # Errors
/// Of the ioctl.
pub(crate) fn offloads_off(fd: libc::c_int, interface: &str) -> io::Result<()> {
    OFF.iter()
        .try_for_each(|command| exchange(fd, interface, *command, 0).map(drop))
}

fn exchange(fd: libc::c_int, interface: &str, command: u32, data: u32) -> io::Result<u32> {
    let mut value = EthtoolValue { command, data };
    let mut name = [0; libc::IFNAMSIZ];
    name[..interface.len()].copy_from_slice(interface.as_bytes());
    let mut request = InterfaceRequest {
        name,
        data: &raw mut value,
        padding: [0; 16],
    };
    // SAFETY: the request is at least as large as struct ifreq and lives, with its value, for the call.
    super::check(unsafe { libc::ioctl(fd, SIOCETHTOOL, &raw mut request) })?;
    Ok(value.data)
}

/// Does the interface merge what it receives: in software (GRO), in hardware (LRO)? What cannot be asked is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merging {
    software: bool,
    hardware: bool,
}

/// Reads whether received frames are merged.
pub(crate) fn merging(fd: libc::c_int, interface: &str) -> Merging {
    let read = |command| exchange(fd, interface, command, 0).unwrap_or(0);
    Merging {
        software: read(GET_GRO) != 0,
        hardware: read(GET_FLAGS) & FLAG_LRO != 0,
    }
}

/// Sets it; merged frames are longer than any wire carries, and their own arrival times are lost.
///
/// # Errors
/// Of the ioctl.
pub(crate) fn set_merging(fd: libc::c_int, interface: &str, wanted: Merging) -> io::Result<()> {
    if merging(fd, interface).software != wanted.software {
        exchange(fd, interface, SET_GRO, wanted.software.into())?;
    }
    let flags = exchange(fd, interface, GET_FLAGS, 0).unwrap_or(0);
    if (flags & FLAG_LRO != 0) != wanted.hardware {
        exchange(fd, interface, SET_FLAGS, flags ^ FLAG_LRO)?;
    }
    Ok(())
}

impl Merging {
    pub(crate) const NONE: Self = Self {
        software: false,
        hardware: false,
    };
}
