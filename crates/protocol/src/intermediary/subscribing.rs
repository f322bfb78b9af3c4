//! SUBSCRIBE and UNSUBSCRIBE packets of the client.

use crate::intermediary::answers::{About, Pending};
use crate::intermediary::context::Context;
use crate::intermediary::flow::Carried;
use crate::intermediary::flows::{Change, Side};
use crate::intermediary::session::Session;
use crate::intermediary::uplink::{Judgement, MOST_PENDING, QUOTA, reading, told};
use timebound_wire::mqtt::{Head, Kind, Subscribe, Version};

impl Session {
    pub(crate) fn subscribe(&mut self, head: &Head, rest: &[u8], context: &Context<'_>) -> Judgement {
        let Ok(subscribe) = Subscribe::read(head, rest, Version::V5) else {
            return Judgement::Pass;
        };
        let found = reading(&subscribe.properties);
        if found.is_none() && self.is_quiet() {
            return Judgement::Pass;
        }
        let mut pending = Pending {
            about: Vec::new(),
            problems: found.as_ref().map(told).unwrap_or_default(),
        };
        let (is_first, mut asked) = (!self.judged, Vec::new());
        for (place, (filter, options)) in subscribe.filters.iter().enumerate() {
            if is_first {
                let own = found.as_ref().map(|found| found.request.of(filter));
                let own = own.filter(|own| !own.is_empty());
                let carried = Carried {
                    size: 0,
                    qos: options & 3,
                };
                match self.take(Side::Subscribe, filter, own, carried, context) {
                    Ok(Change::Asked(number)) => asked.push(number),
                    Ok(Change::None(_) | Change::Withdrawn) => {}
                    Err(offence) => return Judgement::Offence(offence),
                }
            }
            if let Some(number) = self.flows().find(Side::Subscribe, filter) {
                let topic = filter.to_owned();
                pending.about.push(About { number, topic, place });
            }
        }
        if is_first {
            self.problems(&pending.problems);
            self.classify();
        }
        if self.hold(asked, context) {
            return Judgement::Held;
        }
        if self.refuses(&pending) {
            return self.refuse_subscribe(&subscribe, &pending, context);
        }
        self.pending.remove(&subscribe.packet);
        if !pending.is_empty() && self.pending.len() < MOST_PENDING {
            self.pending.insert(subscribe.packet, pending);
        }
        Judgement::Pass
    }

    /// All filters of the packet or none: what the broker never saw has no subscription.
    pub(crate) fn refuse_subscribe(
        &mut self,
        subscribe: &Subscribe<'_>,
        pending: &Pending,
        context: &Context<'_>,
    ) -> Judgement {
        let pairs = self.say(pending, context.control);
        let codes = vec![QUOTA; subscribe.filters.iter().count()];
        self.answer(Kind::Suback, subscribe.packet, 0, &codes, &pairs);
        self.refused(Kind::Subscribe, false);
        self.withdraw(pending.about.iter().map(|one| one.topic.as_str()));
        Judgement::Drop
    }

    pub(crate) fn unsubscribe(&mut self, head: &Head, rest: &[u8]) -> Judgement {
        if let Ok(unsubscribe) = Subscribe::read(head, rest, Version::V5) {
            self.withdraw(unsubscribe.filters.iter().map(|(filter, _)| filter));
        }
        Judgement::Pass
    }

    pub(crate) fn withdraw<'f>(&mut self, filters: impl Iterator<Item = &'f str>) {
        let Self { flows, events, .. } = self;
        if let Some(flows) = flows.as_mut() {
            filters.for_each(|filter| flows.withdraw(Side::Subscribe, filter, events));
        }
        self.classify();
    }
}
