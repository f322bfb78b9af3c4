//! A slice of the 100,000 random networks of `make bench`.

use timebound_benches::hold::check;

#[test]
fn no_simulated_latency_and_no_queue_exceeds_its_bound() {
    let (mut bounded, mut found) = (0, 0);
    for index in 0..400 {
        let held = check(7, index, 8);
        assert!(held.broken.is_empty(), "{:#?}", held.broken);
        bounded += held.bounded;
        found += held.tightness.len();
    }
    assert!(
        bounded > 2_000 && found > 2_000,
        "the corpus has too few bounded receivers to mean anything: {bounded}, {found}"
    );
}
