//! What must not compile, and what the compiler says about it: the texts are golden files, since they are what an
//! author reads. `TRYBUILD=overwrite` writes them anew.
#![forbid(unsafe_code)]

#[test]
fn what_must_not_compile_is_refused_in_readable_words() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
