//! Everything that touches the kernel: sandbox, namespaces, the ring data plane, captures, programs, node statistics;
//! the fabric under the real clock. Knows nothing of Python.

pub mod plan;
