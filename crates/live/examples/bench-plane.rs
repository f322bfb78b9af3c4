//! The data plane's figures, each with its method and beside what the kernel does without us.
//!
//! `bench-plane` prints all; `bench-plane capacity|lateness|delay|bring-up|copies` one of them. Loads are bounded in time. Run it as root on
//! a quiet machine and in release mode.

#[path = "bench/mod.rs"]
mod bench;

use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sandbox", plan] => std::process::exit(timebound_live::main(Path::new(plan))),
        ["flood", to] => bench::load::flood(to),
        ["pace", to, gap] => bench::load::pace(to, gap.parse().expect("ns")),
        ["hold", at] => bench::load::hold(at),
        ["stamp", at] => bench::load::stamp(at),
        ["floor", nodes] => bench::nodes::floor(nodes.parse().expect("a number")),
        ["veth-delay"] => bench::delay::plain(),
        ["veth-flood"] => bench::capacity::plain(),
        ["capacity"] => bench::capacity::run(),
        ["lateness"] => bench::lateness::run(),
        ["delay"] => bench::delay::run(),
        ["bring-up"] => bench::nodes::run(),
        ["copies"] => bench::copies::run(),
        [] => {
            bench::capacity::run();
            bench::lateness::run();
            bench::delay::run();
            bench::copies::run();
            bench::nodes::run();
        }
        _ => panic!("capacity, lateness, delay, bring-up, copies, or nothing for all"),
    }
}
