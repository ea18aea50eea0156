"""Shows each gate something bad, which it must find at its line, and something good, which it must let pass."""


def package(name, dependencies=(), licence="MIT", source=None, manifest=None):
    manifest = manifest or f"crates/{name.removeprefix('netbricks-')}/Cargo.toml"
    listed = [{"name": d, "kind": None} if isinstance(d, str) else {"name": d[0], "kind": d[1]} for d in dependencies]
    return {
        "id": name, "name": name, "version": "1.0.0", "license": licence, "source": source,
        "manifest_path": manifest, "dependencies": listed,
    }


def metadata(*packages):
    ours = [p["id"] for p in packages if p["source"] is None]
    return {"packages": list(packages), "workspace_members": ours}


POLICY = '[licenses]\nallow = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]\n'
EXCEPTION = POLICY + '[[licenses.exceptions]]\ncrate = "letters"\nallow = ["Unicode-3.0"]\n'
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
LINTED = '[workspace.lints.rust]\nmissing_docs = "warn"\n'
# Not written out, so that the gates do not find them in this file.
HERE = "/wor" + "k/main"
PRIVATE = "https://user:secret" + "@example.com/x"

# Gate, files, packages, and where findings must be: nothing for what is good.
CASES = [
    ("dependencies", {}, metadata(package("netbricks-core"), package("netbricks-functions", ["netbricks-core"])), []),
    (
        "dependencies",
        {"crates/functions/Cargo.toml": "[dependencies]\nnetbricks-ports.workspace = true\n"},
        metadata(package("netbricks-ports"), package("netbricks-functions", ["netbricks-ports"])),
        ["crates/functions/Cargo.toml:2"],
    ),
    (  # What core may use, ports may.
        "dependencies", {}, metadata(package("netbricks-packet"), package("netbricks-ports", ["netbricks-packet"])), [],
    ),
    (
        "dependencies", {},
        metadata(package("netbricks-testkit"), package("netbricks-core", [("netbricks-testkit", "dev")])), [],
    ),
    (
        "dependencies", {}, metadata(package("netbricks-testkit"), package("netbricks-core", ["netbricks-testkit"])),
        ["crates/core/Cargo.toml"],
    ),
    (
        "dependencies", {}, metadata(package("netbricks-runtime"), package("netbricks-core", [("netbricks-runtime", "dev")])),
        ["crates/core/Cargo.toml"],
    ),
    ("dependencies", {}, metadata(package("netbricks-novel")), ["crates/novel/Cargo.toml"]),
    ("unsafe-places", {"crates/buffer/src/a.rs": "unsafe {}\n", "crates/ports/src/sys/a.rs": "unsafe {}\n"}, None, []),
    ("unsafe-places", {"crates/core/src/a.rs": "fn a() {\n    unsafe { b() }\n}\n"}, None, ["crates/core/src/a.rs:2"]),
    ("unsafe-places", {"crates/ports/src/tap/a.rs": "unsafe fn a() {}\n"}, None, ["crates/ports/src/tap/a.rs:1"]),
    ("unsafe-places", {"crates/core/tests/a.rs": "unsafe impl Send for A {}\n"}, None, ["crates/core/tests/a.rs:1"]),
    (
        "unsafe-places",
        {"crates/core/src/a.rs": '#![forbid(unsafe_code)]\n// unsafe\n/* unsafe /* */ unsafe */\nlet a = "unsafe";\n'
                                 'let b = r#"a " unsafe"#;\nlet c = \'"\'; let d = "unsafe";\nfn f<\'a>(x: &\'a u8) {}\n'},
        None, [],
    ),
    ("unsafe-places", {"crates/core/src/a.rs": "let a = '\"'; unsafe { b() }\n"}, None, ["crates/core/src/a.rs:1"]),
    ("unsafe-places", {"crates/core/tests/ui/a.rs": "unsafe {}\n", "crates/core/tests/ui/a.stderr": "error"}, None, []),
    ("unsafe-proofs", {"crates/buffer/src/a.rs": "// SAFETY: it is there.\nlet a =\n    unsafe { b() };\n"}, None, []),
    ("unsafe-proofs", {"crates/buffer/src/a.rs": "let a = unsafe { b() };\n"}, None, ["crates/buffer/src/a.rs:1"]),
    (
        "unsafe-proofs", {"crates/buffer/src/a.rs": "// SAFETY: this one.\nunsafe { a() };\nunsafe { b() };\n"}, None,
        ["crates/buffer/src/a.rs:3"],
    ),
    ("unsafe-proofs", {"crates/buffer/src/a.rs": "unsafe impl Send for A {}\n"}, None, ["crates/buffer/src/a.rs:1"]),
    ("forbidden", {"crates/core/src/lib.rs": "#![forbid(unsafe_code)]\n"}, metadata(package("netbricks-core")), []),
    (
        "forbidden", {"crates/core/src/lib.rs": "// #![forbid(unsafe_code)]\n"}, metadata(package("netbricks-core")),
        ["crates/core/src/lib.rs:1"],
    ),
    (
        "forbidden", {"crates/packet/src/lib.rs": "#![forbid(unsafe_code)]\n"}, metadata(package("netbricks-packet")),
        ["crates/packet/src/lib.rs:1"],
    ),
    (
        "forbidden",
        {"crates/ports/src/lib.rs": '#![deny(unsafe_code)]\n#[expect(unsafe_code, reason = "x")]\nmod sys;\n'},
        metadata(package("netbricks-ports")), [],
    ),
    (
        "forbidden",
        {"crates/ports/src/lib.rs": '#![deny(unsafe_code)]\n#[expect(unsafe_code, reason = "x")]\nmod tap;\n'},
        metadata(package("netbricks-ports")), ["crates/ports/src/lib.rs:2"],
    ),
    ("sizes", {"a.rs": "\n" * 800}, None, []),
    ("sizes", {"a.rs": "\n" * 801}, None, ["a.rs:801"]),
    ("names", {"crates/core/src/commonplace.rs": ""}, None, []),
    ("names", {"crates/core/src/flow_utils.rs": ""}, None, ["crates/core/src/flow_utils.rs:1"]),
    ("names", {"crates/helpers/src/lib.rs": ""}, None, ["crates/helpers/src/lib.rs:1"]),
    ("machines", {"a.sh": "cd ../work/main # and $root/x\n", "Cargo.lock": f'source = "{CRATES_IO}"\n'}, None, []),
    ("machines", {"a.sh": f"\ncd {HERE}\n"}, None, ["a.sh:2"]),
    ("machines", {"Cargo.lock": 'source = "registry+https://example.com/index"\n'}, None, ["Cargo.lock:1"]),
    ("machines", {".cargo/config.toml": "[source.mirror]\n"}, None, [".cargo/config.toml:1"]),
    ("machines", {"a.md": f"see {PRIVATE}\n"}, None, ["a.md:1"]),
    (
        "documentation", {"Cargo.toml": LINTED, "crates/core/Cargo.toml": "[lints]\nworkspace = true\n"},
        metadata(package("netbricks-core")), [],
    ),
    ("documentation", {"Cargo.toml": "", "crates/core/src/a.rs": ""}, None, ["Cargo.toml:1"]),
    (
        "documentation", {"Cargo.toml": LINTED, "crates/core/Cargo.toml": ""}, metadata(package("netbricks-core")),
        ["crates/core/Cargo.toml:1"],
    ),
    (
        "documentation", {"Cargo.toml": LINTED, "crates/core/src/a.rs": '#![expect(missing_docs, reason = "x")]\n'},
        None, ["crates/core/src/a.rs:1"],
    ),
    (
        "licences", {"deny.toml": EXCEPTION},
        metadata(
            package("a", licence="MIT/Apache-2.0", source=CRATES_IO),
            package("b", licence="GPL-3.0-only OR MIT", source=CRATES_IO),
            package("letters", licence="(MIT OR Apache-2.0) AND Unicode-3.0", source=CRATES_IO),
            package("c", licence="Apache-2.0 WITH LLVM-exception", source=CRATES_IO),
        ),
        [],
    ),
    ("licences", {"deny.toml": POLICY}, metadata(package("a", licence="GPL-3.0-only", source=CRATES_IO)), ["deny.toml:1"]),
    ("licences", {"deny.toml": POLICY}, metadata(package("a", licence="MIT AND GPL-3.0", source=CRATES_IO)), ["deny.toml:1"]),
    ("licences", {"deny.toml": POLICY}, metadata(package("a", licence=None, source=CRATES_IO)), ["deny.toml:1"]),
    ("licences", {"deny.toml": POLICY}, metadata(package("a", source="git+https://example.com/a")), ["Cargo.lock:1"]),
    ("licences", {"deny.toml": EXCEPTION}, metadata(package("a", source=CRATES_IO)), ["deny.toml:1"]),
    ("links", {"a.md": "# One two\n[x](b.rs) [y](#one-two) [z](https://example.com)\n", "b.rs": ""}, None, []),
    ("links", {"a.md": "```\n[x](gone.rs)\n```\n`[x](gone.rs)`\n"}, None, []),
    ("links", {"doc/a.md": "\n[x](b.rs)\n", "b.rs": ""}, None, ["doc/a.md:2"]),
    ("links", {"a.md": "[x](b.md#two)\n", "b.md": "# One\n"}, None, ["a.md:1"]),
]


def main(gates):
    by_name = {gate.__name__.replace("_", "-"): gate for gate in gates.GATES}
    failed = 0
    for gate, files, packages, expected in CASES:
        tree = gates.Tree(files, packages or metadata())
        found = gates.check(tree, [by_name[gate]])
        if [finding.place for finding in found] != expected:
            failed += 1
            print(f"{gate}: {files or packages}: expected findings at {expected}, got {[str(f) for f in found]}")
    for gate in by_name:
        tried = [bool(expected) for name, _, _, expected in CASES if name == gate]
        if set(tried) != {True, False}:
            failed += 1
            print(f"{gate}: has no good case or no bad one")
    passed = len(CASES) + len(by_name) - failed
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; gates, shown good and bad")
    return 1 if failed else 0
