//! Real interfaces: which may be taken, and what they must be like in the fabric's namespace.

use crate::failure::Failure;
use crate::kernel::{ethtool, links::LinkState, netlink::Netlink};
use crate::plan::{HardwarePlan, HostPlan, Plan};
use std::io;
use std::path::Path;

/// Checks the interfaces of a plan before anything exists.
///
/// # Errors
/// One that is not there or may not be taken, or missing rights.
pub(crate) fn check(plan: &Plan) -> Result<(), Failure> {
    // SAFETY: cannot fail.
    let root = unsafe { libc::geteuid() } == 0 && !plan.force_rootless;
    for host in &plan.hosts {
        let Some((name, allowed)) = named(host) else {
            continue;
        };
        if !root {
            return Err(Failure::Host(format!(
                "node {:?}: taking interface {name} from this host needs root; run it with sudo",
                host.node
            )));
        }
        let state = find(name).map_err(|why| Failure::host(format!("node {:?}", host.node), why))?;
        permit(&state, allowed).map_err(|why| Failure::host(format!("node {:?}", host.node), why))?;
    }
    Ok(())
}

/// The interface that a host of the plan takes, and whether it may carry the default route.
pub(super) fn named(host: &HostPlan) -> Option<(&str, bool)> {
    match host.hardware.as_ref()? {
        HardwarePlan::Device {
            interface,
            take_default_route,
            ..
        }
        | HardwarePlan::Card {
            interface,
            take_default_route,
            ..
        } => Some((interface, *take_default_route)),
        HardwarePlan::Machine(_) | HardwarePlan::Remote => None,
    }
}

/// The state of an interface of the calling thread's namespace.
pub(super) fn find(name: &str) -> Result<LinkState, String> {
    Netlink::open()
        .and_then(|mut requests| requests.state(name))
        .map_err(|error| format!("cannot ask the kernel for interface {name}: {error}"))?
        .ok_or_else(|| format!("this host has no interface {name:?} (ip link lists them)"))
}

/// May this interface be taken away from the host?
fn permit(state: &LinkState, default_route_allowed: bool) -> Result<(), String> {
    let name = &state.name;
    if state.controller.is_some() {
        return Err(format!(
            "interface {name} belongs to a bridge or bond, which would lose it; take it out first (ip link set {name} nomaster)"
        ));
    }
    if state.carries_default_route() && !default_route_allowed {
        return Err(format!(
            "interface {name} carries this host's default route: taking it cuts the host off; if that is meant, add --take-interface {name}"
        ));
    }
    if Path::new(&format!("/sys/class/net/{name}/phy80211")).exists() {
        return Err(format!(
            "interface {name} is wireless: the kernel moves those with their radio only (iw phy), and they send for their own address alone"
        ));
    }
    Ok(())
}

/// Makes a card that was moved into the calling thread's namespace take in whatever comes, one frame at a time.
pub(super) fn listen(name: &str, index: u32) -> io::Result<()> {
    let mut requests = Netlink::open()?;
    ethtool::set_merging(requests.fd(), name, ethtool::Merging::NONE)?;
    requests.set_silent_up(index, None, true)?;
    requests.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::route::{RouteMessage, RouteType};

    fn state() -> LinkState {
        LinkState {
            name: "enp3s0".to_owned(),
            index: 2,
            up: true,
            promiscuous: false,
            no_arp: false,
            mtu: Some(1500),
            controller: None,
            addresses: Vec::new(),
            routes: Vec::new(),
        }
    }

    #[test]
    fn what_the_host_lives_on_is_not_taken() {
        assert_eq!(permit(&state(), false), Ok(()));
        let member = LinkState {
            controller: Some(7),
            ..state()
        };
        assert!(permit(&member, true).unwrap_err().contains("bridge"));
        let mut route = RouteMessage::default();
        route.header.kind = RouteType::Unicast;
        let leading = LinkState {
            routes: vec![route],
            ..state()
        };
        assert!(
            permit(&leading, false)
                .unwrap_err()
                .contains("--take-interface enp3s0")
        );
        assert_eq!(permit(&leading, true), Ok(()));
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        assert!(find("no-such-card0").unwrap_err().contains("no-such-card0"));
        assert_eq!(find("lo").unwrap().index, 1);
    }
}
