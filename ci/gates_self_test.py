"""Shows each gate something bad, which it must find at its line, and something good, which it must let pass."""


import compiled_self_test
import prose_self_test


def package(name, dependencies=(), licence="MIT", source=None, manifest=None, targets=("lib",)):
    manifest = manifest or f"crates/{name.removeprefix('netbricks-')}/Cargo.toml"
    listed = [{"name": d, "kind": None} if isinstance(d, str) else {"name": d[0], "kind": d[1]} for d in dependencies]
    return {
        "id": name, "name": name, "version": "1.0.0", "license": licence, "source": source,
        "manifest_path": manifest, "dependencies": listed, "targets": [{"name": name, "kind": [kind]} for kind in targets],
    }


def metadata(*packages):
    ours = [p["id"] for p in packages if p["source"] is None]
    return {"packages": list(packages), "workspace_members": ours}


POLICY = '[licenses]\nallow = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]\n'
EXCEPTION = POLICY + '[[licenses.exceptions]]\ncrate = "letters"\nallow = ["Unicode-3.0"]\n'
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
LINTED = '[workspace.lints.rust]\nmissing_docs = "warn"\n'
FORBIDS = '[workspace.lints.rust]\nunsafe_code = "forbid"\n'
INHERITS = "[lints]\nworkspace = true\n"
CRATE, PORTS = '[package]\nname = "netbricks-core"\n', '[package]\nname = "netbricks-ports"\n'
# Not written out, so that the gates do not find them in this file.
HERE = "/wor" + "k/main"
PRIVATE = "https://user:secret" + "@example.com/x"

METRICS_RS = 'one("buffers", "Packet buffers.", 1);\nself.family(Kind::Counter, "node_panics", "Panics.", |s| s);\n'
ALERT = """groups:
  - name: a
    rules:
      # A comment.
      - alert: A
        expr: |
          netbricks_buffers
            < 1
        labels:
          severity: warning
        annotations:
          summary: "{{ $value }}: a"
          description: "b"
"""
BOARD = '{"uid": "a", "schemaVersion": 39, "templating": {"list": [{"type": "datasource"}]},\n "panels": [%s]}'
PANEL = '{"id": 1, "type": "stat", "title": "a", "targets": [{"expr": "netbricks_node_panics_total"}]}'


def operations(alerts=ALERT, panels=PANEL, board=BOARD):
    return {
        "crates/control/src/metrics.rs": METRICS_RS, "contrib/prometheus/alerts.yml": alerts,
        "contrib/grafana/netbricks.json": board.replace("%s", panels),
    }


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
    (
        "dependencies", {"crates/functions/Cargo.toml": "libc = 1\n"}, metadata(package("netbricks-functions", ["libc"])),
        ["crates/functions/Cargo.toml:1"],
    ),
    ("dependencies", {}, metadata(package("netbricks-functions", ["serde", ("proptest", "dev")])), []),
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
    ("forbidden", {"Cargo.toml": FORBIDS, "crates/core/Cargo.toml": CRATE + INHERITS}, None, []),
    ("forbidden", {"Cargo.toml": "", "crates/core/Cargo.toml": CRATE + INHERITS}, None, ["crates/core/Cargo.toml:1"]),
    ("forbidden", {"Cargo.toml": FORBIDS, "crates/core/Cargo.toml": CRATE}, None, ["crates/core/Cargo.toml:1"]),
    (
        "forbidden", {"Cargo.toml": FORBIDS, "crates/core/Cargo.toml": CRATE + '[lints.rust]\nunsafe_code = "deny"\n'},
        None, ["crates/core/Cargo.toml:1"],
    ),
    ("forbidden", {"fuzz/Cargo.toml": CRATE + '[lints.rust]\nunsafe_code = "forbid"\n'}, None, []),
    ("forbidden", {"fuzz/Cargo.toml": CRATE}, None, ["fuzz/Cargo.toml:1"]),
    (
        "forbidden",
        {"Cargo.toml": FORBIDS, "crates/ports/Cargo.toml": PORTS + '[lints.rust]\nunsafe_code = "deny"\n'}, None, [],
    ),
    (  # The copy has fallen behind the workspace's.
        "forbidden",
        {"Cargo.toml": FORBIDS + "[workspace.lints.clippy]\ntodo = 1\n",
         "crates/ports/Cargo.toml": PORTS + '[lints.rust]\nunsafe_code = "deny"\n'},
        None, ["crates/ports/Cargo.toml:1"],
    ),
    ("forbidden", {"crates/packet/src/lib.rs": "#![no_std]\n"}, None, []),
    ("forbidden", {"crates/packet/src/lib.rs": "// #![no_std]\n"}, None, ["crates/packet/src/lib.rs:1"]),
    ("forbidden", {"crates/ports/src/lib.rs": '#[expect(unsafe_code, reason = "x")]\nmod sys;\n'}, None, []),
    (
        "forbidden", {"crates/ports/src/lib.rs": '#[expect(unsafe_code, reason = "x")]\nmod tap;\n'}, None,
        ["crates/ports/src/lib.rs:1"],
    ),
    (
        "forbidden", {"crates/ports/src/tap.rs": '#[expect(unsafe_code, reason = "x")]\nmod sys;\n'}, None,
        ["crates/ports/src/tap.rs:1"],
    ),
    (
        "forbidden", {"crates/core/src/a.rs": '#[expect(dead_code,\n    unsafe_code, reason = "x")]\nfn a() {}\n'}, None,
        ["crates/core/src/a.rs:1"],
    ),
    (
        "forbidden", {"crates/core/src/a.rs": "#[cfg_attr(x, allow(unsafe_code))]\nfn a() {}\n"}, None,
        ["crates/core/src/a.rs:1"],
    ),
    ("sources", {"crates/core/src/a.rs": '#[path = "b.rs"]\nmod b; // include!\n', "crates/core/src/b.rs": ""}, None, []),
    ("sources", {"crates/core/src/a.rs": '#[path = "b.txt"]\nmod b;\n', "crates/core/src/b.txt": ""}, None,
     ["crates/core/src/a.rs:1"]),
    ("sources", {"crates/core/src/a.rs": '#[path = "/elsewhere/b.rs"]\nmod b;\n'}, None, ["crates/core/src/a.rs:1"]),
    ("sources", {"crates/core/src/a.rs": '#[cfg_attr(x, path = "/elsewhere/b.rs")]\nmod b;\n'}, None,
     ["crates/core/src/a.rs:1"]),
    ("sources", {"crates/core/src/a.rs": 'include!("b.rs");\n'}, None, ["crates/core/src/a.rs:1"]),
    ("sources", {"crates/core/src/a.rs": "#[cfg(not(clippy))]\nfn a() {}\n"}, None, ["crates/core/src/a.rs:1"]),
    ("sources", {"crates/core/src/a.rs": "#[expect(clippy::todo)]\n#[cfg(test)]\nfn a() {}\n"}, None, []),
    ("sources", {"crates/buffer/src/a.rs": "#[macro_export]\nmacro_rules! a { () => {} }\n"}, None,
     ["crates/buffer/src/a.rs:1"]),
    ("sources", {".cargo/config.toml": '[build]\nrustflags = ["-C", "target-cpu=native"]\n'}, None, []),
    ("sources", {"a/.cargo/config.toml": '[build]\nrustflags = "--cap-lints allow"\n'}, None, ["a/.cargo/config.toml:1"]),
    ("sources", {".cargo/config.toml": '[env]\nA = "b"\n'}, None, [".cargo/config.toml:1"]),
    ("build-programs", {}, metadata(package("netbricks-core", targets=("lib", "test"))), []),
    ("build-programs", {}, metadata(package("netbricks-core", targets=("lib", "custom-build"))), ["crates/core/Cargo.toml:1"]),
    ("build-programs", {}, metadata(package("derive", targets=("proc-macro",))), ["crates/derive/Cargo.toml:1"]),
    ("build-programs", {"fuzz/Cargo.toml": CRATE, "fuzz/src/build.rs": ""}, None, []),
    ("build-programs", {"fuzz/Cargo.toml": CRATE, "fuzz/build.rs": ""}, None, ["fuzz/Cargo.toml:1"]),
    ("build-programs", {"fuzz/Cargo.toml": CRATE + 'build = "make.rs"\n'}, None, ["fuzz/Cargo.toml:1"]),
    ("build-programs", {"fuzz/Cargo.toml": CRATE + "[lib]\nproc-macro = true\n"}, None, ["fuzz/Cargo.toml:1"]),
    ("prose", {"a.md": "Packets arrive.\n", "crates/a/src/a.rs": "/// A packet.\n"}, None, []),
    ("prose", {"a.md": "\nWhoever reads.\n"}, None, ["a.md:2", "a.md:2"]),
    ("prose", {"a.md": "\nWhat comes.\n", "ci/prose-allowance.toml": '"a.md" = 1\n'}, None, []),
    ("prose", {"a.md": "\nWhat comes.\n\nWho sends.\n", "ci/prose-allowance.toml": '"a.md" = 1\n'}, None,
     ["ci/prose-allowance.toml"]),
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
    ("contrib", operations(), None, []),
    ("contrib", operations(alerts=ALERT.replace("_buffers", "_bufers")), None, ["contrib/prometheus/alerts.yml:7"]),
    ("contrib", operations(alerts=ALERT.replace("      - alert", "     - alert")), None, ["contrib/prometheus/alerts.yml:6"]),
    ("contrib", operations(alerts=ALERT.replace('"b"', '"b')), None, ["contrib/prometheus/alerts.yml:13"]),
    ("contrib", operations(alerts=ALERT.replace("severity: warning", "other: a")), None, ["contrib/prometheus/alerts.yml:5"]),
    ("contrib", operations(alerts=ALERT.replace("expr:", "exp:")), None, ["contrib/prometheus/alerts.yml:5"] * 2),
    ("contrib", operations(panels=PANEL.replace("panics_total", "panics")), None, ["contrib/grafana/netbricks.json:2"]),
    ("contrib", operations(panels=PANEL + ","), None, ["contrib/grafana/netbricks.json:2"]),
    ("contrib", operations(panels=f"{PANEL}, {PANEL}"), None, ["contrib/grafana/netbricks.json:1"]),
    ("contrib", operations(panels=PANEL.replace("expr", "text")), None, ["contrib/grafana/netbricks.json:1"]),
    ("contrib", operations(board=BOARD.replace("39", "16")), None, ["contrib/grafana/netbricks.json:1"]),
    ("contrib", operations(board=BOARD.replace("datasource", "query")), None, ["contrib/grafana/netbricks.json:1"]),
    ("contrib", {"contrib/container/README.md": "`netbricks_buffers`\n"}, None, ["contrib/container/README.md:1"]),
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
    for gate in by_name.keys() - compiled_self_test.GATES:
        tried = [bool(expected) for name, _, _, expected in CASES if name == gate]
        if set(tried) != {True, False}:
            failed += 1
            print(f"{gate}: has no good case or no bad one")
    cases = len(CASES) + len(by_name.keys() - compiled_self_test.GATES)
    for tried, wrong in (prose_self_test.main(), compiled_self_test.main(gates.vendor)):
        cases, failed = cases + tried, failed + wrong
    print(f"test result: {'FAILED' if failed else 'ok'}. {cases - failed} passed; {failed} failed; gates, shown good and bad")
    return 1 if failed else 0
