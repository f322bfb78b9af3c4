//! One request of a connection: what is asked for one topic or filter, and what became of it.

use crate::intermediary::answers::Verdict;
use timebound_wire::attributes::Requirements;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Asked; packets may be held for it.
    Asked,
    /// Asked, and the verdict did not come in time: nothing is held for it any more.
    Late,
    Granted,
    Refused,
    /// Nobody could decide.
    Unavailable,
    /// Given back by the client, and kept so that the connection's defaults do not ask again.
    Withdrawn,
}

/// What can happen to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// The client asks for something else than before.
    Ask,
    Grant,
    Refuse,
    Unavailable,
    /// Nobody waits any longer.
    Expire,
    Withdraw,
}

const TABLE: &[(State, [State; 6])] = {
    use State::{Asked, Granted, Late, Refused, Unavailable, Withdrawn};
    // Ask, Grant, Refuse, Unavailable, Expire, Withdraw. A verdict may come again, and change.
    &[
        (Asked, [Asked, Granted, Refused, Unavailable, Late, Withdrawn]),
        (Late, [Asked, Granted, Refused, Unavailable, Late, Withdrawn]),
        (
            Granted,
            [Asked, Granted, Refused, Unavailable, Granted, Withdrawn],
        ),
        (
            Refused,
            [Asked, Granted, Refused, Unavailable, Refused, Withdrawn],
        ),
        (
            Unavailable,
            [Asked, Granted, Refused, Unavailable, Unavailable, Withdrawn],
        ),
        (
            Withdrawn,
            [Asked, Withdrawn, Withdrawn, Withdrawn, Withdrawn, Withdrawn],
        ),
    ]
};

/// The state after.
#[must_use]
pub fn next(state: State, input: Input) -> State {
    let row = TABLE.iter().find(|(from, _)| *from == state);
    row.map_or(state, |(_, to)| to[input as usize])
}

/// A request.
#[derive(Debug)]
pub(crate) struct Flow {
    /// What the client said for this topic itself.
    pub(crate) own: Requirements,
    /// With everything that counts for it: what was asked.
    pub(crate) asked: Requirements,
    /// Payload and QoS that stand in `asked` where the client does not say.
    pub(crate) seen: Carried,
    pub(crate) size_implied: bool,
    pub(crate) qos_implied: bool,
    pub(crate) revision: u32,
    pub(crate) state: State,
    /// The last one, perhaps of an earlier revision: it is in force until another comes.
    pub(crate) verdict: Option<Verdict>,
    /// Does the client know the state? (Each change is told once more, in the next acknowledgement.)
    pub(crate) told: bool,
    /// Of the connection's rules, when `asked` was made.
    pub(crate) rules: u32,
}

/// What the packet that carries a request says by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Bytes of payload; 0 of a subscription.
    pub(crate) size: u64,
    pub(crate) qos: u8,
}

impl Flow {
    pub(crate) fn happens(&mut self, input: Input) {
        let after = next(self.state, input);
        if after != self.state {
            self.told = false;
        }
        self.state = after;
    }

    /// Is a message of this kind within what was asked?
    pub(crate) fn covers(&self, carried: Carried) -> bool {
        (!self.size_implied || carried.size <= self.seen.size)
            && (!self.qos_implied || carried.qos <= self.seen.qos)
    }

    /// Is its packet to be answered with Quota exceeded?
    pub(crate) fn refuses(&self) -> bool {
        self.state == State::Refused && self.asked.strict == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUTS: [Input; 6] = [
        Input::Ask,
        Input::Grant,
        Input::Refuse,
        Input::Unavailable,
        Input::Expire,
        Input::Withdraw,
    ];

    #[test]
    fn the_table_is_complete() {
        let states: Vec<State> = TABLE.iter().map(|row| row.0).collect();
        assert_eq!(states.len(), 6);
        for state in &states {
            for input in INPUTS {
                assert!(states.contains(&next(*state, input)));
            }
            assert_eq!(next(*state, Input::Ask), State::Asked);
            assert_eq!(next(*state, Input::Withdraw), State::Withdrawn);
        }
    }

    #[test]
    fn what_was_given_back_stays_so_until_it_is_asked_for() {
        for input in INPUTS.iter().filter(|input| **input != Input::Ask) {
            assert_eq!(next(State::Withdrawn, *input), State::Withdrawn);
        }
    }
}
