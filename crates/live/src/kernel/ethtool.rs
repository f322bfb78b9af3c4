//! SIOCETHTOOL: turn off what a real wire would not do.

use std::io;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// ETHTOOL_SGSO, STSO, SSG, STXCSUM, SGRO (linux/ethtool.h), in an order in which each may be turned off.
const OFF: [u32; 5] = [0x24, 0x1f, 0x19, 0x17, 0x2c];

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
    for command in OFF {
        let mut value = EthtoolValue { command, data: 0 };
        let mut name = [0; libc::IFNAMSIZ];
        name[..interface.len()].copy_from_slice(interface.as_bytes());
        let mut request = InterfaceRequest {
            name,
            data: &raw mut value,
            padding: [0; 16],
        };
        // SAFETY: the request is at least as large as struct ifreq and lives, with its value, for the call.
        super::check(unsafe { libc::ioctl(fd, SIOCETHTOOL, &raw mut request) })?;
    }
    Ok(())
}
