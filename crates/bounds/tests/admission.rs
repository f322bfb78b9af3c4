//! Admission: after every step the numbers of a full analysis, decisions as it would make them, and the culprit by name.

mod support;

use proptest::prelude::*;
use support::admission::{altered, buffers, check, full, is_broken, pool};
use support::random::builder;
use support::{BYTE_PER_NANO, Builder, Draws};
use timebound_bounds::{Admission, AdmissionOptions, Breach, Outcome, StreamResult};
use timebound_model::declaration::{ArrivalDecl, Declaration, StreamDecl};
use timebound_model::{Arrival, Class, Span, StreamId, compile, compile_stream};

/// What a walk saw.
#[derive(Debug, Default)]
struct Seen {
    admitted: usize,
    refused: usize,
    removed: usize,
    judged: usize,
}

struct Walk {
    admission: Admission,
    declaration: Declaration,
    with_buffers: bool,
    seen: Seen,
}

impl Walk {
    fn new(declaration: Declaration, with_buffers: bool) -> Self {
        let network = compile(&declaration).expect("a valid network");
        let options = AdmissionOptions {
            check_buffers: with_buffers,
            ..AdmissionOptions::default()
        };
        let mut admission = Admission::new(&network, options);
        check(&mut admission, &declaration, "at the start");
        Self {
            admission,
            declaration,
            with_buffers,
            seen: Seen::default(),
        }
    }

    /// Asks for `stream` in the place of the stream at `index` or as a new one, and compares with the full analysis.
    fn request(&mut self, stream: StreamDecl, index: Option<usize>) {
        let compiled = compile_stream(self.admission.network(), &stream).expect("a valid stream");
        let (network, analysis) = full(&self.declaration);
        let was_broken = is_broken(&network, &analysis, self.with_buffers);
        let mut then = self.declaration.clone();
        match index {
            Some(index) => then.streams[index] = stream,
            None => then.streams.push(stream),
        }
        let old = index.map(|index| {
            self.admission
                .find(&self.declaration.streams[index].name)
                .expect("it is there")
        });
        let decision = match old {
            Some(id) => self.admission.change(id, compiled),
            None => self.admission.add(compiled),
        };
        let decision = decision.expect("no misuse");
        if !was_broken {
            let (network, analysis) = full(&then);
            assert_eq!(
                decision.is_err(),
                is_broken(&network, &analysis, self.with_buffers),
                "{decision:?} in {then:?}"
            );
            self.seen.judged += 1;
        }
        match decision {
            Ok(_) => {
                self.seen.admitted += 1;
                self.declaration = then;
            }
            Err(refusal) => {
                assert!(!refusal.breaches.is_empty() && refusal.total >= refusal.breaches.len());
                self.seen.refused += 1;
            }
        }
        check(&mut self.admission, &self.declaration, "after a request");
    }

    fn remove(&mut self, index: usize) {
        let stream = self.declaration.streams.remove(index);
        let id = self.admission.find(&stream.name).expect("it is there");
        let gone = self.admission.remove(id).expect("it leaves");
        assert_eq!(gone.name, stream.name);
        self.seen.removed += 1;
        check(&mut self.admission, &self.declaration, "after a removal");
    }
}

fn walk(seed: u64, steps: usize) -> Seen {
    let mut draws = Draws(seed);
    let mut declaration = builder(&mut draws).declaration;
    let floods = draws.chance(20);
    let mut pool = pool(&mut draws, &mut declaration, floods);
    // In one half of the networks periods are longer, so that several streams find room.
    if draws.chance(60) {
        let factor = draws.within(2, 6);
        for stream in &mut pool {
            if let ArrivalDecl::Periodic {
                period_ns, jitter_ns, ..
            } = &mut stream.arrival
            {
                (*period_ns, *jitter_ns) = (*period_ns * factor, *jitter_ns * factor);
            }
        }
    }
    if draws.chance(30) {
        declaration.links.iter_mut().for_each(|link| {
            link.forward.buffer_bytes = 40;
            link.backward.buffer_bytes = 60;
        });
    }
    let there = draws.below(pool.len() as u64 + 1) as usize;
    declaration.streams = pool.split_off(pool.len() - there);
    let with_buffers = draws.chance(30);
    let mut walk = Walk::new(declaration, with_buffers);
    for _ in 0..steps {
        let present = walk.declaration.streams.len() as u64;
        match draws.below(3) {
            0 if !pool.is_empty() => {
                let stream = pool.swap_remove(draws.below(pool.len() as u64) as usize);
                walk.request(stream.clone(), None);
                if walk.admission.find(&stream.name).is_none() {
                    pool.push(stream);
                }
            }
            1 if present > 0 => {
                let index = draws.below(present) as usize;
                pool.push(walk.declaration.streams[index].clone());
                walk.remove(index);
            }
            _ if present > 0 => {
                let index = draws.below(present) as usize;
                let stream = altered(&walk.declaration.streams[index], &mut draws);
                walk.request(stream, Some(index));
            }
            _ => {}
        }
    }
    walk.seen
}

#[test]
fn random_walks_agree_with_a_full_analysis_at_every_step() {
    let mut sum = Seen::default();
    for seed in 0..600 {
        let seen = walk(seed, 16);
        sum.admitted += seen.admitted;
        sum.refused += seen.refused;
        sum.removed += seen.removed;
        sum.judged += seen.judged;
    }
    assert!(
        sum.admitted > 600 && sum.refused > 600 && sum.removed > 600 && sum.judged > 600,
        "{sum:?}"
    );
}

#[test]
#[ignore = "takes minutes; cargo test --release --test admission -- --ignored"]
fn long_random_walks_agree_with_a_full_analysis() {
    for seed in 10_000..60_000 {
        walk(seed, 30);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_walk_agrees_with_a_full_analysis(seed in any::<u64>()) {
        walk(seed, 12);
    }
}

/// Two senders share the port of one receiver; a byte takes a nanosecond.
fn pair() -> Builder {
    let mut builder = Builder::new(BYTE_PER_NANO, 0)
        .switch("s", 0, 0)
        .host("a")
        .host("b")
        .host("c");
    for host in ["a", "b", "c"] {
        builder = builder.link(host, "s");
    }
    builder
        .stream("slow", 1, ("a", &["c"]), (10_000, 0, &[100]))
        .stream("next", 1, ("b", &["c"]), (10_000, 0, &[100]))
}

fn admission_of(builder: &Builder) -> Admission {
    Admission::new(&builder.network(), AdmissionOptions::default())
}

fn request(
    admission: &Admission,
    like: &StreamDecl,
    change: impl FnOnce(&mut StreamDecl),
) -> timebound_model::Stream {
    let mut decl = like.clone();
    "new".clone_into(&mut decl.name);
    change(&mut decl);
    compile_stream(admission.network(), &decl).expect("a valid stream")
}

fn bound_of(result: &StreamResult) -> Span {
    match result.leaves[0].outcome {
        Outcome::Bound { from_nominal, .. } => from_nominal,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn the_stream_that_would_miss_its_deadline_and_the_port_are_named() {
    let mut builder = pair();
    let alone = bound_of(&admission_of(&builder).result(StreamId(0)).expect("there"));
    builder.declaration.streams[0].deadline_ns = Some(alone.0 + 30);
    let mut admission = admission_of(&builder);
    let like = builder.declaration.streams[1].clone();
    let stream = request(&admission, &like, |decl| {
        decl.class = 2;
        decl.arrival = ArrivalDecl::Periodic {
            period_ns: 10_000,
            jitter_ns: 0,
            frames_bytes: vec![50],
        };
    });
    let refusal = admission
        .add(stream.clone())
        .expect("no misuse")
        .expect_err("50 ns are too many");
    let [
        Breach::Deadline {
            stream: culprit,
            receiver,
            deadline,
            bound,
            before,
            excess,
            name,
            growth,
            ..
        },
    ] = &refusal.breaches[..]
    else {
        panic!("{refusal:?}");
    };
    assert_eq!(
        (culprit.as_str(), receiver.as_str(), name.as_str()),
        ("slow", "c", "s->c")
    );
    assert_eq!(*deadline, Span(alone.0 + 30));
    assert_eq!((*before, *bound), (Some(alone), Some(Span(alone.0 + 50))));
    assert_eq!((*excess, *growth), (Some(Span(20)), Some(Span(50))));
    assert_eq!(
        refusal.to_string(),
        format!(
            "stream \"slow\" could miss its deadline of {deadline} at c by 20 ns; its response grows most at port s->c, by 50 ns"
        )
    );
    assert_eq!(admission.find("new"), None);
    check(&mut admission, &builder.declaration, "after the refusal");
    // In class 0 it still blocks the slow one; in its class it comes over the link of the other, one frame after the other.
    let found = admission.alternatives(&stream, None).expect("known");
    assert_eq!(found.lowest_class, Some(Class(1)));
}

#[test]
fn an_overloaded_port_is_named_with_its_utilisation() {
    let builder = pair();
    let mut admission = admission_of(&builder);
    let like = builder.declaration.streams[1].clone();
    let stream = request(&admission, &like, |decl| {
        decl.arrival = ArrivalDecl::Periodic {
            period_ns: 100,
            jitter_ns: 0,
            frames_bytes: vec![99],
        };
    });
    let refusal = admission
        .ask(stream.clone())
        .expect("no misuse")
        .expect_err("0.99 + 0.02");
    let names: Vec<_> = refusal
        .breaches
        .iter()
        .map(|breach| match breach {
            Breach::Overload {
                name, utilisation, ..
            } => (name.as_str(), utilisation.numerator, utilisation.denominator),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names, [("b->s", 1, 1), ("s->c", 101, 100)]);
    // 0.98 is left at the port of the receiver, where the other two take 0.02: 99 / 102 fits, 99 / 101 does not.
    let found = admission.alternatives(&stream, None).expect("known");
    assert_eq!(found.smallest_period, Some(Span(102)));
    check(&mut admission, &builder.declaration, "after asking");
}

#[test]
fn alternatives_of_a_stream_that_is_there_count_it_once() {
    let mut builder = pair();
    builder.declaration.streams[0].deadline_ns = Some(1_000);
    let mut admission = admission_of(&builder);
    for name in ["slow", "next"] {
        let id = admission.find(name).expect("it is there");
        let mut stream = admission.stream(id).expect("it is there").clone();
        let once = admission.alternatives(&stream, None).expect("known");
        assert_eq!(once, admission.alternatives(&stream, Some(id)).expect("known"));
        stream.name = "another".to_owned();
        let twice = admission.alternatives(&stream, None).expect("known");
        assert!(twice.smallest_period > once.smallest_period, "{once:?} {twice:?}");
    }
}

#[test]
fn alternatives_are_admitted_and_what_is_next_to_them_is_not() {
    let mut builder = pair();
    builder.declaration.streams[0].deadline_ns = Some(700);
    let mut admission = admission_of(&builder);
    let like = builder.declaration.streams[1].clone();
    let mut turned = 0;
    for (class, frames) in [(0, 1), (1, 2), (2, 3), (7, 1)] {
        let stream = request(&admission, &like, |decl| {
            decl.class = class;
            decl.deadline_ns = Some(3_600);
            decl.arrival = ArrivalDecl::Periodic {
                period_ns: 900,
                jitter_ns: 2_500,
                frames_bytes: vec![60; frames],
            };
        });
        let found = admission.alternatives(&stream, None).expect("known");
        assert!(found.decisions <= 120);
        let mut admits = |change: &dyn Fn(&mut timebound_model::Stream)| {
            let mut stream = stream.clone();
            change(&mut stream);
            admission.ask(stream).expect("no misuse").is_ok()
        };
        let period = |ns: u64| {
            move |stream: &mut timebound_model::Stream| {
                if let Arrival::Periodic { period, .. } = &mut stream.arrival {
                    *period = Span(ns);
                }
            }
        };
        if let Some(Span(least)) = found.smallest_period {
            turned += 1;
            assert!(admits(&period(least)) && !admits(&period(least - 1)));
            assert!(admits(&period(least + 17)) && !admits(&period(least / 2)));
        }
        if let Some(deadline) = found.smallest_deadline {
            assert!(admits(&|stream| stream.deadline = Some(deadline)));
            assert!(!admits(&|stream| stream.deadline = Some(Span(deadline.0 - 1))));
        }
        let lowest = (0..8)
            .map(Class)
            .find(|class| admits(&|stream| stream.class = *class));
        assert_eq!(found.lowest_class, lowest);
    }
    assert!(turned >= 2, "the test says something");
}

#[test]
fn a_full_queue_is_named_where_buffers_are_checked() {
    let mut builder = pair();
    let like = builder.declaration.streams.remove(1);
    builder.declaration.links[2].backward.buffer_bytes = 150;
    let network = builder.network();
    let mut admission = Admission::new(&network, buffers());
    let stream = request(&admission, &like, |_| ());
    let refusal = admission
        .add(stream.clone())
        .expect("no misuse")
        .expect_err("two frames");
    assert!(
        matches!(&refusal.breaches[..], [Breach::Buffer { name, class: Class(1), room_bytes: 150, .. }] if name == "s->c"),
        "{refusal:?}"
    );
    assert!(
        refusal.to_string().contains("port s->c, which has room for 150"),
        "{refusal}"
    );
    let mut careless = Admission::new(&network, AdmissionOptions::default());
    assert!(careless.add(stream).expect("no misuse").is_ok());
}

#[test]
fn misuse_is_an_error_and_changes_nothing() {
    let builder = pair();
    let mut admission = admission_of(&builder);
    let like = builder.declaration.streams[1].clone();
    let twin = compile_stream(admission.network(), &like).expect("valid");
    assert_eq!(
        admission.add(twin.clone()).expect_err("a twin").to_string(),
        "a stream named \"next\" is there already"
    );
    assert!(admission.change(StreamId(0), twin.clone()).is_err());
    assert!(admission.change(StreamId(9), twin.clone()).is_err());
    assert!(admission.remove(StreamId(9)).is_err());
    assert!(admission.alternatives(&twin, Some(StreamId(9))).is_err());
    check(&mut admission, &builder.declaration, "after misuse");
}

#[test]
fn ports_that_are_not_covered_have_no_bound_and_say_why() {
    let mut builder = pair();
    builder.declaration.links[2].backward.queue = timebound_model::declaration::QueueDecl::Drr {
        quanta_bytes: [1_538; 8],
    };
    let mut admission = admission_of(&builder);
    let like = builder.declaration.streams[1].clone();
    let stream = request(&admission, &like, |decl| decl.deadline_ns = Some(1_000_000));
    let refusal = admission.add(stream).expect("no misuse").expect_err("no bound");
    let text = refusal.to_string();
    assert!(
        text.contains("port s->c serves its classes by deficit round robin, which admission does not cover"),
        "{text}"
    );
}

#[test]
fn the_state_may_go_to_another_thread() {
    fn is_send<T: Send>(_: &T) {}
    let builder = pair();
    let mut admission = admission_of(&builder);
    is_send(&admission);
    let declaration = builder.declaration.clone();
    let mut admission = std::thread::spawn(move || {
        admission.remove(StreamId(1)).expect("there");
        admission
    })
    .join()
    .expect("no panic");
    let mut left = declaration;
    left.streams.truncate(1);
    check(&mut admission, &left, "after a thread");
}
