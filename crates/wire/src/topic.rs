//! Topic names and filters of MQTT (MQTT 5.0, section 4.7).

/// Bytes of an MQTT string at most.
const LONGEST: usize = 65_535;

/// May this be subscribed to? (4.7.1, 4.7.3: `#` alone at the end, `+` alone in its level, no null character, not empty.)
#[must_use]
pub fn is_filter(filter: &str) -> bool {
    if filter.is_empty() || filter.len() > LONGEST || filter.contains('\0') {
        return false;
    }
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        let allowed = match level {
            "#" => levels.peek().is_none(),
            "+" => true,
            _ => !level.contains(['#', '+']),
        };
        if !allowed {
            return false;
        }
    }
    true
}

/// May this be published to?
#[must_use]
pub fn is_name(name: &str) -> bool {
    is_filter(name) && !name.contains(['#', '+'])
}

/// Does a filter match a topic name? Wildcards in the first level do not match names that begin with `$` (4.7.2). Both are taken to be valid.
#[must_use]
pub fn matches(filter: &str, name: &str) -> bool {
    if name.starts_with('$') && filter.starts_with(['#', '+']) {
        return false;
    }
    let mut names = name.split('/');
    let mut filters = filter.split('/');
    loop {
        match (filters.next(), names.next()) {
            // `a/#` matches `a`, too.
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

/// Does a filter match all that another one matches? Both are taken to be valid; what begins with `$` is not asked about.
#[must_use]
pub fn covers(wider: &str, other: &str) -> bool {
    let mut others = other.split('/');
    let mut filters = wider.split('/');
    loop {
        match (filters.next(), others.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(one)) if one != "#" => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

/// A filter without `$share/GROUP/` (4.8.2).
#[must_use]
pub fn unshared(filter: &str) -> &str {
    let group_and_filter = filter.strip_prefix("$share/");
    group_and_filter
        .and_then(|rest| rest.split_once('/'))
        .map_or(filter, |(_, filter)| filter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_standards_own_examples() {
        for (filter, name, expected) in [
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            ("sport/tennis/player1/#", "sport/tennis/player1/ranking", true),
            (
                "sport/tennis/player1/#",
                "sport/tennis/player1/score/wimbledon",
                true,
            ),
            ("sport/#", "sport", true),
            ("#", "anything/at/all", true),
            ("sport/tennis/+", "sport/tennis/player1", true),
            ("sport/tennis/+", "sport/tennis/player1/ranking", false),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("#", "$SYS/monitor", false),
            ("+/monitor/Clients", "$SYS/monitor/Clients", false),
            ("$SYS/#", "$SYS/", true),
            ("$SYS/monitor/+", "$SYS/monitor/Clients", true),
            ("ACCOUNTS", "Accounts", false),
        ] {
            assert!(is_filter(filter) && is_name(name));
            assert_eq!(matches(filter, name), expected, "{filter} {name}");
        }
    }

    #[test]
    fn what_no_filter_may_be() {
        for filter in [
            "",
            "sport/tennis#",
            "sport/tennis/#/ranking",
            "sport+",
            "a\0b",
            "#/",
            "++",
        ] {
            assert!(!is_filter(filter), "{filter:?}");
        }
        assert!(!is_filter(&"x".repeat(65_536)) && is_filter(&"x".repeat(65_535)));
        assert!(!is_name("a/+") && !is_name("#") && is_name("/"));
    }

    #[test]
    fn a_shared_subscription_is_one_for_its_filter() {
        for (filter, expected) in [
            ("$share/g/a/+", "a/+"),
            ("a", "a"),
            ("$share/g", "$share/g"),
            ("$share/g//a", "/a"),
        ] {
            assert_eq!(unshared(filter), expected);
        }
    }

    /// Level by level from the front, by recursion.
    fn simply(filter: &[&str], name: &[&str]) -> bool {
        match (filter, name) {
            (["#"], _) | ([], []) => true,
            (["+", filter @ ..], [_, name @ ..]) => simply(filter, name),
            ([one, filter @ ..], [other, name @ ..]) => one == other && simply(filter, name),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn as_the_rule_reads(filter in "[ab+#/$]{1,9}", name in "[ab/$]{1,9}") {
            prop_assume!(is_filter(&filter) && is_name(&name));
            let levels = |text: &'static str| text.split('/').collect::<Vec<_>>();
            let (f, n): (&'static str, &'static str) = (filter.clone().leak(), name.clone().leak());
            let hidden = name.starts_with('$') && (filter.starts_with('#') || filter.starts_with('+'));
            prop_assert_eq!(matches(&filter, &name), !hidden && simply(&levels(f), &levels(n)));
        }

        #[test]
        fn what_is_covered_matches_nothing_more(
            wider in "([ab+]?(/[ab+]?){0,2}(/#)?)|#", other in "([ab+]?(/[ab+]?){0,2}(/#)?)|#", name in "[ab]?(/[ab]?){0,3}",
        ) {
            prop_assume!(is_filter(&wider) && is_filter(&other) && is_name(&name));
            if covers(&wider, &other) && matches(&other, &name) {
                prop_assert!(matches(&wider, &name), "{} {} {}", wider, other, name);
            }
            prop_assert!(covers("#", &other) && covers(&other, &other));
            prop_assert_eq!(covers(&wider, &name), matches(&wider, &name));
        }

        #[test]
        fn a_name_matches_itself(name in "[a-z/]{1,20}") {
            prop_assert!(matches(&name, &name) && matches("#", &name));
        }
    }
}
