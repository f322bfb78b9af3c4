//! A slice of the 10,000 random networks of `make bench`.

use timebound_benches::generate::Limits;
use timebound_benches::hold::check;

#[test]
fn no_simulated_latency_exceeds_its_bound() {
    let mut bounded = 0;
    for index in 0..300 {
        let held = check(7, index, &Limits::default(), 40);
        assert!(held.broken.is_empty(), "{:#?}", held.broken);
        assert!(held.tightness.iter().all(|t| *t >= 1.0));
        bounded += held.bounded;
    }
    assert!(
        bounded > 1000,
        "the corpus has too few bounded receivers to mean anything: {bounded}"
    );
}
