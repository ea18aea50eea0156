mod behaviour;
mod crash;
mod hostile;
mod simulated;

use super::*;

/// Few, so that a short test meets each.
const SMALL: Limits = Limits { kept: 4, text: 4096, records: 8, journal: 2048, contents: 100 };

fn base() -> Base {
    Base { origin: "edge.toml".into(), directory: "/etc/netbricks".into() }
}

fn record(argument: &str) -> Record {
    Record {
        function: "balance".into(),
        handler: "add".into(),
        argument: argument.into(),
        time: 9,
        tenant: None,
    }
}

fn reopen(disk: &simulated::Simulated) -> Store {
    Store::read(Box::new(disk.clone()), "/state".as_ref(), SMALL).unwrap()
}
