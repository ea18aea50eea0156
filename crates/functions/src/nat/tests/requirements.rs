//! The table of requirements in the README names a test in each row, and each test is there.

use std::collections::BTreeSet;

/// The sources of this folder's tests.
const SOURCES: [&str; 8] = [
    include_str!("features.rs"),
    include_str!("ipv6.rs"),
    include_str!("pcp.rs"),
    include_str!("rfc4787.rs"),
    include_str!("rfc5382.rs"),
    include_str!("rfc5508.rs"),
    include_str!("rfc6888.rs"),
    include_str!("rfc7857.rs"),
];

#[test]
fn every_requirement_of_the_readme_has_its_test() {
    let tests: BTreeSet<&str> = SOURCES
        .iter()
        .flat_map(|source| source.split("#[test]\nfn ").skip(1))
        .filter_map(|test| test.split('(').next())
        .collect();
    let readme = include_str!("../README.md");
    let table = readme.lines().skip_while(|line| *line != "| requirement | what is done | test |").skip(2);
    let mut named = BTreeSet::new();
    for row in table.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 3, "{row}");
        let test = cells[2].trim().trim_matches('`');
        assert!(tests.contains(test) || cells[2].trim() == "none", "no test has the name `{test}`: {row}");
        named.insert(test);
    }
    assert!(named.len() > 60, "{}", named.len());
    let unnamed: Vec<_> =
        tests.iter().filter(|test| test.starts_with("rfc") && !named.contains(*test)).collect();
    assert_eq!(unnamed, Vec::<&&str>::new(), "tests of requirements that no row names");
}
