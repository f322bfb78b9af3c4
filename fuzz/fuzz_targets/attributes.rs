#![no_main]
//! User properties as clients may send them: pairs of texts, each behind its length.

use libfuzzer_sys::fuzz_target;
use timebound_wire::attributes;

fuzz_target!(|data: &[u8]| {
    let mut texts = Vec::new();
    let mut rest = data;
    while let [length, tail @ ..] = rest {
        let (text, after) = tail.split_at(usize::from(*length).min(tail.len()));
        texts.push(String::from_utf8_lossy(text));
        rest = after;
    }
    let pairs = texts
        .chunks_exact(2)
        .map(|pair| (pair[0].as_ref(), pair[1].as_ref()));
    let found = attributes::read(pairs);
    let again = attributes::write(&found.request);
    let again = attributes::read(again.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    assert_eq!(again.request, found.request);
    found
        .problems
        .iter()
        .for_each(|problem| drop(problem.to_string()));
});
