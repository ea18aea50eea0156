//! Messages of `check` about present interfaces, as a process without any capability sees them.

use super::fixture::{Driver, Segment};

#[test]
fn check_warns_of_interfaces_that_will_not_do() {
    let Some(segment) = Segment::new("checking", Driver::AfPacket, &["setpriv"]) else { return };
    let good = segment.chains("");
    let check = |text: &str| {
        let file = segment.directory.join("f.toml");
        std::fs::write(&file, text).expect("the directory can be written");
        let bare = "setpriv --bounding-set=-all --inh-caps=-all";
        let line =
            format!("{bare} {} check {} --color never", env!("CARGO_BIN_EXE_netbricks"), file.display());
        let output = segment.namespaces.attempt("middle", &line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    assert_eq!(check(&good), "");

    segment.namespaces.run("middle", "ip link set dev b0 down");
    segment.namespaces.run("server", "ip link set dev s0 down");
    segment.namespaces.veth(("middle", "d0"), ("middle", "d1"));
    let other = "[port.host]\ndriver = \"tap\"\ndevice = \"d0\"\n[port.fast]\ndriver = \"af_xdp\"\ndevice = \"d1\"\n\
                 queues = 64\n[[chain]]\nfrom = \"host\"\nto = \"left\"\n[[chain]]\nfrom = \"fast\"\nto = \"left\"\n";
    let said = check(&format!("{good}{other}"));
    for part in [
        "f.toml:3:10",
        "warning: port `left`: `device` names b0, which is switched off: `ip link set b0 up`\n",
        "warning: port `right`: `device` names b1, which has no link: nothing is at its other end\n",
        "warning: port `host`: `device` names d0, which is there and is no TAP device: choose another name\n",
        "warning: port `fast`: `queues` asks for 64, and d1 has 1: there will be no more\n",
        "warning: port `fast`: `device` names d1, which is a veth: its other end leaves checksums unfinished",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert_eq!(said.matches("warning: ").count(), 5, "{said}");
}
