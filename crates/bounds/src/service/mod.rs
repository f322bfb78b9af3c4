//! What a port does beyond strict priority at a constant rate, as pure functions of numbers: they know no network and no flows.
//!
//! | file | what serves | the worst that it does to a class |
//! |---|---|---|
//! | `drr` | deficit round robin | bytes of every other class while the class gets so many |
//! | `tdma` | slots of a cycle | time until so much work is done |
//! | `medium` | a half-duplex medium | one frame of every other sender before each frame |
//! | `level` | | all of these and strict priority together: response times |
//! | `bucket` | (a source, no server) | a token bucket as periodic work |

pub(crate) mod bucket;
pub(crate) mod drr;
pub(crate) mod level;
pub(crate) mod tdma;
pub(crate) mod work;
