"""Queues of Open vSwitch: one for each class at every port that sends on a link, strict priority among them, set up by OVSDB. On the event loop.

A port gets a `QoS` row of type `linux-htb` with the rate of its link and eight `Queue` rows. Queue c has the DSCP of class c, so that a frame for which it is
chosen also bears the mark, and the priority 7 - c of HTB: every class may borrow what higher ones leave.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timebound.control.openflow.channels import CLASSES, mark_of
from timebound.control.openflow.ovsdb import Operation, Ovsdb, OvsdbError
from timebound.control.openflow.settings import QueueMode, Settings
from timebound.control.topology import PortId, Topology

log = logging.getLogger(__name__)

_OWNER = "timebound-port"
_CHECK_S = 0.02
_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """What a port is to have."""

    port: str
    rate_bps: int

    @property
    def owner(self) -> list[Any]:
        """Marks our rows: `external_ids`."""
        return ["map", [[_OWNER, self.port]]]

    @property
    def qos(self) -> dict[str, Any]:
        """Columns of the `QoS` row, but for its queues."""
        rate = ["map", [["max-rate", str(self.rate_bps)]]]
        return {"type": "linux-htb", "other_config": rate, "external_ids": self.owner}

    def queue(self, number: int) -> dict[str, Any]:
        """Columns of the `Queue` row of a class."""
        config = [["max-rate", str(self.rate_bps)], ["priority", str(CLASSES - 1 - number)]]
        return {"dscp": mark_of(number), "other_config": ["map", config], "external_ids": self.owner}


def lookups(plan: QueuePlan) -> list[Operation]:
    """Reads what there is of a port: three operations."""
    ours = [["external_ids", "includes", plan.owner]]
    return [
        {"op": "select", "table": "Port", "where": [["name", "==", plan.port]], "columns": ["_uuid", "qos"]},
        {"op": "select", "table": "QoS", "where": ours, "columns": ["_uuid", "type", "other_config", "queues"]},
        {"op": "select", "table": "Queue", "where": ours, "columns": ["_uuid", "dscp", "other_config"]},
    ]


def changes(plan: QueuePlan, found: Sequence[Mapping[str, Any]]) -> list[Operation]:
    """What makes of what was found what the plan says; nothing if it is so. `found`: the results of `lookups`. Raises `OvsdbError`."""
    ports, all_qos, queues = ([dict(row) for row in result.get("rows", [])] for result in found)
    if len(ports) != 1:
        raise OvsdbError(f"the switch's database has no port {plan.port!r}")
    rows = {str(row["_uuid"]): row for row in queues}
    for qos in all_qos:
        numbered = {int(number): rows.get(str(uuid)) for number, uuid in _pairs(qos["queues"])}
        complete = set(numbered) == set(range(CLASSES)) and all(row is not None for row in numbered.values())
        if complete and ports[0]["qos"] == qos["_uuid"]:
            return _updates(plan, qos, {number: row for number, row in numbered.items() if row is not None})
    return _creation(plan)


def _updates(plan: QueuePlan, qos: dict[str, Any], queues: Mapping[int, dict[str, Any]]) -> list[Operation]:
    """In place: frames that wait are not lost."""
    operations: list[Operation] = []
    if not _same(plan.qos, qos):
        operations.append({"op": "update", "table": "QoS", "where": _row(qos), "row": plan.qos})
    for number, row in sorted(queues.items()):
        if not _same(plan.queue(number), row):
            operations.append({"op": "update", "table": "Queue", "where": _row(row), "row": plan.queue(number)})
    return operations


def _creation(plan: QueuePlan) -> list[Operation]:
    ours = [["external_ids", "includes", plan.owner]]
    operations: list[Operation] = [
        {"op": "update", "table": "Port", "where": [["name", "==", plan.port]], "row": {"qos": ["set", []]}},
        {"op": "delete", "table": "QoS", "where": ours},
        {"op": "delete", "table": "Queue", "where": ours},
    ]
    names = [f"queue{number}" for number in range(CLASSES)]
    operations += [
        {"op": "insert", "table": "Queue", "row": plan.queue(number), "uuid-name": name}
        for number, name in enumerate(names)
    ]
    numbered = ["map", [[number, ["named-uuid", name]] for number, name in enumerate(names)]]
    operations += [
        {"op": "insert", "table": "QoS", "row": {**plan.qos, "queues": numbered}, "uuid-name": "qos"},
        {
            "op": "update",
            "table": "Port",
            "where": [["name", "==", plan.port]],
            "row": {"qos": ["named-uuid", "qos"]},
        },
    ]
    return operations


def _row(row: Mapping[str, Any]) -> list[Any]:
    return [["_uuid", "==", row["_uuid"]]]


def _same(wanted: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    return all(_plain(row[column]) == _plain(value) for column, value in wanted.items() if column in row)


def _plain(value: Any) -> Any:
    """Maps without their order."""
    return dict(map(tuple, value[1])) if isinstance(value, list) and value[:1] == ["map"] else value


def _pairs(value: Any) -> list[Any]:
    return list(value[1]) if isinstance(value, list) and value[:1] == ["map"] else []


class Queues:
    """Keeps the queues of all switches whose mode is `ovsdb`."""

    def __init__(self, settings: Settings) -> None:
        """Raises `RemoteError` where a switch's OVSDB address is none."""
        self._modes = {switch.datapath: switch for switch in settings.switches if switch.queues is QueueMode.OVSDB}
        self._within_s = settings.times.confirm_ns / 1e9
        self._servers: dict[str, Ovsdb] = {}
        for switch in self._modes.values():
            if switch.ovsdb is not None and switch.ovsdb not in self._servers:
                self._servers[switch.ovsdb] = Ovsdb(switch.ovsdb, settings.tls, self._within_s)
        self._wanted: dict[PortId, QueuePlan] = {}
        self._done: dict[PortId, QueuePlan] = {}
        self._reasons: dict[PortId, str] = {}
        self._working: dict[int, asyncio.Task[None]] = {}
        self._news = asyncio.Condition()

    def queued(self, port: PortId) -> bool:
        """Are the queues of this port the switch's own?"""
        return port.switch in self._modes

    async def ready(self, port: PortId) -> str:
        """Waits until the queues are set up; why they are not, or nothing."""
        try:
            async with asyncio.timeout(2 * self._within_s), self._news:
                await self._news.wait_for(lambda: port in self._done or port in self._reasons)
        except TimeoutError:
            return "they are not set up yet"
        return "" if port in self._done else self._reasons[port]

    def changed(self, topology: Topology) -> None:
        """Links, and so rates of ports, are others now."""
        wanted: dict[PortId, QueuePlan] = {}
        for link in topology.links.values():
            if link.out is not None and link.out in topology.ports and self.queued(link.out):
                wanted.setdefault(link.out, QueuePlan(topology.ports[link.out].name, link.rate_bps))
        self._wanted = wanted
        for port in [port for port, plan in self._done.items() if wanted.get(port, plan) != plan]:
            del self._done[port]
        for datapath in {port.switch for port in wanted if port not in self._done}:
            self._work_on(datapath)

    def forget(self, datapath: int) -> None:
        """A switch has come back: its queues are looked at again."""
        for port in [port for port in self._done if port.switch == datapath]:
            del self._done[port]
        if datapath in self._modes:
            self._work_on(datapath)

    def _work_on(self, datapath: int) -> None:
        task = self._working.get(datapath)
        if task is None or task.done():
            self._working[datapath] = asyncio.get_running_loop().create_task(self._work(datapath))

    async def _work(self, datapath: int) -> None:
        while True:
            missing = {
                port: plan for port, plan in self._wanted.items() if port.switch == datapath and port not in self._done
            }
            if not missing:
                return
            for port, plan in missing.items():
                reason = await self._set_up(datapath, plan)
                async with self._news:
                    self._reasons.pop(port, None)
                    if reason:
                        self._reasons[port] = reason
                        log.warning("openflow: queues of %s: %s", plan.port, reason)
                    elif self._wanted.get(port) == plan:
                        self._done[port] = plan
                    self._news.notify_all()
            if any(port in self._reasons for port in missing):
                await asyncio.sleep(_AGAIN_S)

    async def _set_up(self, datapath: int, plan: QueuePlan) -> str:
        remote = self._modes[datapath].ovsdb
        if remote is None:
            return "the site's configuration names no OVSDB server for this switch"
        server = self._servers[remote]
        try:
            operations = changes(plan, await server.transact(lookups(plan)))
            if operations:
                await server.transact(operations)
                await self._applied(server)
        except (OvsdbError, KeyError, ValueError, TypeError) as error:
            return str(error) or repr(error)
        return ""

    async def _applied(self, server: Ovsdb) -> None:
        """Waits until the switch has done what its database says (`cur_cfg` follows `next_cfg`)."""
        table: Operation = {"table": "Open_vSwitch", "where": []}
        bump = {**table, "op": "mutate", "mutations": [["next_cfg", "+=", 1]]}
        look = {**table, "op": "select", "columns": ["cur_cfg", "next_cfg"]}
        (row,) = (await server.transact([bump, look]))[1]["rows"]
        target = int(row["next_cfg"])
        deadline = asyncio.get_running_loop().time() + self._within_s
        while int(row["cur_cfg"]) < target:
            if asyncio.get_running_loop().time() > deadline:
                raise OvsdbError("the switch does not follow its database")
            await asyncio.sleep(_CHECK_S)
            (row,) = (await server.transact([look]))[0]["rows"]

    async def close(self) -> None:
        """Gives back connections; queues stay."""
        work: list[Coroutine[Any, Any, None]] = [server.close() for server in self._servers.values()]
        for task in self._working.values():
            task.cancel()
        await asyncio.gather(*self._working.values(), *work, return_exceptions=True)
