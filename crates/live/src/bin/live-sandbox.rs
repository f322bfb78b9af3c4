//! The sandbox as a program: `live-sandbox PLAN.json`, for the tests and benches of this crate.

fn main() {
    let plan = std::env::args().nth(1).expect("usage: live-sandbox PLAN.json");
    std::process::exit(timebound_live::main(std::path::Path::new(&plan)));
}
