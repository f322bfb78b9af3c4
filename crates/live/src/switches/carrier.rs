//! Links that go down by schedule take their carrier with them: a real switch learns of it as it does of a pulled cable. Pure.
//!
//! | directions of the link that carry | the switches' ports |
//! |---|---|
//! | both, or one | up |
//! | none | down |

use super::{SwitchPort, Switches};
use crate::capture::find_port;
use crate::plan::EventPlan;
use std::collections::BTreeMap;
use timebound_model::{LinkId, Network};

/// One port loses its carrier, or gets it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Carrier {
    /// Run time.
    pub(crate) at_ns: u64,
    pub(crate) port: SwitchPort,
    pub(crate) up: bool,
}

/// What the plan's events mean for ports of real switches, by time.
pub(crate) fn carriers(network: &Network, switches: &Switches, events: &[EventPlan]) -> Vec<Carrier> {
    let mut ordered: Vec<&EventPlan> = events.iter().collect();
    ordered.sort_by_key(|event| event.at_ns);
    // By time and link: the state after all events of that time.
    let mut changes: BTreeMap<(u64, LinkId), bool> = BTreeMap::new();
    let mut carrying: BTreeMap<LinkId, [bool; 2]> = BTreeMap::new();
    for event in ordered {
        let (Some(port), Some(up)) = (find_port(network, &event.port), event.up) else {
            continue;
        };
        let link = network.ports[port.index()].link;
        let directions = carrying.entry(link).or_insert([true; 2]);
        directions[port.index() % 2] = up;
        changes.insert((event.at_ns, link), directions.contains(&true));
    }
    let mut known: BTreeMap<LinkId, bool> = BTreeMap::new();
    let mut found = Vec::new();
    for ((at_ns, link), up) in changes {
        if known.insert(link, up).unwrap_or(true) == up {
            continue;
        }
        let ports = switches.list.iter().flat_map(|switch| &switch.ports);
        let here = ports.filter(|port| network.ports[port.port.index()].link == link);
        found.extend(here.map(|port| Carrier {
            at_ns,
            port: port.clone(),
            up,
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;
    use crate::plan::PortPlan;

    fn event(at_ns: u64, from: &str, to: &str, parallel: u32, up: Option<bool>) -> EventPlan {
        EventPlan {
            at_ns,
            port: PortPlan {
                from: from.to_owned(),
                to: to.to_owned(),
                parallel,
            },
            rate_bps: None,
            delay_ns: None,
            buffer_bytes: None,
            impairments: None,
            up,
        }
    }

    #[test]
    fn a_port_is_down_while_nothing_is_carried_either_way() {
        let plan = plan();
        let network = timebound_model::compile(&plan.network).unwrap();
        let switches = Switches::of(&plan, &network).unwrap().unwrap();
        let far = "a-long-switch-2";
        let events = [
            event(5, "s1", far, 1, Some(false)),
            event(9, far, "s1", 1, Some(false)),
            event(9, "s1", far, 0, None),
            event(20, far, "s1", 1, Some(true)),
            event(20, "s1", far, 1, Some(true)),
            event(7, "h1", "s1", 0, Some(false)),
            event(7, "s1", "h1", 0, Some(false)),
        ];
        let found: Vec<_> = carriers(&network, &switches, &events)
            .into_iter()
            .map(|carrier| (carrier.at_ns, carrier.port.name, carrier.up))
            .collect();
        let expected = [
            (7, "s1-h1", false),
            (9, "4.s1", false),
            (9, "2.a-long-switch", false),
            (20, "4.s1", true),
            (20, "2.a-long-switch", true),
        ];
        assert_eq!(found, expected.map(|(at, name, up)| (at, name.to_owned(), up)));
    }
}
