//! What the clients of a manager are subscribed to, as few filters, for managers of other networks. No I/O and no clock: time is an argument.
//!
//! | a client | its filters |
//! |---|---|
//! | subscribes, unsubscribes | change |
//! | comes to a new session | are none |
//! | comes back to its session at the broker | are those that it had; where they are not known, because this process is younger than the session, `#` |
//! | goes | stay as long as its session does at the broker |
//!
//! Names that begin with `$` are a broker's own business (MQTT 5.0, section 4.7.2): they are no interests.

use std::collections::{BTreeMap, BTreeSet};
use timebound_model::units::{Span, Time};
use timebound_wire::topic;

/// Filters that are told; beyond, `#` is.
pub const MOST_FILTERS: usize = 256;
/// Bytes of them, likewise.
const MOST_BYTES: usize = 16 * 1024;
/// Different filters that are looked through for those which others cover, each with each; beyond, `#` is told.
const MOST_DIFFERENT: usize = 1_024;
/// Bytes of all clients' filters that are remembered; who subscribes to more may want anything.
const MOST_KEPT: usize = 16 << 20;
/// Clients that are gone and have a session; of those beyond, the one that ends first is forgotten, and `#` told as long as it may be there.
const MOST_GONE: usize = 10_000;
const ALL: &str = "#";
/// A session that never expires (3.1.2.11.2).
const NEVER: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Client {
    /// `None`: it is gone, and its session may be there.
    connection: Option<u64>,
    filters: BTreeSet<String>,
    /// It has subscriptions of which nothing is known.
    has_unknown: bool,
    expiry_s: u32,
    /// When its session ends; `None` while it is connected.
    ends: Option<Time>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Interests {
    clients: BTreeMap<String, Client>,
    /// Client of each connection.
    of: BTreeMap<u64, String>,
    /// With how many clients have it.
    filters: BTreeMap<String, usize>,
    unknown: usize,
    /// Bytes of all clients' filters.
    kept: usize,
    /// Clients that are gone, by the end of their session.
    gone: BTreeSet<(Time, String)>,
    /// A session was forgotten that may be there until then.
    forgotten: Option<Time>,
    changed: bool,
}

impl Interests {
    /// The broker has accepted a client. An empty identifier stands for a session that ends with its connection.
    pub fn greeted(&mut self, connection: u64, client_id: &str, resumed: bool, expiry_s: u32) {
        let id = match client_id {
            // No identifier has this character (1.5.4).
            "" => format!("\0{connection}"),
            id => id.to_owned(),
        };
        let is_known = self.clients.contains_key(&id);
        if !resumed {
            self.forget(&id);
        }
        let client = self.clients.entry(id.clone()).or_default();
        if let Some(ends) = client.ends.take() {
            self.gone.remove(&(ends, id.clone()));
        }
        if let Some(before) = client.connection.replace(connection) {
            self.of.remove(&before);
        }
        client.expiry_s = expiry_s;
        if resumed && !is_known {
            client.has_unknown = true;
            self.unknown += 1;
            self.changed = true;
        }
        self.of.insert(connection, id);
    }

    /// A client has subscribed to these filters.
    pub fn subscribed(&mut self, connection: u64, filters: Vec<String>) {
        let Some(client) = self.of.get(&connection).and_then(|id| self.clients.get_mut(id)) else {
            return;
        };
        for filter in filters {
            let known = topic::unshared(&filter).to_owned();
            let is_full = client.filters.len() >= MOST_DIFFERENT || self.kept + filter.len() > MOST_KEPT;
            if is_full && !client.filters.contains(&filter) {
                // What it has beyond is not remembered.
                self.unknown += usize::from(!std::mem::replace(&mut client.has_unknown, true));
                self.changed = true;
            } else if !known.starts_with('$') && !client.filters.contains(&filter) {
                self.kept += filter.len();
                client.filters.insert(filter);
                *self.filters.entry(known).or_default() += 1;
                self.changed = true;
            }
        }
    }

    /// It has taken them back.
    pub fn unsubscribed(&mut self, connection: u64, filters: &[String]) {
        let Some(client) = self.of.get(&connection).and_then(|id| self.clients.get_mut(id)) else {
            return;
        };
        for filter in filters {
            if client.filters.remove(filter) {
                self.kept -= filter.len();
                drop_one(&mut self.filters, filter);
                self.changed = true;
            }
        }
    }

    /// A connection has ended.
    pub fn closed(&mut self, now: Time, connection: u64) {
        let Some(id) = self.of.remove(&connection) else {
            return;
        };
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if client.expiry_s == 0 || (client.filters.is_empty() && !client.has_unknown) {
            return self.forget(&id);
        }
        let ends = match client.expiry_s {
            NEVER => Time(u64::MAX),
            seconds => now.after(Span::from_secs(u64::from(seconds))),
        };
        (client.connection, client.ends) = (None, Some(ends));
        self.gone.insert((ends, id));
        if self.gone.len() > MOST_GONE
            && let Some((ends, first)) = self.gone.first().cloned()
        {
            self.forget(&first);
            self.forgotten = self.forgotten.max(Some(ends));
        }
    }

    /// Sessions whose time is over are; true if what [`Self::told`] says may have changed since this was asked last.
    pub fn has_changed(&mut self, now: Time) -> bool {
        while let Some((_, id)) = self.gone.first().filter(|(ends, _)| *ends <= now).cloned() {
            self.forget(&id);
        }
        if self.forgotten.is_some_and(|until| until <= now) {
            self.forgotten = None;
            self.changed = true;
        }
        std::mem::take(&mut self.changed)
    }

    fn forget(&mut self, id: &str) {
        let Some(client) = self.clients.remove(id) else {
            return;
        };
        for filter in &client.filters {
            self.kept -= filter.len();
            drop_one(&mut self.filters, filter);
        }
        self.unknown -= usize::from(client.has_unknown);
        if let Some(ends) = client.ends {
            self.gone.remove(&(ends, id.to_owned()));
        }
        if let Some(connection) = client.connection {
            self.of.remove(&connection);
        }
        self.changed = true;
    }

    /// As few filters as match all that somebody is subscribed to, in their order.
    #[must_use]
    pub fn told(&self) -> Vec<String> {
        let all = vec![ALL.to_owned()];
        if self.unknown > 0 || self.forgotten.is_some() || self.filters.len() > MOST_DIFFERENT {
            return all;
        }
        let wide: Vec<&String> = self
            .filters
            .keys()
            .filter(|filter| filter.contains(['#', '+']))
            .collect();
        let is_covered = |one: &String| {
            wide.iter()
                .any(|other| *other != one && topic::covers(other, one))
        };
        let found: Vec<String> = self
            .filters
            .keys()
            .filter(|one| !is_covered(one))
            .cloned()
            .collect();
        if found.len() > MOST_FILTERS || found.iter().map(String::len).sum::<usize>() > MOST_BYTES {
            return all;
        }
        found
    }
}

fn drop_one(filters: &mut BTreeMap<String, usize>, filter: &str) {
    let known = topic::unshared(filter);
    if let Some(count) = filters.get_mut(known) {
        *count -= 1;
        if *count == 0 {
            filters.remove(known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(filters: &[&str]) -> Vec<String> {
        filters.iter().map(|one| (*one).to_owned()).collect()
    }

    #[test]
    fn what_others_cover_is_not_told_and_too_much_is_everything() {
        let mut interests = Interests::default();
        interests.greeted(1, "a", false, 0);
        interests.greeted(2, "", false, 0);
        interests.subscribed(1, of(&["plant/a", "plant/+", "$SYS/#", "$share/g/hall/1"]));
        interests.subscribed(2, of(&["hall/1", "plant/b/c"]));
        assert!(interests.has_changed(Time(0)) && !interests.has_changed(Time(0)));
        assert_eq!(interests.told(), ["hall/1", "plant/+", "plant/b/c"]);
        interests.unsubscribed(2, &of(&["hall/1", "never"]));
        assert_eq!(interests.told(), ["hall/1", "plant/+", "plant/b/c"]);
        interests.closed(Time(1), 1);
        assert_eq!(interests.told(), ["plant/b/c"]);
        let many = (0..MOST_FILTERS).map(|number| format!("n/{number}")).collect();
        interests.subscribed(2, many);
        assert_eq!(interests.told(), ["#"]);
        interests.unsubscribed(2, &of(&["n/0"]));
        assert_eq!(interests.told().len(), MOST_FILTERS);
        interests.subscribed(2, vec!["n/".to_owned() + &"x".repeat(MOST_BYTES)]);
        assert_eq!(interests.told(), ["#"]);
        interests.closed(Time(1), 2);
        assert!(interests.told().is_empty());
    }

    #[test]
    fn a_session_outlives_its_connection_for_as_long_as_it_was_to() {
        let mut interests = Interests::default();
        interests.greeted(1, "a", false, 10);
        interests.subscribed(1, of(&["x"]));
        interests.closed(Time(0), 1);
        assert_eq!(interests.told(), ["x"]);
        // It comes back, twice: the connection before is of no use any more.
        interests.greeted(2, "a", true, 10);
        interests.greeted(3, "a", true, 10);
        interests.closed(Time(5), 2);
        assert_eq!(interests.told(), ["x"]);
        interests.closed(Time(1_000), 3);
        assert!(interests.has_changed(Time(10_000_000_999)) && interests.told() == ["x"]);
        assert!(interests.has_changed(Time(10_000_001_000)) && interests.told().is_empty());
        // A session that nobody here has seen begin may be subscribed to anything; one that begins anew is not.
        interests.greeted(4, "b", true, NEVER);
        interests.closed(Time(0), 4);
        assert_eq!(interests.told(), ["#"]);
        interests.greeted(5, "b", false, NEVER);
        assert!(interests.told().is_empty());
    }

    #[test]
    fn sessions_beyond_those_that_are_remembered_may_want_anything() {
        let mut interests = Interests::default();
        for number in 0..=MOST_GONE as u64 {
            interests.greeted(
                number,
                &number.to_string(),
                false,
                1 + u32::try_from(number).unwrap(),
            );
            interests.subscribed(number, of(&["x"]));
            interests.closed(Time(0), number);
        }
        assert_eq!(interests.told(), ["#"]);
        assert!(interests.has_changed(Time(1_000_000_000)));
        assert_eq!(interests.told(), ["x"]);
    }

    #[test]
    fn a_flood_of_filters_takes_no_more_memory_than_it_may_and_is_everything() {
        let mut interests = Interests::default();
        for client in 0..64 {
            interests.greeted(client, &client.to_string(), false, 0);
            let long = (0..64).map(|number| format!("{client}/{number}/") + &"x".repeat(60_000));
            interests.subscribed(client, long.collect());
        }
        assert!(interests.kept <= MOST_KEPT && interests.told() == ["#"]);
        for client in 0..64 {
            interests.closed(Time(0), client);
        }
        assert!(interests.kept == 0 && interests.told().is_empty());
    }

    proptest! {
        /// Whatever clients do: what is told matches what is subscribed to, and nothing is left when all are gone.
        #[test]
        fn nothing_is_missed_and_nothing_stays(
            steps in proptest::collection::vec((0u8..4, 0u64..6, 0usize..6), 0..60),
        ) {
            const FILTERS: [&str; 6] = ["a", "a/+", "a/#", "b/c", "$share/g/a", "+/c"];
            const NAMES: [&str; 6] = ["a", "a/b", "a/b/c", "b/c", "x/c", "x"];
            let mut interests = Interests::default();
            let mut model: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
            for (what, connection, filter) in steps {
                match what {
                    0 if !model.contains_key(&connection) => {
                        interests.greeted(connection, &format!("c{connection}"), false, 0);
                        model.insert(connection, BTreeSet::new());
                    }
                    1 => {
                        interests.subscribed(connection, vec![FILTERS[filter].to_owned()]);
                        model.entry(connection).and_modify(|one| one.extend([filter]));
                    }
                    2 => {
                        interests.unsubscribed(connection, &[FILTERS[filter].to_owned()]);
                        model.entry(connection).and_modify(|one| one.retain(|other| *other != filter));
                    }
                    3 => {
                        interests.closed(Time(0), connection);
                        model.remove(&connection);
                    }
                    _ => {}
                }
                let told = interests.told();
                for name in NAMES {
                    let wanted = model.values().flatten().any(|at| topic::matches(topic::unshared(FILTERS[*at]), name));
                    prop_assert_eq!(told.iter().any(|one| topic::matches(one, name)), wanted, "{} {:?}", name, told);
                }
            }
            for connection in 0..6 {
                interests.closed(Time(0), connection);
            }
            prop_assert!(interests.told().is_empty() && interests.clients.is_empty() && interests.of.is_empty());
            prop_assert_eq!(interests.kept, 0);
        }
    }
}
