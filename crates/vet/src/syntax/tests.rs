use super::*;
use crate::Rule;

fn rules(text: &str) -> Vec<Rule> {
    let file = syn::parse_file(text).expect("it parses");
    let mut names = Names::standard();
    names.own_macros.extend(check::own_macros(&file));
    names.attributes.insert("serde".into());
    names.derives.insert("Deserialize".into());
    let mut rules: Vec<Rule> =
        check::file(Path::new("lib.rs"), &file, &names).into_iter().map(|found| found.rule).collect();
    rules.dedup();
    rules
}

#[test]
fn plain_code_passes() {
    let text = r##"
        //! About std::fs and unsafe code, and "include!".
        use std::collections::{BTreeMap, btree_map::Entry};
        use std::fmt::{self, Write as _};
        use core::net::IpAddr;
        use crate::other::*;
        mod other { pub const CORE: &str = "std::fs::read"; static TABLE: [(u8, &str); 1] = [(1, "a")]; }
        macro_rules! twice { ($x:expr) => { $x + $x + std::cmp::max(1, 2) }; }
        macro_rules! name { ($name:ident) => { fn $name() -> &'static str { "static" } }; }
        #[derive(Debug, Clone)]
        #[must_use]
        pub struct S { core: usize }
        impl S {
            pub fn f(&self, core: usize) -> String {
                let alloc = twice!(self.core);
                assert!(!(alloc > 7) && self.core != (core));
                format!("{core} {} {}", self.core, std::mem::size_of::<u8>())
            }
        }
        #[cfg(test)]
        mod tests { use std::fs; fn f() { unsafe { std::process::abort() } } }
        #[cfg(not(feature = "x"))]
        fn g(x: Option<std::net::Ipv4Addr>) {}
    "##;
    assert_eq!(rules(text), []);
}

#[test]
fn each_escape_breaks_its_rule() {
    let cases: &[(&str, Rule)] = &[
        ("fn f() { unsafe {} }", Rule::Unsafe),
        ("macro_rules! m { () => { unsafe { } } }", Rule::Unsafe),
        ("macro_rules! m { ($k:tt) => { $k { } } } fn f() { m!(unsafe) }", Rule::Unsafe),
        ("#[unsafe(no_mangle)] fn f() {}", Rule::Unsafe),
        ("#[no_mangle] fn f() {}", Rule::ForeignCode),
        ("extern \"C\" { fn f(); }", Rule::ForeignCode),
        ("use std::fs;", Rule::StandardLibrary),
        ("use std as s;", Rule::StandardLibrary),
        ("use std::{self as s};", Rule::StandardLibrary),
        ("use std::*;", Rule::StandardLibrary),
        ("use {core::mem as m};", Rule::StandardLibrary),
        ("use r#std::r#fs;", Rule::StandardLibrary),
        ("fn f() { ::std::process::abort() }", Rule::StandardLibrary),
        ("fn f() -> <str as std::net::ToSocketAddrs>::Iter { loop {} }", Rule::StandardLibrary),
        ("macro_rules! m { ($m:ident) => { std::$m::read(\"x\") } }", Rule::StandardLibrary),
        ("macro_rules! m { ($a:ident) => { $a::fs::read(\"x\") } } fn f() { m!(std) }", Rule::Macro),
        ("fn f() { format!(\"{:?}\", std::fs::read(\"x\")); }", Rule::StandardLibrary),
        ("fn f() { vec![0..std::process::id()]; }", Rule::StandardLibrary),
        ("macro_rules! m { ($m:ident) => { $m!(\"x\") } }", Rule::Macro),
        ("fn f() { unknown!() }", Rule::Macro),
        ("macro_rules! include { () => {} } fn f() { include!(\"x\") }", Rule::OutsideFile),
        ("#[doc = include_str!(\"/etc/passwd\")] fn f() {}", Rule::OutsideFile),
        ("fn f() { format!(\"{}\", env!(\"HOME\")); }", Rule::Environment),
        ("extern crate std as x;", Rule::StandardLibrary),
        ("static X: std::sync::atomic::AtomicU32 = Y;", Rule::Static),
        ("static mut X: u32 = 0;", Rule::Static),
        ("macro_rules! m { () => { static X: &'static str = \"\"; } }", Rule::Static),
        ("thread_local! { }", Rule::Static),
        ("#[cfg(not(clippy))] fn f() {}", Rule::Condition),
        ("#[cfg_attr(all(), path = \"x.rs\")] mod x {}", Rule::OutsideFile),
        ("#[cfg_attr(all(), unsafe(no_mangle))] fn f() {}", Rule::Unsafe),
        ("#[derive(Evil)] struct S;", Rule::Attribute),
        ("#[evil] fn f() {}", Rule::Attribute),
        (
            "#[derive(Deserialize)] struct S { #[serde(default = \"std::process::id\")] a: u32 }",
            Rule::StandardLibrary,
        ),
        ("union U { a: u8 }", Rule::Unsafe),
    ];
    for (text, rule) in cases {
        assert!(rules(text).contains(rule), "{text}: {:?}", rules(text));
    }
}
