"""Which package of Debian has what tests need and a machine may lack. Imports nothing: `scripts/skips` reads it on machines that have no more than Python."""

PACKAGES = {
    "ITGRecv": "d-itg",
    "ITGSend": "d-itg",
    "apt-get": "apt",
    "busybox": "busybox-static",
    "chromium": "chromium",
    "curl": "curl",
    "dnsmasq": "dnsmasq-base",
    "dpkg-deb": "dpkg",
    "dpkg-query": "dpkg",
    "ip": "iproute2",
    "iperf3": "iperf3",
    "libstream_out_rtp_plugin.so": "vlc-plugin-base",
    "mergecap": "tshark",
    "mosquitto": "mosquitto",
    "mosquitto_pub": "mosquitto-clients",
    "mosquitto_sub": "mosquitto-clients",
    "nft": "nftables",
    "nsenter": "util-linux",
    "ovs-ofctl": "openvswitch-switch",
    "ovs-vsctl": "openvswitch-switch",
    "ovs-vswitchd": "openvswitch-switch",
    "ovsdb-client": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ovsdb-tool": "openvswitch-switch",
    "qemu-system-x86_64": "qemu-system-x86",
    "tc": "iproute2",
    "tshark": "tshark",
    "udhcpc": "udhcpc",
    "unshare": "util-linux",
    "vlc": "vlc-bin",
    "vsftpd": "vsftpd",
}
"""Program -> package of Debian that has it. What brings everything that was skipped is read from here (`scripts/skips`)."""

MISSING = "not installed: "
"""So begins why a test was skipped that needs programs, here and in Rust; their names follow, with commas between."""
