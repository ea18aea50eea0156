//! Tests of the core's operators and graphs together, in a crate of their own.
//!
//! Their chains of operators take minutes to optimise and seconds to run, so this crate alone is not optimised. The
//! tests are in `tests/behaviour`.
#![forbid(unsafe_code)]
