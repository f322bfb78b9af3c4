"""`profile` and `service` of a broker, `via` of a flow -> what the broker takes, and who forwards to whom."""

from __future__ import annotations

from pathlib import Path as FilePath

from timebound.scenario import shape
from timebound.scenario.broker_profile import ProfileError, read_profile, service_of
from timebound.scenario.context import Context, close_to
from timebound.scenario.model import MqttStack
from timebound.scenario.model_broker import BrokerService
from timebound.scenario.shape_stack import Broker
from timebound.scenario.tree import Path


def resolve_service(broker: Broker, program: str, path: Path, context: Context) -> BrokerService | None:
    """What the broker takes over a message; errors at `path` (the broker)."""
    if broker.profile is not None and broker.service is not None:
        context.error((*path, "service"), "a profile and declared times", "state one of them")
        return None
    if broker.profile is not None:
        return _profiled(program, broker.profile, (*path, "profile"), context)
    times = broker.service
    if times is None:
        return None
    return BrokerService(
        latency_ns=times.latency,
        message_ns=times.per_message,
        copy_ns=times.per_copy,
        byte_ps=times.per_byte,
        acknowledgement_ns=times.per_acknowledgement,
    )


def _profiled(program: str, name: str, path: Path, context: Context) -> BrokerService | None:
    file = ((context.folder or FilePath()) / name).absolute()
    try:
        profile = read_profile(file)
    except ProfileError as error:
        context.error(path, str(error), error.hint)
        return None
    if program == "manager":
        context.error(
            path,
            "the profile of a broker for a manager",
            "state its times: service: {latency: 200 us, per-message: 20 us}",
        )
        return None
    if profile.broker.program != program:
        context.error(
            path,
            f"{name!r} is the profile of {profile.broker.program}, and this broker is {program}",
            f"timebound profile-broker {program} --output {name}",
        )
        return None
    if profile.precision.verdict == "disturbed":
        text = f"the machine was disturbed while {name!r} was measured"
        context.warn(path, text, "measure again on an idle machine")
    return service_of(profile, str(file))


def check_via(flow: shape.Flow, stack: MqttStack, path: Path, context: Context) -> list[str] | None:
    """The brokers on the way of a flow, in order; `None` where it states none or they were reported."""
    if flow.via is None:
        return None
    here: Path = (*path, "via")
    if flow.broker is not None:
        context.error((*path, "broker"), "broker beside via", "the last one of via serves the receivers: remove it")
        return None
    known = {broker.node: broker for broker in stack.brokers}
    fine = True
    for index, name in enumerate(flow.via):
        broker = known.get(name)
        if broker is None:
            hint = close_to(name, known, f"brokers of the stack: {', '.join(known) or 'none'}")
            context.error((*here, index), f"{name!r} is no broker of the stack", hint)
            fine = False
        elif broker.program == "embedded" and len(flow.via) > 1:
            message = f"the broker on {name!r} is {broker.program}, which knows no bridges"
            context.error((*here, index), message, "program: mosquitto, for all brokers on the way")
            fine = False
    if len(set(flow.via)) < len(flow.via):
        context.error(here, "a broker stands twice on the way", "name every broker once")
        fine = False
    if stack.connections == "per-node" and len(flow.via) > 1:
        context.error(here, "bridges with connections: per-node", "use connections: per-flow")
        fine = False
    return flow.via if fine else None
