//! The language of rules, through its public functions.

mod lines;
