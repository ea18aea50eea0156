//! Tests of filters that a file without tenants has.

use netbricks_ports::Drivers;

use super::Application;
use super::file::{self, File};

const RULES: &str = "\"to 10.1.0.0/16 -> first\", \"from 10.1.0.0/16 -> first\", \
                     \"to 10.2.0.0/16 -> second\", \"from 10.2.0.0/16 -> second\"";

/// Two sites with state by flow of their own, behind a function `before`, and all other packets.
fn sites(before: &str) -> File {
    let text = format!(
        "[port.lan]\ndriver = \"generator\"\nsteer = \"graph\"\n[port.wan]\ndriver = \"null\"\n\
         [function.before]\n{before}\n[function.sites]\nuse = \"classify\"\nrules = [{RULES}]\n\
         [function.one]\nuse = \"monitor\"\n[function.two]\nuse = \"monitor\"\n\
         [[chain]]\nfrom = \"lan\"\nthrough = [\"before\", \"ttl\", \"sites\", \"macswap\"]\nto = \"wan\"\n\
         [[chain]]\nfrom = \"sites.first\"\nthrough = [\"ttl\", \"one\"]\nto = \"wan\"\n\
         [[chain]]\nfrom = \"sites.second\"\nthrough = [\"two\"]\nto = \"wan\"\n[runtime]\nworkers = 2\n"
    );
    File { name: "f.toml".into(), text, directory: Default::default(), files: Default::default() }
}

/// The lines of `check` about filters, and the shuffles that are put in.
fn told(file: &File) -> (String, usize) {
    let app = Application::new(crate::standard(), Drivers::standard());
    match file::check_spread(&app, file) {
        Ok(checked) => (checked.filters.told().concat(), checked.told_shuffles().count()),
        Err(faults) => panic!("{}", faults.diagnostics.render(&faults.source, false)),
    }
}

#[test]
fn a_file_without_tenants_has_the_filters_of_its_functions() {
    let (told, shuffles) = told(&sites("use = \"lpm\"\nroutes = [\"10.0.0.0/8 1\"]"));
    let expected = "4 rules for 2 of 3 paths; the graph still classifies
    to 10.1.0.0/16 ──▶ queue 0
    from 10.1.0.0/16 ──▶ queue 0
    to 10.2.0.0/16 ──▶ queue 1
    from 10.2.0.0/16 ──▶ queue 1
    macswap by the port's hash: it has the packets that take no other path
";
    let (first, rest) = told.split_once(": ").unwrap_or_default();
    assert!(first.starts_with("  lan  filters by "), "{told}");
    assert_eq!(rest, expected, "{told}");
    assert_eq!(shuffles, 0, "each flow comes to one worker");
}

#[test]
fn there_are_none_behind_functions_that_change_headers() {
    let nat = "use = \"nat\"\ninside = [\"10.9.0.1/32\"]\npool = [\"203.0.113.0/30\"]\nothers = \"pass\"";
    let (told, _) = told(&sites(nat));
    assert!(told.contains("0 rules for 0 of 1 path;"), "{told}");
}
