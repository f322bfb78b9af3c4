//! The life of a connection as a table (MQTT 5.0, sections 3.1, 3.2 and 3.14).

/// Where a connection is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing complete has come from the client.
    Fresh,
    /// Its CONNECT is understood; the broker's side is being opened.
    Dialing,
    /// The client does not speak MQTT as it is known here; the broker's side is being opened.
    DialingBlind,
    /// The CONNECT is on its way, or held.
    Greeting,
    /// The broker accepted it.
    Open,
    /// The client said DISCONNECT, or the broker did, or refused the connection: whoever closes now says nothing more.
    Leaving,
    /// Bytes are sent on in both directions, and nobody looks at them.
    Tunnel,
    /// A last packet goes to the client, then both sides are closed.
    Closing,
}

/// What can happen to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A CONNECT that is understood.
    Connect,
    /// Something else as the first packet, or a CONNECT that is not understood.
    Foreign,
    /// The broker's side is open.
    Dialed,
    /// CONNACK with success.
    Accepted,
    /// CONNACK with anything else; DISCONNECT in either direction.
    Ended,
    /// An offence, a refusal of the CONNECT, a broker that is not there or no longer there.
    Close,
}

const TABLE: &[(Phase, Input, Phase)] = &[
    (Phase::Fresh, Input::Connect, Phase::Dialing),
    (Phase::Fresh, Input::Foreign, Phase::DialingBlind),
    (Phase::Fresh, Input::Close, Phase::Closing),
    (Phase::Dialing, Input::Dialed, Phase::Greeting),
    (Phase::Dialing, Input::Close, Phase::Closing),
    (Phase::DialingBlind, Input::Dialed, Phase::Tunnel),
    (Phase::DialingBlind, Input::Close, Phase::Closing),
    (Phase::Greeting, Input::Accepted, Phase::Open),
    (Phase::Greeting, Input::Ended, Phase::Leaving),
    (Phase::Greeting, Input::Close, Phase::Closing),
    (Phase::Open, Input::Ended, Phase::Leaving),
    (Phase::Open, Input::Close, Phase::Closing),
    // A client that said DISCONNECT before the CONNACK came; both may say it at once.
    (Phase::Leaving, Input::Accepted, Phase::Leaving),
    (Phase::Leaving, Input::Ended, Phase::Leaving),
    (Phase::Leaving, Input::Close, Phase::Closing),
    (Phase::Tunnel, Input::Close, Phase::Closing),
    (Phase::Closing, Input::Ended, Phase::Closing),
    (Phase::Closing, Input::Accepted, Phase::Closing),
    (Phase::Closing, Input::Close, Phase::Closing),
    (Phase::Closing, Input::Dialed, Phase::Closing),
];

/// The phase after; `None`: it cannot happen there.
#[must_use]
pub fn next(phase: Phase, input: Input) -> Option<Phase> {
    TABLE
        .iter()
        .find_map(|(from, what, to)| ((*from, *what) == (phase, input)).then_some(*to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_there_once_and_nothing_leaves_closing() {
        for (at, row) in TABLE.iter().enumerate() {
            assert!(
                !TABLE[..at]
                    .iter()
                    .any(|other| (other.0, other.1) == (row.0, row.1))
            );
            assert!(row.0 != Phase::Closing || row.2 == Phase::Closing);
            assert_eq!(next(row.0, row.1), Some(row.2));
        }
    }

    #[test]
    fn whatever_happens_a_connection_can_be_closed() {
        for phase in TABLE.iter().flat_map(|row| [row.0, row.2]) {
            assert_eq!(next(phase, Input::Close), Some(Phase::Closing), "{phase:?}");
        }
        assert_eq!(next(Phase::Fresh, Input::Accepted), None);
        assert_eq!(next(Phase::Open, Input::Connect), None);
    }
}
