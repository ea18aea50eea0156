//! Settings that are refused, each with the place of the fault.

use super::rig::{blueprint, refused};

const LAN: &str = "interfaces = [\"lan 192.0.2.1/24 2001:db8:1::1/64\", \"wan 198.51.100.1/24\"]\n";

#[test]
fn faults_of_interfaces_name_the_item() {
    for (item, expected) in [
        ("lan", "`lan` is an interface already"),
        ("wan 192.0.2.1/24", "192.0.2.1 is the address of `lan` already"),
        ("wan 192.0.2.129/25", "overlaps 192.0.2.1/24 of `lan`"),
        ("wan 198.51.100.0/24", "`198.51.100.0/24` is no address of one host"),
        ("wan 198.51.100.255/24", "no address of one host"),
        ("wan 224.0.0.1/24", "no address of one host"),
        ("wan 198.51.100.1/33", "expected an address as `192.0.2.1/24`"),
        ("wan 198.51.100.1", "expected ADDRESS/LENGTH, `mtu BYTES`"),
        ("wan 198.51.100.1/24 mtu 20", "expected an MTU in bytes, 68 to 65535, found `20` (character 25)"),
        ("wan 2001:db8:2::1/64 mtu 1000", "too small for IPv6"),
        ("wan mac 01:00:00:00:00:01", "is a group's address"),
        ("wan vlan 4095", "expected a VLAN, 1 to 4094"),
        ("", "expected a port"),
    ] {
        let settings = format!("interfaces = [\"lan 192.0.2.1/24\", \"{item}\"]\n");
        let (message, at) = refused(&settings);
        assert!(message.contains(expected), "{item}: {message}");
        assert_eq!(at, format!("\"{item}\""), "{message}");
    }
}

#[test]
fn faults_of_routes_name_the_item() {
    for (item, expected) in [
        (
            "10.0.0.0/8 via 203.0.113.1",
            "next hop 203.0.113.1 is unreachable: it is not on the network of any interface",
        ),
        ("10.0.0.0/8 via 198.51.100.7 dev lan", "it is not on the network of `lan`"),
        ("10.0.0.0/8 via 192.0.2.9 dev dmz", "there is no interface `dmz`"),
        ("10.0.0.0/8 via 192.0.2.1", "is the router's own address on `lan`"),
        ("2001:db8:5::/48 via fe80::1", "is link-local: say on which interface by `dev`"),
        (
            "10.0.0.1/8 via 192.0.2.9",
            "`10.0.0.1/8` has bits set behind its first 8: write `10.0.0.0/8` (character 1)",
        ),
        ("10.0.0.0/40 via 192.0.2.9", "have 32 bits"),
        ("10.0.0.0/8", "expected `via ADDRESS`"),
        ("10.0.0.0/8 via", "expected the address of a next hop"),
        ("10.0.0.0/8 via 192.0.2.9 weight 0", "expected a weight, 1 to 1000, found `0` (character 33)"),
        ("10.0.0.0/8 via 192.0.2.9 via 192.0.2.9", "has a next hop twice"),
        ("10.0.0.0/8 blackhole now", "expected nothing more, found `now`"),
        ("224.0.0.0/8 via 192.0.2.9", "is of groups"),
        ("192.0.2.0/24 via 198.51.100.7", "has 192.0.2.0/24, which is of an interface"),
        ("0.0.0.0/0 via 192.0.2.8", "gives 0.0.0.0/0 a second time"),
    ] {
        let settings = format!("{LAN}routes = [\"default via 198.51.100.2\", \"{item}\"]\n");
        let (message, at) = refused(&settings);
        assert!(message.contains(expected), "{item}: {message}");
        assert_eq!(at, format!("\"{item}\""), "{message}");
    }
}

#[test]
fn other_faults_name_the_key() {
    for (line, expected) in [
        ("host = \"lan\"", "is `lan`, which is an interface"),
        ("host = \"tap 10.0.0.1/24\"", "has no addresses and no VLAN of its own"),
        ("kernel = \"local\"", "expected \"main\" or the number of a routing table"),
        ("neighbours = [\"lan 10.0.0.1 02:00:00:00:00:09\"]", "10.0.0.1 is not on the network of `lan`"),
        ("neighbours = [\"lan 192.0.2.9 02:00\"]", "expected a MAC address, found `02:00` (character 15)"),
        ("held = 0", "must be 1 to 65536, found 0"),
        ("reachable = \"1 ms\"", "must be \"1 s\" to \"1 h\""),
    ] {
        let (message, _) = refused(&format!("{LAN}{line}\n"));
        assert!(message.contains(expected), "{line}: {message}");
    }
}

#[test]
fn all_wrong_lines_of_a_file_are_named() {
    let directory = std::env::temp_dir().join(format!("netbricks-router-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("routes");
    let settings = format!("{LAN}table = \"{}\"\n", file.display());
    let lines = |wrong: &str| {
        let mut text: String =
            (0..10_000).map(|i| format!("10.{}.{}.0/24 via 198.51.100.2 # {i}\n", i >> 8, i & 255)).collect();
        text.push_str(wrong);
        std::fs::write(&file, text).unwrap();
    };
    lines("\n# a comment\n");
    blueprint(&settings);
    lines("10.0.0.0/33 via 198.51.100.2\n11.0.0.0/8 via\n12.0.0.0/8 by 198.51.100.2\n");
    let (message, at) = refused(&settings);
    for expected in ["names a file with 3 wrong lines", ":10001:1: ", ":10002:15: ", ":10003:12: "] {
        assert!(message.contains(expected), "{message}");
    }
    assert!(at.contains("routes"));
    lines("10.0.0.0/24 via 198.51.100.2\n11.0.0.0/8 via 203.0.113.1\n");
    let (message, _) = refused(&settings);
    assert!(message.contains(":10001: 10.0.0.0/24 stands here twice"), "{message}");
    assert!(message.contains(":10002: next hop 203.0.113.1 is unreachable"), "{message}");
    std::fs::remove_dir_all(&directory).unwrap();
}
