//! The names of the language and its standard library that functions may use. The rest is refused, known or not.

/// Paths of the standard library, each with everything below it; `core` and `alloc` count as `std`.
///
/// Calls below them that reach further, such as `Box::leak` and `Path::exists`, are in the lints' configuration (`lints/clippy.toml`).
pub(crate) const PATHS: &[&str] = &[
    "std::any",
    "std::array",
    "std::ascii",
    "std::assert",
    "std::assert_eq",
    "std::assert_ne",
    "std::borrow",
    "std::bool",
    "std::boxed::Box",
    "std::cell",
    "std::char",
    "std::clone",
    "std::cmp",
    // Hash maps get randomness from the system, and differ from run to run.
    "std::collections::BTreeMap",
    "std::collections::BTreeSet",
    "std::collections::BinaryHeap",
    "std::collections::LinkedList",
    "std::collections::TryReserveError",
    "std::collections::VecDeque",
    "std::collections::binary_heap",
    "std::collections::btree_map",
    "std::collections::btree_set",
    "std::collections::linked_list",
    "std::collections::vec_deque",
    "std::concat",
    "std::convert",
    "std::debug_assert",
    "std::debug_assert_eq",
    "std::debug_assert_ne",
    "std::default",
    "std::error::Error",
    "std::f32",
    "std::f64",
    "std::fmt",
    "std::format",
    "std::format_args",
    "std::hash::BuildHasher",
    "std::hash::BuildHasherDefault",
    "std::hash::Hash",
    "std::hash::Hasher",
    "std::hint::black_box",
    "std::hint::cold_path",
    "std::hint::select_unpredictable",
    "std::hint::spin_loop",
    "std::i8",
    "std::i16",
    "std::i32",
    "std::i64",
    "std::i128",
    "std::isize",
    "std::iter",
    "std::marker",
    "std::matches",
    "std::mem::Discriminant",
    "std::mem::align_of",
    "std::mem::align_of_val",
    "std::mem::discriminant",
    "std::mem::drop",
    "std::mem::needs_drop",
    "std::mem::replace",
    "std::mem::size_of",
    "std::mem::size_of_val",
    "std::mem::swap",
    "std::mem::take",
    "std::net::AddrParseError",
    "std::net::IpAddr",
    "std::net::Ipv4Addr",
    "std::net::Ipv6Addr",
    "std::net::SocketAddr",
    "std::net::SocketAddrV4",
    "std::net::SocketAddrV6",
    "std::num",
    "std::ops",
    "std::option",
    "std::panic::Location",
    "std::path::Path",
    "std::path::PathBuf",
    "std::pin",
    "std::process::ExitCode",
    "std::rc",
    "std::result",
    "std::slice",
    "std::str",
    "std::string",
    "std::stringify",
    "std::sync::Arc",
    "std::sync::OnceLock",
    "std::sync::Weak",
    "std::sync::atomic",
    "std::time::Duration",
    "std::u8",
    "std::u16",
    "std::u32",
    "std::u64",
    "std::u128",
    "std::unreachable",
    "std::usize",
    "std::vec",
    "std::write",
    "std::writeln",
];

/// Crates that every crate could name. The compiler's others need `extern crate`.
pub(crate) const SYSTEM_CRATES: &[&str] = &["std", "core", "alloc"];

/// Macros of the standard library that make nothing but values.
pub(crate) const MACROS: &[&str] = &[
    "assert",
    "assert_eq",
    "assert_ne",
    "cfg",
    "column",
    "compile_error",
    "concat",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "file",
    "format",
    "format_args",
    "line",
    "macro_rules",
    "matches",
    "module_path",
    "panic",
    "stringify",
    "todo",
    "unimplemented",
    "unreachable",
    "vec",
    "write",
    "writeln",
];

/// Macros that no crate may call or define: the rule that each breaks.
pub(crate) fn refused_macro(name: &str) -> Option<crate::Rule> {
    use crate::Rule;
    Some(match name {
        "include" | "include_str" | "include_bytes" => Rule::OutsideFile,
        "env" | "option_env" => Rule::Environment,
        "asm" | "global_asm" | "naked_asm" => Rule::ForeignCode,
        "print" | "println" | "eprint" | "eprintln" | "dbg" => Rule::Reach,
        "thread_local" => Rule::Static,
        _ => return None,
    })
}

/// Attributes that change neither what is linked nor what lints see; the lints that they name cannot be the forbidden.
pub(crate) const ATTRIBUTES: &[&str] = &[
    "allow",
    "automatically_derived",
    "bench",
    "cold",
    "default",
    "deny",
    "deprecated",
    "doc",
    "expect",
    "forbid",
    "ignore",
    "inline",
    "macro_export",
    "macro_use",
    "must_use",
    "no_implicit_prelude",
    "no_std",
    "non_exhaustive",
    "recursion_limit",
    "repr",
    "should_panic",
    "test",
    "track_caller",
    "type_length_limit",
    "warn",
];

/// The tools whose attributes the compiler leaves to them.
pub(crate) const TOOLS: &[&str] = &["clippy", "diagnostic", "rustdoc", "rustfmt"];

/// The language's own derives.
pub(crate) const DERIVES: &[&str] =
    &["Clone", "Copy", "Debug", "Default", "Eq", "Hash", "Ord", "PartialEq", "PartialOrd"];

/// Names that conditions may ask about; the build that is attested has the same answers.
pub(crate) const CONDITIONS: &[&str] = &[
    "all",
    "any",
    "debug_assertions",
    "doc",
    "docsrs",
    "false",
    "feature",
    "not",
    "target_arch",
    "target_endian",
    "target_env",
    "target_family",
    "target_feature",
    "target_has_atomic",
    "target_os",
    "target_pointer_width",
    "target_vendor",
    "test",
    "true",
    "unix",
    "windows",
];

/// Types of statics in which nothing can change.
pub(crate) const PLAIN_TYPES: &[&str] = &[
    "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "str", "u8", "u16", "u32",
    "u64", "u128", "usize",
];

/// Editions whose paths begin with the name of a crate.
pub(crate) const EDITIONS: &[&str] = &["2018", "2021", "2024"];
