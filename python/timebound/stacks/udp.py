"""UDP: one datagram per message and receiver, or one per message to a multicast group.

A datagram above the sender's MTU travels in fragments; the data plane knows them by their identification, so they belong to their
message like the segments of a TCP connection do.
"""

from __future__ import annotations

from timebound.scenario.model import UdpStack
from timebound.stacks import release
from timebound.stacks.plan import Marker, Own, Plan, Segment, Stream, short
from timebound.stacks.stages import Crossing, Stage

FIRST_SOURCE_PORT = 20_000
PORT = 40_000


def lay(plan: Plan, stack: UdpStack) -> None:
    """Adds the scenario's flows as UDP streams."""
    seed = plan.scenario.run.seed
    hosts = plan.host_numbers()
    ports: dict[str, int] = {}
    for index, flow in enumerate(plan.scenario.flows):
        plan.check_datagrams(f"flows[{index}].size_bytes", flow.size_bytes, flow.source, flow.receivers)
        plan.role(flow.source, "publisher")
        group = f"239.192.{index // 256 % 256}.{index % 256}"
        together = stack.multicast and len(flow.receivers) > 1
        sets = [flow.receivers] if together else [(receiver,) for receiver in flow.receivers]
        frames = tuple(plan.wire.udp(flow.size_bytes, plan.mtu(flow.source)))
        smallest = (
            None
            if flow.least_bytes is None
            else plan.wire.least_datagram(flow.least_bytes, plan.mtu(flow.source), frames)
        )
        period, jitter = flow.period_ns, flow.jitter_ns
        if flow.token_bucket is not None:
            period, jitter = release.bucket_times(flow.token_bucket, sum(frames), f"flows[{index}].token_bucket.burst")
        for receivers in sets:
            name = f"{flow.name}/direct" if len(sets) == 1 else f"{flow.name}/direct>{receivers[0]}"
            plan.add(
                f"flows[{index}]",
                Stream(
                    name=name,
                    source=flow.source,
                    destinations=receivers,
                    priority=flow.priority,
                    role="data",
                    frames_bytes=frames if release.is_bounded(flow) else (max(frames),),
                    period_ns=period if release.is_bounded(flow) else None,
                    jitter_ns=jitter,
                    smallest_frame=smallest,
                    bucket=flow.token_bucket,
                    release=release.simulated(flow, frames),
                    deadline_ns=flow.deadline_ns,
                ),
            )
            source_port = ports[flow.source] = ports.get(flow.source, FIRST_SOURCE_PORT - 1) + 1
            port = PORT + index % 20_000
            leg = plan.leg(flow.name, tuple(receivers))
            target = group if together else plan.addresses[receivers[0]]
            plan.markers.append(
                Marker(
                    source=plan.addresses[flow.source],
                    destination=target,
                    protocol="udp",
                    source_port=None if flow.is_own else source_port,
                    destination_port=port,
                    data=name,
                    header=(0, flow.size_bytes),
                    short=() if flow.is_own else short(leg, flow.size_bytes),
                    own=Own(leg, "source") if flow.is_own else None,
                )
            )
            plan.udp.append(
                {
                    "name": name,
                    "node": flow.source,
                    "local_address": plan.addresses[flow.source],
                    "local_port": source_port,
                    "destination": target,
                    "port": port,
                    "dscp": flow.priority * release.DSCP_PER_CLASS,
                    "flow": leg,
                    "payload_bytes": flow.size_bytes,
                    "release": release.emulated(flow, seed, sum(frames)),
                }
            )
            for receiver in receivers:
                plan.role(receiver, "subscriber")
                plan.segments[flow.name, receiver] = [Segment("direct", name, flow.source, receiver)]
                plan.ways[flow.name, receiver] = [Stage("network", "direct", (Crossing(name, receiver),))]
                plan.udp_receivers.append(
                    {
                        "name": f"{flow.name}>{receiver}",
                        "node": receiver,
                        "address": target if together else plan.addresses[receiver],
                        "port": port,
                        "interface": plan.addresses[receiver],
                        "flow": leg,
                        "short_bytes": flow.size_bytes if short(leg, flow.size_bytes) else None,
                        "receiver": hosts[receiver],
                    }
                )
    _leave_to_programs(plan)


def _leave_to_programs(plan: Plan) -> None:
    """Takes our senders and receivers out of the hosts whose own programs send and receive."""
    flows = {flow.name: flow for flow in plan.scenario.flows}
    programs = [flows[leg.flow].programs for leg in plan.legs]
    plan.udp = [sender for sender in plan.udp if sender["node"] not in programs[sender["flow"]]]
    plan.udp_receivers = [each for each in plan.udp_receivers if each["node"] not in programs[each["flow"]]]
