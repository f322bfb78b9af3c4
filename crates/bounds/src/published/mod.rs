//! The analyses of Shahri, Pedreiras and Almeida's paper on real-time MQTT over edge networks (MRT-MQTT, section VI) exactly as printed: for comparison with its
//! figures, never as bounds. Everything here is labelled unsafe; `tests/defects.rs` has for each defect a run above the printed figure.

mod holistic;
mod trajectory;

pub use holistic::{Bracket, holistic_as_published, holistic_with_bracket};
pub use trajectory::{Defect, trajectory_as_published, trajectory_with};
