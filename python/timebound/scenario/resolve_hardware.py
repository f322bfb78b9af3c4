"""`interface` and `vm` of a node -> hardware in the loop, with every contradiction reported at its place."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import replace

from timebound.scenario import shape_hardware as shape
from timebound.scenario.context import Context
from timebound.scenario.model import Node
from timebound.scenario.model_hardware import Interface, Machine
from timebound.scenario.shape_network import Node as Written
from timebound.scenario.tree import Path


def resolve_interface(interface: shape.Interface | None, name: str, path: Path, context: Context) -> Interface | None:
    """The interface of a node."""
    if interface is None:
        return None
    here = (*path, "interface")
    if interface.name == "lo":
        context.error(here, f"the loopback interface of {name!r} has no cable", "name a card of this host (ip link)")
    if interface.addresses and interface.use != "card":
        hint = "state the device's address as address: of the node"
        context.error((*here, "addresses"), "a device has its addresses itself", hint)
    for index, text in enumerate(interface.addresses):
        try:
            ipaddress.IPv4Interface(text)
        except ValueError:
            context.error((*here, "addresses", index), f"{text!r} is no IPv4 address", "write it as 192.0.2.7/24")
    return Interface(
        name=interface.name, use=interface.use, addresses=tuple(interface.addresses), learn_ns=interface.learn
    )


def resolve_machine(vm: shape.Vm | None, name: str, path: Path, context: Context) -> Machine | None:
    """The virtual machine of a node."""
    if vm is None:
        return None
    here = (*path, "vm")
    if vm.image is None and vm.kernel is None:
        context.error(here, f"{name!r} has nothing to boot", "state image: disk.qcow2, or kernel: and initrd:")
    if vm.initrd is not None and vm.kernel is None:
        context.error((*here, "initrd"), "an initrd without a kernel", "state kernel: too")
    if vm.append and vm.kernel is None:
        context.error((*here, "append"), "an image boots with its own command line", "state kernel:, or remove append")
    if any(ord(letter) < 32 for letter in vm.append):
        context.error((*here, "append"), "a command line has one line", "remove line breaks")
    for key in ("image", "kernel", "initrd"):
        stated = getattr(vm, key)
        if stated is not None and ("," in stated or not stated or "\0" in stated):
            # A comma would end the value in QEMU's own notation.
            context.error((*here, key), f"{stated!r} cannot name a file here", "use a path without commas")
    return Machine(
        image=vm.image,
        kernel=vm.kernel,
        initrd=vm.initrd,
        append=vm.append,
        memory_bytes=vm.memory,
        cpus=vm.cpus,
        accel=vm.accel,
        card=vm.card,
        ready_port=vm.ready_port,
        boot_ns=vm.boot,
        shutdown_ns=vm.shutdown,
    )


def resolve_mac(mac: str | None, path: Path, context: Context) -> str | None:
    """A station's MAC address, in lower case."""
    if mac is None:
        return None
    if re.fullmatch(shape.MAC, mac) is None:
        context.error((*path, "mac"), f"{mac!r} is no MAC address", 'write for example mac: "02:00:00:00:00:01"')
    elif int(mac[:2], 16) & 1:
        context.error((*path, "mac"), f"{mac} is a group's address", "a station's first byte is even")
    return mac.lower()


def with_hardware(node: Node, written: Written, path: Path, context: Context) -> Node:
    """The host with its interface or virtual machine; in one that is not ours nothing is limited, placed or started."""
    interface = resolve_interface(written.interface, node.name, path, context)
    machine = resolve_machine(written.vm, node.name, path, context)
    if interface is not None and machine is not None:
        context.error((*path, "interface"), f"{node.name!r} is a virtual machine already", "use two nodes")
    found = replace(node, mac=resolve_mac(written.mac, path, context), interface=interface, machine=machine)
    if not found.is_external:
        return found
    what = "the device behind its cable" if machine is None else "a virtual machine"
    for key in ("run", "env", "files", "hostname", "cpu", "cpu_reservation", "memory", "processes"):
        if getattr(written, key):
            shown = key.replace("_", "-")
            hint = (
                "state memory: and cpus: under vm:" if machine is not None and key in ("cpu", "memory") else "remove it"
            )
            message = f"{node.name!r} is {what}: {shown} concerns what we start in a node, and nothing is started there"
            context.error((*path, shown), message, hint)
    if machine is None and node.address is None:
        hint = "state address: as it is configured in the device"
        context.error((*path, "interface"), f"the address of the device behind {node.name!r} is not known", hint)
    return replace(
        found,
        programs=(),
        environment={},
        files=(),
        cpu_share=None,
        cpu_hz=None,
        cpu_reservation=None,
        memory_bytes=None,
        processes=None,
    )
