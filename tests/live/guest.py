"""A guest for virtual machine tests, built from Debian's packages: its cloud kernel, and busybox as the whole system."""

from __future__ import annotations

import functools
import gzip
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tools import absent, find, need

MODULES = (
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
    "button",
    "evdev",
)
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in MODULES; do [ -f /lib/$module.ko ] && insmod /lib/$module.ko; done
for word in $(cat /proc/cmdline); do
  case $word in ip=*) IFS=:; set -- ${word#ip=}; unset IFS; address=$1; mask=$4; name=$5;; esac
done
hostname $name
ifconfig lo 127.0.0.1 up
ifconfig eth0 $address netmask $mask up
mkdir /www; echo "hello from $name" > /www/index.html
httpd -p 80 -h /www
for button in /dev/input/event*; do
  (head -c 24 $button > /dev/null; echo "the power button was pressed"; poweroff -f) &
done
echo "guest $name is up at $address"
EXTRA
while :; do sleep 1; done
"""


@dataclass(frozen=True)
class Guest:
    """Files to boot."""

    kernel: Path
    initrd: Path


def cpio(files: list[tuple[str, int, bytes]]) -> bytes:
    """An archive in the format of initial RAM disks (cpio "newc": Documentation/driver-api/early-userspace/buffer-format)."""
    parts = []
    for number, (name, mode, content) in enumerate([*files, ("TRAILER!!!", 0, b"")], 1):
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        parts += [head, b"\0" * (-len(head) % 4), content, b"\0" * (-len(content) % 4)]
    return b"".join(parts)


@functools.cache
def kernel_package() -> Path:
    """Debian's cloud kernel, downloaded once per test run and unpacked; nothing is installed."""
    need("apt-get", "dpkg-deb")
    folder = Path(tempfile.gettempdir()) / f"timebound-guest-{os.getuid()}"
    if not any(folder.glob("k/boot/vmlinuz-*")):
        shown = subprocess.run(
            ["apt-cache", "depends", "linux-image-cloud-amd64"], capture_output=True, text=True, timeout=60
        ).stdout
        found = re.search(r"Depends: (linux-image-\S+)", shown)
        if found is None:
            pytest.skip("apt knows no linux-image-cloud-amd64 (apt-get update)")
        folder.mkdir(mode=0o700, exist_ok=True)
        done = subprocess.run(
            ["apt-get", "download", "-q", found[1]], cwd=folder, capture_output=True, text=True, timeout=180
        )
        packages = list(folder.glob("linux-image-*.deb"))
        if not packages:
            pytest.skip(f"the kernel package could not be downloaded: {done.stderr[-200:]}")
        part = folder / "part"
        subprocess.run(["dpkg-deb", "-x", str(packages[0]), str(part)], check=True, timeout=120)
        packages[0].unlink()
        part.rename(folder / "k")
    return folder / "k"


def build(folder: Path, extra: str = "") -> Guest:
    """A kernel and an initrd in `folder`: a web page on TCP port 80, `extra` as shell lines."""
    need("qemu-system-x86_64", "busybox")
    busybox = find("busybox")
    if busybox is None or b"ld-linux" in Path(busybox).read_bytes()[:4096]:
        pytest.skip(absent(["busybox"]))  # one with shared libraries is of no use to a guest of its own
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        pytest.skip("/dev/net/tun may not be opened")
    package = kernel_package()
    (kernel,) = package.glob("boot/vmlinuz-*")
    init = INIT.replace("MODULES", " ".join(MODULES)).replace("EXTRA", extra)
    files = [(name, 0o040755, b"") for name in ("bin", "lib", "proc", "sys", "dev")]
    files.append(("bin/busybox", 0o100755, Path(busybox).read_bytes()))
    files.append(("init", 0o100755, init.encode()))
    for module in MODULES:
        for path in package.rglob(f"{module}.ko"):
            files.append((f"lib/{module}.ko", 0o100644, path.read_bytes()))
    initrd = folder / "initrd.img"
    initrd.write_bytes(gzip.compress(cpio(files), compresslevel=1))
    target = folder / "vmlinuz"
    shutil.copyfile(kernel, target)
    return Guest(target, initrd)
