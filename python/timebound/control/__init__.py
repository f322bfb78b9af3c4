"""What acts on a real network: the table of real-time requirements, admission over it, the controller, the manager's service.

Rooms, each using those above it and none below:

- `control.srt`: the table (RT-MQTT, section IV-B, eq. 3 and 5) and the stores that keep it (OVSDB, embedded).
- `control.topology`: what a controller has learned of a network, as values.
- `control.planner`: topology and table -> verdicts and channels. Pure: no sockets, no store.
- `control.openflow`: switches by OpenFlow 1.3 and OVSDB: learning, rules, meters, queues, probes.
- `control.controller`: the service `timebound controller`: store -> planner -> openflow -> store; REST and page.
- `control.manager`: the service `timebound manager`: the Rust intermediary, the store, policy, metrics. It knows the store and nothing of
  the controller; the controller knows nothing of managers but their rows.
"""
