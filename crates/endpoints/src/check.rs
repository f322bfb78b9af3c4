//! What a plan must keep beyond its shape.

use crate::error::EndpointError;
use crate::plan::{Background, EndpointPlan, Pattern, Protocol, Publication, Release, Traffic};
use std::collections::BTreeSet;

/// Largest payload of an UDP datagram over IPv4.
const LARGEST_DATAGRAM: u32 = 65_507;
/// Largest payload of one message: what the receivers accept, less any header.
const LARGEST_MESSAGE: u32 = 16_000_000;

/// Checks a plan.
///
/// # Errors
/// The first thing that is wrong, with its path.
pub fn check(plan: &EndpointPlan) -> Result<(), EndpointError> {
    let mut flows = BTreeSet::new();
    let mut own_flow = |path: &str, flow: u32| {
        ensure(flows.insert(flow), format!("{path}.flow"), || {
            format!("flow {flow} has two senders: their sequence numbers could not be told apart")
        })
    };
    ensure(plan.housekeeping_ns > 0, "housekeeping_ns", || {
        "an interval of zero".to_owned()
    })?;
    let mut client_ids = BTreeSet::new();
    for (index, client) in plan.clients.iter().enumerate() {
        let path = format!("clients[{index}]");
        dscp(&path, client.dscp)?;
        let unique = client_ids.insert((client.broker, client.port, client.client_id.as_str()));
        ensure(unique, format!("{path}.client_id"), || {
            format!(
                "{:?} is in use at this broker: the second connection would end the first",
                client.client_id
            )
        })?;
        let bare_password =
            client.protocol == Protocol::V4 && client.password.is_some() && client.username.is_none();
        ensure(!bare_password, format!("{path}.password"), || {
            "MQTT 3.1.1 knows no password without a username".to_owned()
        })?;
        let properties = !client.user_properties.is_empty()
            || client
                .role
                .subscription()
                .is_some_and(|subscription| !subscription.user_properties.is_empty());
        ensure(
            client.protocol == Protocol::V5 || !properties,
            format!("{path}.user_properties"),
            || "MQTT 3.1.1 knows no user properties".to_owned(),
        )?;
        if let Some(Publication {
            topic,
            flow,
            payload_bytes,
            release,
            ..
        }) = client.role.publication()
        {
            let path = format!("{path}.role");
            own_flow(&path, *flow)?;
            size(&path, *payload_bytes, LARGEST_MESSAGE)?;
            let publishable = !topic.is_empty() && topic.len() <= 65_535 && !topic.contains(['+', '#', '\0']);
            ensure(publishable, format!("{path}.topic"), || {
                format!("{topic:?} is no topic to publish to")
            })?;
            check_release(&format!("{path}.release"), release)?;
        }
    }
    for (index, flow) in plan.udp.iter().enumerate() {
        let path = format!("udp[{index}]");
        dscp(&path, flow.dscp)?;
        own_flow(&path, flow.flow)?;
        size(&path, flow.payload_bytes, LARGEST_DATAGRAM)?;
        check_release(&format!("{path}.release"), &flow.release)?;
    }
    for (index, background) in plan.background.iter().enumerate() {
        let path = format!("background[{index}]");
        dscp(&path, background.dscp)?;
        check_traffic(&format!("{path}.traffic"), background)?;
    }
    Ok(())
}

fn ensure(
    holds: bool,
    path: impl Into<String>,
    message: impl FnOnce() -> String,
) -> Result<(), EndpointError> {
    if holds {
        Ok(())
    } else {
        Err(EndpointError::Plan {
            path: path.into(),
            message: message(),
        })
    }
}

fn dscp(path: &str, dscp: u8) -> Result<(), EndpointError> {
    ensure(dscp < 64, format!("{path}.dscp"), || {
        format!("DSCP {dscp} does not exist: 0 to 63")
    })
}

fn size(path: &str, bytes: u32, largest: u32) -> Result<(), EndpointError> {
    ensure(bytes <= largest, format!("{path}.payload_bytes"), || {
        format!("{bytes} bytes: a measured payload has at most {largest} bytes")
    })
}

fn check_release(path: &str, release: &Release) -> Result<(), EndpointError> {
    let path = format!("{path}.pattern");
    match &release.pattern {
        Pattern::TokenBucket { burst: 0, .. } => ensure(false, path, || "a burst of no message".to_owned()),
        Pattern::Periodic { period_ns }
        | Pattern::TokenBucket { period_ns, .. }
        | Pattern::Sporadic { period_ns, .. } => {
            ensure(*period_ns > 0, path, || "a period of zero".to_owned())
        }
        Pattern::Poisson { mean_gap_ns } => {
            ensure(*mean_gap_ns > 0, path, || "a mean gap of zero".to_owned())
        }
        Pattern::Trace { times_ns } => ensure(times_ns.is_sorted(), path, || {
            "the times of a trace must ascend".to_owned()
        }),
    }
}

fn check_traffic(path: &str, background: &Background) -> Result<(), EndpointError> {
    let datagram = |bytes: u32| {
        ensure((1..=LARGEST_DATAGRAM).contains(&bytes), path, || {
            format!("a datagram of {bytes} bytes: 1 to {LARGEST_DATAGRAM} are possible")
        })
    };
    let positive = |value: u64, what: &str| ensure(value > 0, path, || format!("{what} of zero"));
    match &background.traffic {
        Traffic::TcpBulk { .. } => Ok(()),
        Traffic::UdpConstant {
            rate_bps,
            payload_bytes,
        } => {
            datagram(*payload_bytes)?;
            positive(*rate_bps, "a rate")
        }
        Traffic::UdpPoisson {
            mean_gap_ns,
            payload_bytes,
            ..
        } => {
            datagram(*payload_bytes)?;
            positive(*mean_gap_ns, "a mean gap")
        }
        Traffic::UdpBurst {
            gap_ns,
            frames,
            payload_bytes,
        } => {
            datagram(*payload_bytes)?;
            positive(*gap_ns, "a gap")?;
            positive(u64::from(*frames), "a burst")
        }
        Traffic::RequestResponse {
            request_bytes,
            response_bytes,
            ..
        } => {
            positive(u64::from(*request_bytes), "a request")?;
            positive(u64::from(*response_bytes), "a response")
        }
        Traffic::Video {
            picture_gap_ns,
            group,
            i_picture_bytes,
            p_picture_bytes,
            packet_bytes,
            ..
        } => {
            datagram(*packet_bytes)?;
            positive(*picture_gap_ns, "a gap between pictures")?;
            positive(u64::from(*group), "a group of pictures")?;
            positive(u64::from(*i_picture_bytes.min(p_picture_bytes)), "a picture")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn plan(change: impl FnOnce(&mut Value)) -> Result<(), EndpointError> {
        let mut value = json!({
            "duration_ns": 1,
            "clients": [{"name": "p", "node": "h1", "client_id": "p", "broker": "10.0.0.5", "local_port": 20000,
                "protocol": 4, "role": {"kind": "publish", "topic": "t", "qos": 1, "flow": 0, "payload_bytes": 24,
                    "release": {"pattern": {"kind": "periodic", "period_ns": 5}}}}],
            "udp": [{"name": "u", "node": "h1", "destination": "239.1.1.1", "port": 5000, "flow": 1,
                "payload_bytes": 1400, "release": {"pattern": {"kind": "trace", "times_ns": [1, 2]}}}],
            "background": [{"name": "b", "source": "h1", "destination": "h2", "destination_address": "10.0.0.2",
                "port": 9, "traffic": {"kind": "udp-burst", "gap_ns": 5, "frames": 3, "payload_bytes": 100}}],
        });
        change(&mut value);
        check(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_sound_plan_passes_and_each_fault_is_told_with_its_path() {
        plan(|_| ()).unwrap();
        let faults: [(&str, Value, &str); 8] = [
            ("/clients/0/dscp", json!(64), "clients[0].dscp"),
            (
                "/clients/0/role/payload_bytes",
                json!(16_777_217),
                "clients[0].role.payload_bytes",
            ),
            ("/clients/0/role/topic", json!("a/+"), "clients[0].role.topic"),
            (
                "/clients/0/role/release/pattern/period_ns",
                json!(0),
                "clients[0].role.release.pattern",
            ),
            ("/udp/0/flow", json!(0), "udp[0].flow"),
            ("/udp/0/payload_bytes", json!(65_508), "udp[0].payload_bytes"),
            (
                "/udp/0/release/pattern/times_ns",
                json!([2, 1]),
                "udp[0].release.pattern",
            ),
            ("/background/0/traffic/frames", json!(0), "background[0].traffic"),
        ];
        for (pointer, value, expected) in faults {
            let result = plan(|plan| match plan.pointer_mut(pointer) {
                Some(place) => *place = value,
                None => plan["clients"][0]["dscp"] = value,
            });
            assert!(
                matches!(&result, Err(EndpointError::Plan { path, .. }) if path == expected),
                "{result:?}"
            );
        }
    }

    #[test]
    fn unknown_keys_are_refused() {
        let text = r#"{"duration_ns": 1, "cliants": []}"#;
        let error = serde_json::from_str::<EndpointPlan>(text)
            .unwrap_err()
            .to_string();
        assert!(error.contains("cliants"), "{error}");
    }
}
