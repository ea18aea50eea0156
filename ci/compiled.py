"""What rustc and clippy themselves say of every crate's real targets, whatever the files and attributes look like.

The lints are raised by `--force-warn`, which no `allow` or `expect` in the source silences; then this module looks at the
file of each finding. Cargo hands `unsafe_code = "forbid"` to rustc from the manifest in every other build.
"""

import json
import os
import subprocess
from pathlib import Path, PurePosixPath

UNSAFE_LINTS = ("unsafe_code", "clippy::undocumented_unsafe_blocks", "clippy::multiple_unsafe_ops_per_block")
REACH_LINTS = ("clippy::disallowed_types", "clippy::disallowed_methods", "clippy::disallowed_macros")
FUNCTION_LINTS = Path(__file__).resolve().parent.parent / "crates/vet/src/lints"
# Target kinds that `--all-targets` builds; `custom-build` has a gate of its own.
BUILT = {"lib", "rlib", "dylib", "cdylib", "staticlib", "bin", "test", "example", "bench", "proc-macro"}


def clippy(root, selection, lints, configuration=None, environment=None):
    """The messages and the built targets of one `cargo clippy`, and whether it ended well."""
    forced = [argument for lint in lints for argument in ("--force-warn", lint)]
    command = [
        os.environ.get("CARGO", "cargo"), "clippy", "--keep-going", "--quiet", "--all-features",
        "--message-format=json", *selection, "--", *forced,
    ]
    environment = {**os.environ, **(environment or {})}
    if configuration:
        environment["CLIPPY_CONF_DIR"] = str(configuration)
        command.append("--no-deps")
    run = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return lines, run.returncode, run.stderr


def chain(span):
    """The files of a span and of every macro use that it came out of."""
    while span:
        yield span["file_name"]
        span = (span.get("expansion") or {}).get("span")


def inside(root, folder, file_name):
    """A compiler's path as one below the root: it writes them from the workspace, or from the crate's own folder."""
    for base in (Path(root), Path(folder)):
        path = base / file_name
        if path.exists():
            return os.path.relpath(path.resolve(), Path(root).resolve())
    return file_name


def findings(root, metadata, selection, lints, permitted, configuration=None, environment=None, covers=BUILT):
    """Every message of the pass but those `permitted(lint, paths, text)` lets through, and every target it left out."""
    members = {p["id"]: p for p in metadata["packages"] if p["id"] in metadata["workspace_members"]}
    lines, status, stderr = clippy(root, selection, lints, configuration, environment)
    seen, built = set(), set()
    for line in lines:
        package = members.get(line.get("package_id"))
        if line["reason"] == "compiler-artifact" and package:
            built.add((package["name"], line["target"]["name"], tuple(line["target"]["kind"])))
        if line["reason"] != "compiler-message" or not package:
            continue
        message = line["message"]
        spans = [span for span in message["spans"] if span["is_primary"]]
        lint = (message["code"] or {}).get("code", "")
        # "aborting due to …" and "… warnings emitted" sum up what was already said.
        if not spans and not lint:
            continue
        folder = PurePosixPath(package["manifest_path"]).parent
        paths = [inside(root, folder, name) for span in spans for name in chain(span)]
        if lint in lints and permitted(lint, paths, message["message"]):
            continue
        place = f"{paths[0]}:{spans[0]['line_start']}" if spans else f"{package['name']}:1"
        if (place, lint, message["message"]) not in seen:
            seen.add((place, lint, message["message"]))
            yield place, f"{message['message']} ({lint or message['level']})"
    if status != 0 and not seen:
        said = stderr.strip().splitlines() or ["it said nothing"]
        yield "Cargo.toml:1", f"`cargo clippy` failed: {said[-1]}"
    if status != 0:
        return
    for package in members.values():
        for target in package["targets"]:
            name = (package["name"], target["name"], tuple(target["kind"]))
            if set(target["kind"]) & covers and name not in built and (not configuration or package_chosen(selection, package)):
                manifest = os.path.relpath(package["manifest_path"], root)
                yield f"{manifest}:1", f"{target['kind'][0]} `{target['name']}` was not compiled, so nothing is known of it"


def package_chosen(selection, package):
    return "--package" not in selection or package["name"] in selection


def build_programs(metadata, named=frozenset()):
    """Targets that run inside the compiler: build scripts and procedural macros can write any code there is."""
    for package in metadata["packages"]:
        if package["id"] not in metadata["workspace_members"]:
            continue
        for target in package["targets"]:
            kinds = {"custom-build", "proc-macro"} & set(target["kind"])
            if kinds and (package["name"], *kinds) not in named:
                yield package["manifest_path"], f"`{package['name']}` has a {kinds.pop()} target, which can write code that no lint sees"
