"""Shows rustc and clippy every way round the gates that is known, in a workspace of tiny crates, and good crates beside them."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import compiled

GATES = {"lints", "reach"}
UNSAFE = "/// Reads.\n#[must_use]\npub fn read(from: &u8) -> u8 {\n    // SAFETY: a reference can be read.\n    unsafe { std::ptr::read(from) }\n}\n"
TOP = "//! A crate.\n"
FORBID = '[lints.rust]\nunsafe_code = "forbid"\n'

# Crate, its files, what its manifest has more, and where findings must be: nothing for what is good.
UNSAFE_CASES = [
    ("good", {"src/lib.rs": TOP + "/// Adds.\n#[must_use]\npub fn add(a: u8) -> u8 {\n    a.wrapping_add(1)\n}\n"}, FORBID, []),
    ("permitted", {"src/lib.rs": TOP + "pub mod sys;\n", "src/sys.rs": TOP + UNSAFE}, "", []),
    ("bare", {"src/lib.rs": TOP + UNSAFE}, FORBID, ["src/lib.rs:6"]),
    ("excused", {"src/lib.rs": TOP + '#![expect(dead_code, unsafe_code, reason = "x")]\nfn a() {}\n' + UNSAFE}, "",
     ["src/lib.rs:8"]),
    ("path", {"src/lib.rs": TOP + '#[path = "../other/a.txt"]\npub mod a;\n', "other/a.txt": TOP + UNSAFE}, "",
     ["other/a.txt:6"]),
    ("included", {"src/lib.rs": TOP + 'include!("../a.inc");\n', "a.inc": UNSAFE}, "", ["a.inc:5"]),
    ("root", {"elsewhere/root.rs": TOP + UNSAFE}, '[lib]\npath = "elsewhere/root.rs"\n', ["elsewhere/root.rs:6"]),
    ("hidden", {"src/lib.rs": TOP, "src/bin/tool.rs": TOP + UNSAFE + "fn main() {}\n"}, "", ["src/bin/tool.rs:6"]),
    ("example", {"src/lib.rs": TOP, "examples/e.rs": TOP + UNSAFE + "fn main() {}\n"}, "", ["examples/e.rs:6"]),
    ("featured", {"src/lib.rs": TOP + '#[cfg(feature = "x")]\npub mod a;\n', "src/a.rs": TOP + UNSAFE}, "[features]\nx = []\n",
     ["src/a.rs:6"]),
    ("macro", {"src/lib.rs": TOP + "pub mod sys;\n/// Reads.\n#[must_use]\npub fn a(b: &u8) -> u8 {\n    sys::read_it!(b)\n}\n",
               "src/sys.rs": TOP + "macro_rules! read_it {\n    ($a:expr) => {\n        // SAFETY: a reference can be read.\n"
                             "        unsafe { std::ptr::read($a) }\n    };\n}\npub(crate) use read_it;\n"}, "", ["src/sys.rs:5"]),
    ("exported", {"src/lib.rs": TOP + "/// Reads.\n#[unsafe(no_mangle)]\npub extern \"C\" fn exported_reader() {}\n"}, "",
     ["src/lib.rs:3"]),
    ("unproved", {"src/lib.rs": TOP + "pub mod sys;\n",
                  "src/sys.rs": TOP + '#![expect(clippy::undocumented_unsafe_blocks, reason = "x")]\n'
                                + UNSAFE.replace("    // SAFETY: a reference can be read.\n", "")}, "", ["src/sys.rs:6"]),
    # Under `forbid`, rustc itself refuses the exception, in every build.
    ("refused", {"src/lib.rs": TOP + '#[expect(unsafe_code, reason = "x")]\nmod sys {}\n'}, FORBID, ["src/lib.rs:2"] * 2),
]

CALL = "/// Does.\npub fn a() {{\n    {};\n}}\n"
REACH_CASES = [
    ("works", {"src/lib.rs": TOP + "/// A name.\npub type Name = std::net::IpAddr;\n"}, "", []),
    ("tested", {"src/lib.rs": TOP + "#[cfg(test)]\nmod tests {\n    #[test]\n    fn a() {\n        std::process::exit(0);\n    }\n}\n"},
     "", []),
    *((f"call{number}", {"src/lib.rs": TOP + CALL.format(call)}, "", ["src/lib.rs:4"]) for number, call in enumerate((
        'let _ = std::process::Command::new("a")', 'let _ = std::fs::read("a")', 'let _ = std::net::UdpSocket::bind("[::]:0")',
        "std::thread::spawn(|| ()); let _ = 1", 'let _ = std::env::var("A")', "core::mem::forget(String::new())",
        "std::process::abort()", 'println!("a")', "let _ = std::time::Instant::now()", "let _: &str = String::new().leak()",
        "let _ = std::panic::catch_unwind(|| ())", "let _ = std::sync::Mutex::new(0)", 'let _ = std::path::Path::new("a").exists()',
    ))),
    ("renamed", {"src/lib.rs": TOP + "use std::process::exit as next;\n" + CALL.format("next(0)")}, "", ["src/lib.rs:5"]),
    ("passed", {"src/lib.rs": TOP + CALL.format("let _ = [0].map(std::process::exit)")}, "", ["src/lib.rs:4"]),
    ("silenced", {"src/lib.rs": TOP + '#![expect(clippy::disallowed_methods, reason = "x")]\n' + CALL.format("std::process::exit(0)")},
     "", ["src/lib.rs:5"]),
    ("moved", {"a.rs": TOP + '#[path = "b.txt"]\npub mod b;\n', "b.txt": TOP + CALL.format("std::process::exit(0)")},
     '[lib]\npath = "a.rs"\n', ["b.txt:4"]),
]


def written(root, cases):
    """Writes a workspace with a crate for each case, and returns what cargo says of it."""
    (root / "Cargo.toml").write_text('[workspace]\nresolver = "3"\nmembers = ["crates/*"]\n')
    for name, files, more, _ in cases:
        folder = root / "crates" / name
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        manifest = f'[package]\nname = "{name}"\nversion = "0.1.0"\nedition = "2024"\n{more}'
        (folder / "Cargo.toml").write_text(manifest)
    run = subprocess.run(
        [os.environ.get("CARGO", "cargo"), "metadata", "--format-version", "1", "--offline"],
        cwd=root, capture_output=True, check=True,
    )
    return json.loads(run.stdout)


def tried(cases, selection, lints, permitted, configuration=None):
    """How many cases there are, and which were judged wrong."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        metadata = written(root, cases)
        environment = {"CARGO_TARGET_DIR": str(root / "target"), "RUSTFLAGS": ""}
        found = list(compiled.findings(root, metadata, selection, lints, permitted, configuration, environment, covers=set()))
    wrong = 0
    for name, _, _, expected in cases:
        of_it = sorted(place.removeprefix(f"crates/{name}/") for place, _ in found if place.startswith(f"crates/{name}/"))
        if sorted(set(of_it)) != sorted(set(expected)):
            wrong += 1
            print(f"compiled: {name}: expected findings at {expected}, got {of_it}")
    strays = [(place, text) for place, text in found if not any(place.startswith(f"crates/{name}/") for name, *_ in cases)]
    if strays:
        wrong += 1
        print(f"compiled: findings at none of the cases: {strays}")
    return wrong


# Each alone in its folder, as a vendor has it: files, what its manifest has more, and the gates that find something.
VENDORS = [
    ({"src/main.rs": TOP + "fn main() {}\n"}, FORBID, set()),
    ({"src/lib.rs": TOP, "build.rs": TOP + "fn main() {}\n"}, FORBID, {"build-programs"}),
    ({"src/lib.rs": TOP + UNSAFE}, "", {"forbidden", "lints", "reach"}),
    ({"src/lib.rs": TOP, "src/main.rs": TOP + "fn main() {\n    std::process::abort();\n}\n"}, FORBID, {"reach"}),
]


def vendors(vendor):
    """How many vendors' crates were judged wrong."""
    wrong = 0
    for files, more, expected in VENDORS:
        with tempfile.TemporaryDirectory() as folder:
            written(Path(folder).resolve(), [("own", files, more, [])])
            found = {finding.gate for finding in vendor(folder)}
        if found != expected:
            wrong += 1
            print(f"compiled: {files}: expected {expected}, got {found}")
    return wrong


def main(vendor):
    in_sys = lambda lint, paths, _: lint == "unsafe_code" and all("/src/sys" in path for path in paths)
    failed = tried(UNSAFE_CASES, ["--workspace", "--all-targets"], compiled.UNSAFE_LINTS, in_sys)
    never = lambda *_: False
    failed += tried(REACH_CASES, ["--workspace", "--lib"], compiled.REACH_LINTS, never, compiled.FUNCTION_LINTS)
    failed += vendors(vendor)
    return len(UNSAFE_CASES) + len(REACH_CASES) + len(VENDORS), failed
