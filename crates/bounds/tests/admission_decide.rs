//! Admission that answers first and works out the bounds later: whatever was decided, removed and not worked out before, the answer is
//! that of a full analysis, and of a state in which nothing was left for later.

mod support;

use proptest::prelude::*;
use support::admission::{FLOWS, SWITCHES, add_flows, altered, buffers, check, full, is_broken, pool};
use support::random::builder;
use support::{BYTE_PER_NANO, Builder, Draws, bound};
use timebound_bounds::{Admission, AdmissionOptions, Analysis, Misuse, Refusal};
use timebound_model::declaration::{ArrivalDecl, Declaration, QueueDecl, StreamDecl};
use timebound_model::{Stream, StreamId, compile, compile_stream};

/// What a walk saw.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    decided: usize,
    /// Compared with a full analysis.
    judged: usize,
    /// Admitted before the bounds were known.
    proved: usize,
    admitted: usize,
    refused: usize,
    /// Decided while bounds were still to be worked out.
    in_debt: usize,
    removed: usize,
    /// Answers ahead of the bounds that looked at a part of a busy period alone, level by level.
    parts: u64,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.decided += other.decided;
        self.judged += other.judged;
        self.proved += other.proved;
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.in_debt += other.in_debt;
        self.removed += other.removed;
        self.parts += other.parts;
    }
}

/// What a refusal says. Of two that are equally grave it matters not which comes first.
fn said(refusal: &Refusal) -> (usize, Vec<String>) {
    let breaches = refusal.breaches.iter();
    let mut breaches: Vec<String> = breaches.map(|breach| format!("{breach:?}")).collect();
    breaches.sort_unstable();
    (refusal.total, breaches)
}

/// A state beside the declaration that it should have.
struct Walk {
    admission: Admission,
    declaration: Declaration,
    options: AdmissionOptions,
    seen: Seen,
}

impl Walk {
    fn new(declaration: Declaration, options: AdmissionOptions) -> Self {
        let network = compile(&declaration).expect("a valid network");
        Self {
            admission: Admission::new(&network, options.clone()),
            declaration,
            options,
            seen: Seen::default(),
        }
    }

    fn compiled(&self, stream: &StreamDecl) -> Stream {
        compile_stream(self.admission.network(), stream).expect("a valid stream")
    }

    fn with(&self, stream: &StreamDecl) -> Declaration {
        let mut then = self.declaration.clone();
        then.streams.push(stream.clone());
        then
    }

    fn id(&self, index: usize) -> StreamId {
        let name = &self.declaration.streams[index].name;
        self.admission.find(name).expect("it is there")
    }

    /// The same state, in which nothing was ever left for later.
    fn twin(&self) -> Admission {
        let network = compile(&self.declaration).expect("a valid network");
        Admission::new(&network, self.options.clone())
    }

    fn is_broken(&self, declaration: &Declaration) -> bool {
        let (network, analysis) = full(declaration);
        is_broken(&network, &analysis, self.options.check_buffers)
    }

    /// Decides, and compares with both judges. True if the stream joined.
    fn decide(&mut self, stream: &StreamDecl) -> bool {
        let then = self.with(stream);
        let twin = self.twin().add(self.compiled(stream)).expect("no misuse");
        let in_debt = !self.admission.is_settled();
        let compiled = self.compiled(stream);
        let answer = self.admission.decide(compiled).expect("no misuse");
        let proved = answer.is_ok() && !self.admission.is_settled();
        let context = || {
            let (stream, present) = (&stream.name, &self.declaration);
            format!("proved: {proved}, in debt: {in_debt}, {stream} joins {present:?}")
        };
        if !self.is_broken(&self.declaration) {
            let broken = self.is_broken(&then);
            assert_eq!(
                answer.is_err(),
                broken,
                "{answer:?}, twin {twin:?}, {}",
                context()
            );
            self.seen.judged += 1;
        }
        match (&answer, &twin) {
            (Ok(_), Ok(_)) => {}
            (Err(ours), Err(theirs)) => assert_eq!(said(ours), said(theirs), "{}", context()),
            _ => panic!("{answer:?} and not {twin:?}, {}", context()),
        }
        self.seen.decided += 1;
        self.seen.in_debt += usize::from(in_debt);
        self.seen.proved += usize::from(proved);
        let found = self.admission.find(&stream.name);
        if let Ok(joined) = &answer {
            assert_eq!(found, Some(joined.id));
            let there = self.admission.stream(joined.id).expect("it joined");
            assert_eq!(there.name, stream.name);
            self.seen.admitted += 1;
            self.declaration = then;
        } else {
            assert_eq!(found, None);
            self.seen.refused += 1;
        }
        self.counts();
        answer.is_ok()
    }

    /// What is known without working anything out.
    fn counts(&self) {
        assert_eq!(self.admission.len(), self.declaration.streams.len());
        assert_eq!(self.admission.streams().count(), self.declaration.streams.len());
    }

    fn remove(&mut self, index: usize) -> StreamDecl {
        let id = self.id(index);
        let stream = self.declaration.streams.remove(index);
        let gone = self.admission.remove(id).expect("it leaves");
        assert_eq!(gone.name, stream.name);
        assert_eq!(self.admission.find(&stream.name), None);
        self.seen.removed += 1;
        self.counts();
        stream
    }

    /// All numbers are those of a full analysis.
    fn check(&mut self, step: &str) {
        check(&mut self.admission, &self.declaration, step);
        assert!(self.admission.is_settled() || self.admission.is_empty(), "{step}");
    }

    /// The calls that work out first what was left for later. True if the stream joined.
    fn ask_otherwise(&mut self, stream: &StreamDecl, draws: &mut Draws) -> bool {
        let (mut twin, compiled) = (self.twin(), self.compiled(stream));
        match draws.below(3) {
            0 => {
                let ours = self.admission.alternatives(&compiled, None).expect("known");
                let theirs = twin.alternatives(&compiled, None).expect("known");
                assert_eq!(ours, theirs, "{stream:?} in {:?}", self.declaration);
                false
            }
            1 => {
                let ours = self.admission.ask(compiled.clone()).expect("no misuse");
                let theirs = twin.ask(compiled).expect("no misuse");
                assert_eq!(ours.is_ok(), theirs.is_ok(), "{ours:?} and not {theirs:?}");
                false
            }
            _ => {
                let ours = self.admission.add(compiled.clone()).expect("no misuse");
                let theirs = twin.add(compiled).expect("no misuse");
                assert_eq!(ours.is_ok(), theirs.is_ok(), "{ours:?} and not {theirs:?}");
                if ours.is_ok() {
                    self.declaration = self.with(stream);
                }
                ours.is_ok()
            }
        }
    }

    fn change(&mut self, index: usize, draws: &mut Draws) {
        let stream = altered(&self.declaration.streams[index], draws);
        let id = self.id(index);
        let mut then = self.declaration.clone();
        then.streams[index] = stream.clone();
        let answer = self
            .admission
            .change(id, self.compiled(&stream))
            .expect("no misuse");
        if !self.is_broken(&self.declaration) {
            assert_eq!(answer.is_err(), self.is_broken(&then), "{answer:?} in {then:?}");
        }
        if answer.is_ok() {
            self.declaration = then;
        }
    }

    /// One step of a walk at random; most are decisions and removals, so that much is left for later.
    fn step(&mut self, waiting: &mut Vec<StreamDecl>, draws: &mut Draws) {
        let present = self.declaration.streams.len() as u64;
        let joins = |waiting: &mut Vec<StreamDecl>, draws: &mut Draws| {
            let place = draws.below(waiting.len() as u64) as usize;
            waiting.swap_remove(place)
        };
        match draws.below(100) {
            0..55 if !waiting.is_empty() => {
                let mut stream = joins(waiting, draws);
                if draws.chance(40) {
                    let room = [1, 4, 60][draws.below(3) as usize];
                    let (_, analysis) = full(&self.with(&stream));
                    tighten(&mut stream, &analysis, draws.below(room), 1);
                }
                if !self.decide(&stream) {
                    waiting.push(stream);
                }
            }
            55..85 if present > 0 => {
                let index = draws.below(present) as usize;
                waiting.push(self.remove(index));
            }
            85..90 if !waiting.is_empty() => {
                let stream = joins(waiting, draws);
                if !self.ask_otherwise(&stream, draws) {
                    waiting.push(stream);
                }
            }
            90..94 if present > 0 => self.change(draws.below(present) as usize, draws),
            94..97 => self.admission.settle(),
            97..100 => self.check("on the way"),
            _ => {}
        }
    }
}

/// The deadline of a stream becomes its bound in `analysis` and `more`, less `less`.
fn tighten(stream: &mut StreamDecl, analysis: &Analysis, more: u64, less: u64) {
    let result = analysis
        .streams
        .iter()
        .find(|result| result.stream == stream.name);
    let leaves = &result.expect("it is there").leaves;
    let bounds: Option<Vec<u64>> = leaves.iter().map(|leaf| bound(leaf).map(|b| b.0.0)).collect();
    let most = bounds.and_then(|bounds| bounds.into_iter().max());
    stream.deadline_ns = most.map(|most| (most + more).saturating_sub(less).max(1));
}

/// A small random network, mostly full of jitter, and where deadlines are near.
fn small_walk(seed: u64, steps: usize) -> Seen {
    let mut draws = Draws(seed);
    let mut declaration = builder(&mut draws).declaration;
    let floods = draws.chance(10);
    let mut waiting = pool(&mut draws, &mut declaration, floods);
    // Several streams find room only where periods are longer.
    let factor = if draws.chance(85) { draws.within(2, 8) } else { 1 };
    for stream in &mut waiting {
        if let ArrivalDecl::Periodic {
            period_ns, jitter_ns, ..
        } = &mut stream.arrival
        {
            (*period_ns, *jitter_ns) = (*period_ns * factor, *jitter_ns * factor);
        }
        stream.deadline_ns = stream.deadline_ns.map(|deadline| deadline * factor);
    }
    let options = if draws.chance(10) {
        declaration.links.iter_mut().for_each(|link| {
            link.forward.buffer_bytes = 40;
            link.backward.buffer_bytes = 60;
        });
        buffers()
    } else {
        AdmissionOptions::default()
    };
    let there = draws.below(waiting.len() as u64 + 1) as usize;
    declaration.streams = waiting.split_off(waiting.len() - there);
    // In most walks nothing is late at the start: then a full analysis can judge all of it.
    let (tight, is_late) = (draws.within(0, 60), draws.chance(20));
    let (network, analysis) = full(&declaration);
    if !is_late && is_broken(&network, &analysis, false) {
        let streams = declaration.streams.iter_mut();
        streams.for_each(|stream| stream.deadline_ns = None);
    }
    for stream in &mut declaration.streams {
        if draws.chance(tight) {
            let room = [1, 10, 100][draws.below(3) as usize];
            let less = u64::from(is_late && draws.chance(10));
            tighten(stream, &analysis, draws.below(room), less);
        }
    }
    let mut walk = Walk::new(declaration, options);
    for _ in 0..steps {
        walk.step(&mut waiting, &mut draws);
    }
    walk.check("in the end");
    walk.seen
}

#[test]
fn random_walks_decide_as_a_full_analysis_would() {
    let mut sum = Seen::default();
    (0..1_500).for_each(|seed| sum.add(small_walk(seed, 24)));
    assert!(
        sum.judged > 10_000 && sum.proved > 2_000 && sum.refused > 4_000 && sum.in_debt > 4_000,
        "{sum:?}"
    );
}

/// A link has nobody any more, so that frames reach a level less late than was proved before, while its responses have become longer. In these
/// walks that decides: where only what rises further was kept, a stream joined that may not.
#[test]
fn longer_responses_are_kept_where_frames_come_less_late() {
    for seed in [12_449, 17_890] {
        assert!(small_walk(seed, 40).proved > 0);
    }
}

#[test]
#[ignore = "takes minutes; cargo test --release --test admission_decide -- --ignored"]
fn long_random_walks_decide_as_a_full_analysis_would() {
    let mut sum = Seen::default();
    (10_000..40_000).for_each(|seed| sum.add(small_walk(seed, 40)));
    (100..250).for_each(|seed| sum.add(tree_walk(seed, 60, 0)));
    (1_000..1_600).for_each(|seed| sum.add(tree_walk(seed, 60, 60)));
    (10_000..60_000).for_each(|seed| sum.add(chain(seed)));
    println!("{sum:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_walk_decides_as_a_full_analysis_would(seed in any::<u64>()) {
        small_walk(seed, 24);
    }
}

/// Every switch has up to three below it and one host; in some trees ports are FIFO, or hosts and outer switches have slower lines.
fn tree(draws: &mut Draws) -> Declaration {
    let mut builder = Builder::new(BYTE_PER_NANO, 500);
    let (fifo, slow) = ([0, 25, 100][draws.below(3) as usize], draws.chance(50));
    for index in 0..SWITCHES {
        let (switch, host) = (format!("s{index}"), format!("h{index}"));
        builder = builder.switch(&switch, 0, 1_000).host(&host);
        let slower = if slow { draws.within(1, 3) } else { 1 };
        let is_fifo = draws.chance(fifo);
        let dress = |builder: Builder, slower: u64| {
            builder.change(|direction| {
                direction.rate_bps /= slower;
                if is_fifo {
                    direction.queue = QueueDecl::Fifo;
                }
            })
        };
        builder = dress(builder.link(&host, &switch), slower);
        if index > 0 {
            let slower = if slow && index > 3 { draws.within(1, 2) } else { 1 };
            builder = dress(builder.link(&switch, &format!("s{}", (index - 1) / 3)), slower);
        }
    }
    add_flows(builder, draws).declaration
}

/// Every stream has a deadline a little above its bound: many requests are near the edge.
fn near_the_edge(declaration: &mut Declaration, draws: &mut Draws) {
    let (_, analysis) = full(declaration);
    for stream in &mut declaration.streams {
        tighten(stream, &analysis, 0, 0);
        if let Some(deadline) = &mut stream.deadline_ns {
            *deadline += *deadline / draws.within(2, 40);
        }
    }
}

/// `settled`: of a hundred requests, so many are followed by the bounds.
fn tree_walk(seed: u64, steps: usize, settled: u64) -> Seen {
    let mut draws = Draws(seed);
    let mut declaration = tree(&mut draws);
    // Those that wait have room when all are there, and those that are there when no other is.
    near_the_edge(&mut declaration, &mut draws);
    let mut waiting = declaration.streams.split_off(FLOWS * 5 / 6);
    near_the_edge(&mut declaration, &mut draws);
    let mut walk = Walk::new(declaration, AdmissionOptions::default());
    for _ in 0..steps {
        match draws.below(100) {
            0..65 if !waiting.is_empty() => {
                let stream = waiting.swap_remove(draws.below(waiting.len() as u64) as usize);
                if !walk.decide(&stream) {
                    waiting.push(stream);
                }
            }
            65..95 => {
                let present = walk.declaration.streams.len() as u64;
                let index = draws.below(present) as usize;
                waiting.push(walk.remove(index));
            }
            95..97 => walk.admission.settle(),
            _ => walk.check("on the way"),
        }
        if settled > 0 && draws.chance(settled) {
            walk.admission.settle();
        }
    }
    walk.check("in the end");
    walk.seen.parts = walk.admission.sweeps()[1];
    walk.seen
}

#[test]
fn trees_with_near_deadlines_are_decided_as_a_full_analysis_would() {
    let mut sum = Seen::default();
    (0..100).for_each(|seed| sum.add(tree_walk(seed, 60, 0)));
    assert!(
        sum.judged > 3_000 && sum.proved > 400 && sum.refused > 1_000 && sum.in_debt > 1_000,
        "{sum:?}"
    );
}

#[test]
fn trees_with_bounds_between_requests_are_decided_as_a_full_analysis_would() {
    let mut sum = Seen::default();
    (100..150).for_each(|seed| sum.add(tree_walk(seed, 60, 60)));
    assert!(
        sum.judged > 1_500 && sum.proved > 200 && sum.refused > 500 && sum.parts > 1_000,
        "{sum:?}"
    );
}

/// Two hosts send through one port to a third; a byte takes a nanosecond.
fn star() -> Declaration {
    let mut builder = Builder::new(BYTE_PER_NANO, 0).switch("s", 0, 0);
    for host in ["a", "b", "c"] {
        builder = builder.host(host).link(host, "s");
    }
    builder
        .stream("first", 1, ("a", &["c"]), (10_000, 0, &[100]))
        .stream("second", 1, ("b", &["c"]), (10_000, 0, &[100]))
        .declaration
}

#[test]
fn one_nanosecond_decides() {
    for class in [0, 1, 2] {
        for (mine, theirs) in [(0, 0), (0, 1), (1, 0), (2, 2), (1, 1), (1, 2), (2, 1)] {
            let mut declaration = star();
            declaration.streams[1].class = class;
            // Both deadlines are the bounds of both together, and one nanosecond less or more.
            let (_, analysis) = full(&declaration);
            tighten(&mut declaration.streams[0], &analysis, theirs, 1);
            tighten(&mut declaration.streams[1], &analysis, mine, 1);
            let second = declaration.streams.pop().expect("it was declared");
            let mut walk = Walk::new(declaration, AdmissionOptions::default());
            let fits = mine > 0 && (theirs > 0 || walk.is_broken(&walk.declaration));
            assert_eq!(walk.decide(&second), fits, "{mine} {theirs} in class {class}");
            // The same once more with debts.
            let first = walk.remove(0);
            walk.decide(&first);
            if fits {
                walk.remove(0);
                walk.decide(&second);
            }
            walk.check("in the end");
        }
    }
}

#[test]
fn deadlines_at_the_bounds_of_trees_admit_all_that_leave_and_come_again() {
    for seed in 0..4 {
        for (more, less) in [(0, 0), (1, 0), (0, 1)] {
            let mut draws = Draws(seed);
            let mut declaration = tree(&mut draws);
            declaration.streams.truncate(80);
            let (_, analysis) = full(&declaration);
            for stream in &mut declaration.streams {
                tighten(stream, &analysis, more, less);
            }
            let mut walk = Walk::new(declaration, AdmissionOptions::default());
            let mut gone: Vec<StreamDecl> = (0..4)
                .map(|_| walk.remove(draws.below(walk.declaration.streams.len() as u64) as usize))
                .collect();
            let mut all = true;
            while let Some(stream) = gone.pop() {
                all &= walk.decide(&stream);
            }
            assert_eq!(all, less == 0, "seed {seed}");
            walk.check("in the end");
        }
    }
}

/// A stream misses its deadline by `less` as long as another is there; that one leaves, and asks to join again.
fn late_before(less: u64) {
    let mut declaration = star();
    let (_, analysis) = full(&declaration);
    tighten(&mut declaration.streams[0], &analysis, 0, less);
    for settles in [true, false] {
        let mut walk = Walk::new(declaration.clone(), AdmissionOptions::default());
        let second = walk.remove(1);
        if settles {
            walk.admission.settle();
        }
        assert!(!walk.decide(&second), "settled before: {settles}");
        walk.check("after the refusal");
    }
}

/// A stream that was late and is in time again as another left is not to be made late again.
#[test]
fn what_was_late_before_a_removal_is_no_excuse_after_it() {
    late_before(1);
}

/// A stream that is late, and was later, is not to be made as late as it was.
#[test]
fn less_late_is_not_to_become_later() {
    late_before(150);
}

/// First something else makes others at a receiver's port later than its stream could bear, which is proved to spare it; then it is made
/// later itself, by less than the others were. What was proved of the port does not cover that.
#[test]
fn later_by_less_than_others_may_be_too_late() {
    for switches in [1, 2] {
        let mut builder = Builder::new(BYTE_PER_NANO, 0).switch("s0", 0, 0);
        for host in ["a", "b", "d"] {
            builder = builder.host(host).link(host, "s0");
        }
        for index in 1..switches {
            let (before, switch) = (format!("s{}", index - 1), format!("s{index}"));
            builder = builder.switch(&switch, 0, 0).link(&before, &switch);
        }
        builder = builder.host("c").link(&format!("s{}", switches - 1), "c");
        let mut declaration = builder
            .stream("victim", 1, ("a", &["c"]), (100_000, 0, &[100]))
            .stream("other", 1, ("b", &["c"]), (100_000, 0, &[100]))
            .stream("large", 1, ("b", &["d"]), (100_000, 0, &[1_000]))
            .stream("small", 1, ("a", &["d"]), (100_000, 0, &[200]))
            .declaration;
        let joining = declaration.streams.split_off(2);
        let (_, analysis) = full(&declaration);
        tighten(&mut declaration.streams[0], &analysis, 150, 0);
        for settles in [true, false] {
            let mut walk = Walk::new(declaration.clone(), AdmissionOptions::default());
            assert!(walk.decide(&joining[0]) && !walk.admission.is_settled());
            if settles {
                walk.admission.settle();
            }
            assert!(!walk.decide(&joining[1]), "settled before: {settles}");
            walk.check("in the end");
        }
    }
}

/// The same where the victim joins when its port is later already, over a link that holds it back so that it adds nothing there: it
/// bears less than those that were there.
#[test]
fn who_joins_a_later_port_may_bear_less_than_the_others() {
    let mut builder = Builder::new(BYTE_PER_NANO, 62)
        .switch("s0", 62, 250)
        .switch("s1", 62, 250);
    builder = builder.link("s0", "s1");
    for (host, switch) in [("h0", "s0"), ("h1", "s1"), ("h2", "s0"), ("h3", "s1")] {
        builder = builder.host(host).link(host, switch);
    }
    let mut declaration = builder
        .stream("there", 5, ("h1", &["h0"]), (125_000, 312_500, &[106]))
        .stream("big", 6, ("h3", &["h0"]), (150_000, 0, &[1_066]))
        .stream("one", 1, ("h3", &["h2"]), (50_000, 0, &[130]))
        .stream("two", 0, ("h1", &["h0"]), (150_000, 6_250, &[106]))
        .stream("last", 4, ("h1", &["h3"]), (500_000, 0, &[106]))
        .declaration;
    for link in &mut declaration.links {
        if link.a != "h1" {
            (link.forward.queue, link.backward.queue) = (QueueDecl::Fifo, QueueDecl::Fifo);
        }
    }
    let mut then = declaration.clone();
    then.streams.truncate(4);
    let (_, analysis) = full(&then);
    let mut joining = declaration.streams.split_off(2);
    tighten(&mut joining[1], &analysis, 0, 0);
    for settles in [true, false] {
        let mut walk = Walk::new(declaration.clone(), AdmissionOptions::default());
        assert!(walk.decide(&joining[0]) && walk.decide(&joining[1]) && !walk.admission.is_settled());
        if settles {
            walk.admission.settle();
        }
        assert!(!walk.decide(&joining[2]), "settled before: {settles}");
        walk.check("in the end");
    }
}

/// Streams join one after another, and nobody asks for a bound; many have a deadline a little above their bound when they join.
fn chain(seed: u64) -> Seen {
    let mut draws = Draws(seed);
    let switches = draws.within(1, 4);
    let mut builder = Builder::new(BYTE_PER_NANO, draws.below(30));
    for index in 0..switches {
        builder = builder.switch(&format!("s{index}"), draws.below(5), draws.within(5, 40));
        if index > 0 {
            builder = builder.link(&format!("s{}", draws.below(index)), &format!("s{index}"));
        }
    }
    let hosts = draws.within(3, 6);
    for index in 0..hosts {
        let host = format!("h{index}");
        builder = builder
            .host(&host)
            .link(&host, &format!("s{}", draws.below(switches)));
    }
    let count = draws.within(4, 30);
    for index in 0..count {
        let from = draws.below(hosts);
        let to = (from + draws.within(1, hosts - 1)) % hosts;
        let period = [6_000, 10_000, 20_000, 45_000][draws.below(4) as usize];
        let jitter = [0, 0, period / 20, 2 * period][draws.below(4) as usize];
        let size = [40, 60, 100, 250, 1_000][draws.below(5) as usize];
        builder = builder.stream(
            &format!("f{index}"),
            draws.below(8) as u8,
            (&format!("h{from}"), &[&format!("h{to}")]),
            (period, jitter, &[size]),
        );
    }
    let mut declaration = builder.declaration;
    if draws.chance(60) {
        for link in &mut declaration.links {
            for direction in [&mut link.forward, &mut link.backward] {
                if draws.chance(60) {
                    direction.queue = QueueDecl::Fifo;
                }
            }
        }
    }
    let mut waiting = std::mem::take(&mut declaration.streams);
    let mut walk = Walk::new(declaration, AdmissionOptions::default());
    while let Some(mut stream) = waiting.pop() {
        if draws.chance(50) {
            let (_, analysis) = full(&walk.with(&stream));
            let room = [1, 30, 300, 1_500][draws.below(4) as usize];
            tighten(&mut stream, &analysis, draws.below(room), 0);
        }
        walk.decide(&stream);
        if draws.chance(4) {
            walk.admission.settle();
        }
    }
    walk.check("in the end");
    walk.seen
}

#[test]
fn one_after_another_is_decided_as_a_full_analysis_would() {
    let mut sum = Seen::default();
    (0..600).for_each(|seed| sum.add(chain(seed)));
    assert!(
        sum.proved > 3_000 && sum.refused > 3_000 && sum.in_debt > 3_000,
        "{sum:?}"
    );
}

/// A stream comes over a link whose frames were made later by the one before, as the first to its port, where so far nothing was said
/// of that link. As another one left, nothing there gets later once more; still it comes as late as the others.
#[test]
fn the_first_stream_behind_a_later_port_is_later_itself() {
    let mut proved = 0;
    for period in (600..6_000).step_by(75) {
        for jitter in [0, 100, 300] {
            let mut builder = Builder::new(BYTE_PER_NANO, 0).switch("s", 0, 0).switch("t", 0, 0);
            for host in ["a", "b", "f", "g"] {
                builder = builder.host(host).link(host, "s");
            }
            builder = builder.link("s", "t");
            for host in ["c", "d", "e"] {
                builder = builder.host(host).link(host, "t");
            }
            let mut declaration = builder
                .stream("with", 1, ("a", &["c"]), (100_000, 0, &[100]))
                .stream("victim", 1, ("e", &["d"]), (100_000, 0, &[100]))
                .stream("large", 1, ("b", &["c"]), (100_000, 0, &[1_000]))
                .stream("late", 1, ("f", &["d"]), (period, jitter, &[100]))
                .stream("gone", 1, ("g", &["c"]), (100_000, 0, &[600]))
                .declaration;
            let gone = declaration.streams.pop().expect("it was declared");
            for link in &mut declaration.links {
                if link.a == "d" {
                    link.backward.rate_bps /= 2;
                }
            }
            let (_, analysis) = full(&declaration);
            tighten(&mut declaration.streams[1], &analysis, 0, 1);
            let joining = declaration.streams.split_off(2);
            declaration.streams.push(gone);
            let mut walk = Walk::new(declaration, AdmissionOptions::default());
            assert!(walk.decide(&joining[0]));
            proved += usize::from(!walk.admission.is_settled());
            walk.remove(2);
            walk.decide(&joining[1]);
            walk.check("in the end");
        }
    }
    assert!(proved > 100, "{proved}");
}

/// Whoever is late already holds up nobody who makes nothing worse.
#[test]
fn late_streams_that_stay_as_they_are_do_not_count() {
    let mut declaration = star();
    let (_, analysis) = full(&declaration);
    tighten(&mut declaration.streams[0], &analysis, 0, 1);
    let mut walk = Walk::new(declaration.clone(), AdmissionOptions::default());
    let mut back = declaration.streams[1].clone();
    "back".clone_into(&mut back.name);
    "c".clone_into(&mut back.source);
    back.destinations = vec!["a".into()];
    assert!(walk.decide(&back));
    let mut more = declaration.streams[1].clone();
    "more".clone_into(&mut more.name);
    if let ArrivalDecl::Periodic { frames_bytes, .. } = &mut more.arrival {
        frames_bytes[0] = 300;
    }
    assert!(!walk.decide(&more));
    walk.check("in the end");
}

#[test]
fn names_are_taken_before_the_bounds_are_known() {
    let mut declaration = star();
    let second = declaration.streams.pop().expect("it was declared");
    let mut walk = Walk::new(declaration, AdmissionOptions::default());
    let twice = |walk: &mut Walk| {
        let compiled = walk.compiled(&second);
        let misuse = Misuse::Duplicate("second".into());
        assert_eq!(
            walk.admission.decide(compiled.clone()).err(),
            Some(misuse.clone())
        );
        assert_eq!(walk.admission.add(compiled.clone()).err(), Some(misuse.clone()));
        assert_eq!(walk.admission.ask(compiled.clone()).err(), Some(misuse.clone()));
        let first = walk.admission.find("first").expect("it is there");
        assert_eq!(walk.admission.change(first, compiled).err(), Some(misuse));
        walk.counts();
    };
    for settles in [false, true, false] {
        assert!(walk.decide(&second));
        assert!(!walk.admission.is_settled(), "nobody has a deadline");
        twice(&mut walk);
        if settles {
            walk.admission.settle();
            assert!(walk.admission.is_settled());
            twice(&mut walk);
        }
        let index = walk.declaration.streams.len() - 1;
        assert_eq!(walk.remove(index).name, "second");
    }
    walk.check("after all left");
    assert!(walk.decide(&second));
    walk.check("after it joined");
    twice(&mut walk);
    let unknown = StreamId(9);
    assert_eq!(
        walk.admission.remove(unknown).err(),
        Some(Misuse::Unknown(unknown))
    );
    assert!(walk.admission.is_settled(), "misuse leaves nothing for later");
}

#[test]
fn a_stream_that_left_before_the_bounds_were_known_leaves_nothing_behind() {
    let mut declaration = star();
    let (_, analysis) = full(&declaration);
    for stream in &mut declaration.streams {
        tighten(stream, &analysis, 0, 0);
    }
    let second = declaration.streams.pop().expect("it was declared");
    let mut third = second.clone();
    "third".clone_into(&mut third.name);
    let mut walk = Walk::new(declaration, AdmissionOptions::default());
    for _ in 0..3 {
        assert!(walk.decide(&second), "alone with the first it fits");
        assert!(!walk.decide(&third), "not beside the second");
        walk.remove(1);
        assert!(walk.decide(&third), "but instead of it");
        assert!(!walk.decide(&second));
        walk.remove(1);
    }
    walk.check("in the end");
}
