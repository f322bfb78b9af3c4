//! Whose fault a check is that did not hold: that of the emulated conditions, or of a machine that was too busy to show them.

use crate::report::Check;

/// What a failed line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blame {
    /// Nothing was seen, or it came too late: the machine did not get round to it.
    Machine,
    /// Something else than expected was seen. Where another line blames the machine, that may be its consequence.
    Either,
    /// Virtual times are wrong, or something left early: no load of the machine does that.
    Condition,
}

/// A line of the check, and what it tells should it have failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) check: Check,
    pub(crate) blame: Blame,
}

impl Check {
    pub(super) fn or_blame(self, blame: Blame) -> Line {
        Line { check: self, blame }
    }
}

/// The first failed line that decides, and who is to blame; none where all hold.
///
/// | failed lines | blamed |
/// |---|---|
/// | one blames the conditions | the conditions |
/// | one blames the machine, none the conditions | the machine |
/// | only such as may be either's | the conditions |
pub(crate) fn verdict(lines: &[Line]) -> Option<(Blame, &Check)> {
    let first = |blame: Blame| {
        let found = lines
            .iter()
            .find(|line| line.check.ok == Some(false) && line.blame == blame);
        found.map(|line| &line.check)
    };
    first(Blame::Condition)
        .map(|check| (Blame::Condition, check))
        .or_else(|| first(Blame::Machine).map(|check| (Blame::Machine, check)))
        .or_else(|| first(Blame::Either).map(|check| (Blame::Condition, check)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, ok: bool, blame: Blame) -> Line {
        let check = name.to_owned();
        let (expected, measured) = (String::new(), String::new());
        Check {
            check,
            expected,
            measured,
            ok: Some(ok),
        }
        .or_blame(blame)
    }

    #[test]
    fn the_machine_is_blamed_only_where_no_condition_is_wrong() {
        use Blame::{Condition, Either, Machine};
        let named = |lines: &[Line]| verdict(lines).map(|(blame, check)| (blame, check.check.clone()));
        let good = line("latency", true, Condition);
        assert_eq!(named(&[good.clone(), line("tcp", true, Machine)]), None);
        let late = line("real latency", false, Machine);
        let tcp = line("tcp", false, Either);
        assert_eq!(
            named(&[tcp.clone(), late.clone()]),
            Some((Machine, "real latency".to_owned()))
        );
        assert_eq!(named(&[good, tcp.clone()]), Some((Condition, "tcp".to_owned())));
        assert_eq!(
            named(&[tcp, late, line("latency", false, Condition)]),
            Some((Condition, "latency".to_owned()))
        );
    }
}
