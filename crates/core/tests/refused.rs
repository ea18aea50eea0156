//! Code that must not compile, and the compiler's messages about it.
//!
//! The messages are golden files, since an author reads them. `TRYBUILD=overwrite` writes them again.
#![forbid(unsafe_code)]

#[test]
fn code_that_must_not_compile_is_refused_in_readable_words() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
