//! Each file of `tests/refused-crates` is a crate that has to be refused for the rule that it names.
//!
//! NetBricks' own crates have to pass.
//!
//! It has no test harness, because cargo calls this program in the compiler's place.

mod unpacked;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use netbricks_vet::{Error, Features, List, Request, Rule, Verdict, Vetting};
use unpacked::{Case, cases, root, unpack};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(code) = netbricks_vet::by_name(&arguments) {
        return code;
    }
    let wanted = arguments
        .get(1)
        .and_then(|word| word.to_str())
        .filter(|word| !word.starts_with('-'))
        .unwrap_or_default();
    let tests: [(&str, fn()); 6] = [
        ("each_escape_is_refused_for_its_rule", each_escape_is_refused_for_its_rule),
        ("a_workspace_of_its_own_is_refused", a_workspace_of_its_own_is_refused),
        ("a_listed_crate_that_changed_is_refused", a_listed_crate_that_changed_is_refused),
        ("the_authors_list_and_target_are_refused", the_authors_list_and_target_are_refused),
        ("a_clean_program_is_built_and_attested", a_clean_program_is_built_and_attested),
        ("the_library_of_functions_passes", the_library_of_functions_passes),
    ];
    let (mut passed, mut failed, mut left_out) = (0, 0, 0);
    for (name, test) in tests {
        if !name.contains(wanted) {
            left_out += 1;
            continue;
        }
        let began = Instant::now();
        let word = match std::panic::catch_unwind(test) {
            Ok(()) => {
                passed += 1;
                "ok"
            }
            Err(_) => {
                failed += 1;
                "FAILED"
            }
        };
        println!("test {name} ... {word} ({:.1} s)", began.elapsed().as_secs_f64());
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {left_out} filtered out"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The shared folder of what cargo makes.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("vet")
}

fn request(path: &Path) -> Request {
    Request {
        path: path.to_owned(),
        features: Features { offline: true, ..Features::default() },
        target: target(),
        program: std::env::current_exe().expect("this program has a path"),
        list_was_named: true,
        limit: Duration::from_secs(1_800),
    }
}

fn shipped() -> List {
    List::read(&root().join("vet.toml")).expect("the shipped list is right")
}

fn vetted(path: &Path, list: &List) -> Verdict {
    let request = request(path);
    let vetting = Vetting::new(&request, list).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    vetting.verdict().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The findings of a case, in which its rule has to be.
fn refused(case: &Case, verdict: &Verdict) -> Result<(), String> {
    let vetted = verdict.crates.iter().find(|vetted| vetted.name == case.name);
    let vetted = vetted.ok_or_else(|| format!("{}: it was not vetted", case.name))?;
    let said: Vec<String> = vetted.findings.iter().map(ToString::to_string).collect();
    let found = vetted
        .findings
        .iter()
        .any(|finding| finding.rule.name() == case.rule && finding.text.contains(&case.says));
    (found && !vetted.clean)
        .then_some(())
        .ok_or_else(|| format!("{}: expected {}: … {} …, found {said:#?}", case.name, case.rule, case.says))
}

fn each_escape_is_refused_for_its_rule() {
    let cases = cases();
    let (alone, members): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(Case::has_workspace);
    assert!(alone.len() + members.len() >= 30, "the cases are there");
    let folder = unpack("members", &members);
    let verdict = vetted(&folder, &shipped());
    assert!(!folder.join("ran").exists(), "a program of a vetted crate ran");
    let wrong: Vec<String> = members.iter().filter_map(|case| refused(case, &verdict).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let clean: Vec<&str> =
        verdict.crates.iter().filter(|vetted| vetted.clean).map(|vetted| vetted.name.as_str()).collect();
    assert_eq!(clean, ["harmless"], "what is harmless beside them is not refused");
    let named: std::collections::BTreeSet<&str> = members.iter().map(|case| case.rule.as_str()).collect();
    println!("{} escapes, each refused for one of {} rules", members.len(), named.len());
}

fn a_workspace_of_its_own_is_refused() {
    let alone: Vec<Case> = cases().into_iter().filter(Case::has_workspace).collect();
    assert!(!alone.is_empty());
    for case in &alone {
        let folder = unpack("alone", std::slice::from_ref(case)).join(&case.name);
        let verdict = vetted(&folder, &shipped());
        refused(case, &verdict).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

fn a_listed_crate_that_changed_is_refused() {
    let below = Case::of(
        "listed_below",
        "refused: hash\nsays: vet.toml expects\nwhy: the list names it\n-- Cargo.toml --\n[package]\nname = \"listed_below\"\n\
         version = \"1.0.0\"\nedition = \"2024\"\n-- src/lib.rs --\npub fn first(bytes: &[u8]) -> u8 {\n    unsafe { *bytes.as_ptr() }\n}\n",
    );
    let above = Case::of(
        "listed_above",
        "refused: dependency\nsays: which is refused\nwhy: it uses the other\n-- Cargo.toml --\n[package]\nname = \"listed_above\"\n\
         version = \"1.0.0\"\nedition = \"2024\"\n[dependencies]\nlisted_below = { path = \"../listed_below\" }\n\
         -- src/lib.rs --\npub use listed_below::first;\n",
    );
    let folder = unpack("listed", &[above, below]);
    let list = folder.with_file_name("listed.toml");
    let hash = netbricks_vet::hash::of_folder(&folder.join("listed_below")).expect("it can be read");
    let write = |hash: &str| {
        let text = format!(
            "[[crate]]\nname = \"listed_below\"\nversion = \"1.0.0\"\nhash = \"{hash}\"\n[[use]]\ncrate = \"listed_below\"\npaths = [\"listed_below::first\"]\n"
        );
        std::fs::write(&list, text).expect("it can be written");
        List::read(&list).expect("it is right")
    };
    let above = folder.join("listed_above");
    let verdict = vetted(&above, &write(&hash));
    assert!(verdict.clean, "{}", verdict.text());
    assert_eq!(verdict.listed.len(), 1);
    let verdict = vetted(&above, &write(&hash.replace(&hash[..4], "0000")));
    let rules: Vec<Rule> =
        verdict.crates.iter().flat_map(|vetted| &vetted.findings).map(|finding| finding.rule).collect();
    assert!(rules.contains(&Rule::Hash) && rules.contains(&Rule::Dependency), "{}", verdict.text());
    // Without the list it is vetted as any other.
    std::fs::write(&list, "").expect("it can be written");
    let verdict = vetted(&above, &List::read(&list).expect("an empty list is one"));
    let below = verdict.crates.iter().find(|vetted| vetted.name == "listed_below").expect("it was vetted");
    assert_eq!(below.findings.first().map(|finding| (finding.rule, finding.line)), Some((Rule::Unsafe, 2)));
}

fn the_authors_list_and_target_are_refused() {
    let folder = unpack("inside", &[Case::harmless()]).join("harmless");
    let read = |list: &Path| {
        std::fs::write(list, "[[tree]]\npath = \".\"\n").expect("it can be written");
        List::read(list).expect("it is right")
    };
    let own_list = read(&folder.join("vet.toml"));
    // The current folder may be the author's workspace.
    let beside = read(&folder.with_file_name("vet.toml"));
    let refused = |request: &Request, list: &List| match Vetting::new(request, list) {
        Err(Error::Inside { what, .. }) => what,
        other => panic!("expected a refusal, found {:?}", other.map(|_| "none")),
    };
    assert_eq!(refused(&request(&folder), &own_list), "the list");
    let unnamed = Request { list_was_named: false, ..request(&folder) };
    assert_eq!(refused(&unnamed, &beside), "the list, which no `--list` names,");
    let within = Request { target: folder.join("target"), ..request(&folder) };
    assert_eq!(refused(&within, &shipped()), "the target folder");
}

fn a_clean_program_is_built_and_attested() {
    let case = Case::of(
        "attested",
        "refused: \nsays: \nwhy: it is clean\n-- Cargo.toml --\n[package]\nname = \"attested\"\nversion = \"1.2.3\"\nedition = \"2024\"\n\
         -- src/main.rs --\nfn main() -> std::process::ExitCode {\n    std::process::ExitCode::from(7)\n}\n",
    );
    let folder = unpack("attested", std::slice::from_ref(&case));
    let (request, list) = (request(&folder.join("attested")), shipped());
    let vetting = Vetting::new(&request, &list).expect("it resolves");
    assert_eq!(vetting.program_name().expect("there is one"), "attested");
    let verdict = vetting.verdict().expect("it can be vetted");
    assert!(verdict.clean, "{}", verdict.text());
    let binary = folder.join("built");
    let attestation = vetting.attest(&verdict, &binary).expect("it is built");
    assert_eq!((attestation.name.as_str(), attestation.version.as_str()), ("attested", "1.2.3"));
    let status = std::process::Command::new(&binary).status().expect("it runs");
    assert_eq!(status.code(), Some(7));
    let program = || std::fs::File::open(&binary).expect("it is there");
    let path = Path::new("attested.json");
    attestation.holds_for(program(), path).expect("it is the one");
    let mut other = std::fs::read(&binary).expect("it is there");
    other.push(0);
    assert!(attestation.holds_for(other.as_slice(), path).is_err(), "a byte more is another program");
    // A change between the verdict and the build.
    std::fs::write(folder.join("attested/src/main.rs"), "fn main() {}\n").expect("it can be written");
    assert!(matches!(vetting.attest(&verdict, &binary), Err(Error::Changed { .. })));
}

fn the_library_of_functions_passes() {
    let own = List::read(&root().join("ci/vet-library.toml")).expect("the library's list is right");
    let verdict = vetted(&root().join("crates/functions"), &own);
    assert!(verdict.clean, "{}", verdict.text());
    assert_eq!(verdict.crates.len(), 1, "its dependencies are on the list: {}", verdict.text());
    let verdict = vetted(&root().join("examples/own-nf"), &shipped());
    assert!(verdict.clean, "{}", verdict.text());
}
