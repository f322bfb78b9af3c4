"""Switches by OpenFlow 1.3 and OVSDB: learning, forwarding, channels and their proof.

Modules, each using those above it and none below:

- `rules`, `frames`, `lldp`: rules, meters and groups as values; frames as bytes; the frames that find links. Pure.
- `description`, `learned`, `forwarding`, `channels`, `branches`, `states`, `counters`: what the site says, what was seen, what best effort, channels and
  multicast trees need in each switch, the states of channels, rates over a window. Pure: time is an argument.
- `settings`: what may be configured.
- `codec`, `lengths`, `session`: rules as OpenFlow messages (os-ken's), one connection to a switch.
- `ovsdb`, `queues`, `marks`: queues of Open vSwitch, and what classifies frames into them.
- `switchbox`, `network`, `monitor`, `probes`, `reservations`, `multicast`: what is in the switches and what is to be, all on one event loop.
- `enforcer`: the thread of that loop, behind `control.enforcer.Enforcer`.

It knows no store and no planner.
"""
