"""The shape of hardware in the loop: real interfaces and virtual machines as nodes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from timebound.scenario.fields import Memory, NodeNames, Shape, Short, Time
from timebound.scenario.written import TextForm

MAC = r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}"


class Interface(Shape):
    """A real network interface. Its name alone means that the device behind its cable is the node."""

    name: str = Field(
        min_length=1, max_length=15, pattern=r"^[^/\s:]+$", description="name on this host", examples=["enp3s0"]
    )
    use: Literal["device", "card"] = Field(
        default="device",
        description="device: the interface is the end of an emulated link, and the device behind its cable is the node; "
        "card: the interface moves into the node, beside its emulated one",
        examples=["card"],
    )
    addresses: list[str] = Field(
        default_factory=list,
        description="card: its addresses in the node; default: those that it has on this host",
        examples=[["192.0.2.7/24"]],
    )
    learn: Time = Field(
        default=5_000_000_000,
        description="device without a stated mac: how long it may take to answer ARP",
        examples=["10 s"],
    )


def _interface(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


InterfaceField = Annotated[Interface, Short(_interface, {"type": "string"}), TextForm()]


class Vm(Shape):
    """A virtual machine with a kernel of its own (QEMU). State a disk image, or a kernel with its initrd."""

    image: str | None = Field(
        default=None, description="disk image; it is not changed by a run", examples=["gateway.qcow2"]
    )
    kernel: str | None = Field(default=None, description="Linux kernel to boot", examples=["vmlinuz"])
    initrd: str | None = Field(default=None, description="its initial RAM disk", examples=["initrd.img"])
    append: str = Field(
        default="",
        description="added to the kernel's command line, which says ip=ADDRESS::GATEWAY:NETMASK:NAME:eth0:off and "
        "console=ttyS0 already",
        examples=["quiet"],
    )
    memory: Memory = Field(default=134_217_728, description="memory of the machine", examples=["256 MiB"])
    cpus: int = Field(default=1, ge=1, le=64, description="processors of the machine", examples=[1])
    accel: Literal["auto", "tcg", "kvm"] = Field(
        default="auto",
        description="tcg: emulated processor, works everywhere; kvm: the host's; auto: kvm where a probe boots with it",
        examples=["tcg"],
    )
    card: Literal["virtio", "e1000"] = Field(
        default="virtio", description="the network card that the machine sees", examples=["e1000"]
    )
    ready_port: int | None = Field(
        default=None, ge=1, le=65535, description="TCP port that accepts once it is ready", examples=[22]
    )
    boot: Time = Field(
        default=120_000_000_000, description="how long it may take until its address answers", examples=["60 s"]
    )
    shutdown: Time = Field(
        default=5_000_000_000, description="time for an orderly shutdown (ACPI) before it is ended", examples=["10 s"]
    )


class Computer(Shape):
    """One of the two machines that emulate a network together."""

    nodes: NodeNames = Field(description="the nodes that it emulates", examples=[["h[1-3]", "s1"]])
    address: str = Field(
        description="its IPv4 address on the network between the two; nothing listens on any other",
        examples=["192.0.2.1"],
    )
