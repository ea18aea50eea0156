//! Drivers and the settings of their ports.

use netbricks_core::{InvalidSetting, KeyFault};

use super::*;
use crate::testing::{Directory, context, pool};

fn read(driver: &str, text: &str) -> Result<ConfiguredPort, SettingsError> {
    Drivers::standard().get(driver).unwrap().read("under-test", DeTable::parse(text).unwrap())
}

/// The settings that a driver of this crate requires in addition to its defaults.
fn least(driver: &Driver) -> String {
    let required = driver.keys.iter().filter(|key| key.default.is_none());
    let mut text: String = required.map(|key| format!("{} = 'lo'\n", key.name)).collect();
    if driver.name == "pcap" {
        text += "write = 'out.pcap'\n";
    }
    text
}

#[test]
fn the_declared_defaults_of_every_driver_can_be_read() {
    for driver in Drivers::standard().iter() {
        read(driver.name, &least(driver)).unwrap_or_else(|error| panic!("{}: {error}", driver.name));
    }
    assert_eq!(Drivers::standard().iter().count(), 9);
}

#[test]
fn settings_tell_directions_and_queues_before_a_port_is_opened() {
    for (name, text, directions, queues, large) in [
        ("af_packet", "device = 'lo'", (true, true), 4, true),
        ("af_packet", "device = 'lo'\nqueues = 2", (true, true), 2, true),
        ("af_xdp", "device = 'lo'\nqueues = 3", (true, true), 3, true),
        ("tap", "device = 'tap0'\nqueues = 2", (true, true), 2, true),
        ("tap", "device = 'tap0'\noffload = false", (true, true), 4, false),
        ("tap", "device = 'tap0'\noffload = false\ndevice_mtu = 9000", (true, true), 4, true),
        ("memif", "socket = 's'", (true, true), 1, false),
        ("memif", "socket = 's'\nqueues = 3\ndevice_mtu = 9000", (true, true), 3, true),
        ("vhost-user", "socket = 's'", (true, true), 1, true),
        ("vhost-user", "socket = 's'\nqueues = 3\noffload = false", (true, true), 3, false),
        ("memory", "", (true, true), 4, false),
        ("null", "", (true, true), 4, false),
        ("generator", "flows = 3", (true, false), 3, false),
        ("pcap", "read = 'a.pcap'", (true, false), 1, false),
        ("pcap", "write = 'a.pcap'", (false, true), 1, false),
    ] {
        let port = read(name, text).unwrap();
        let Directions { receives, transmits } = port.directions();
        assert_eq!((receives, transmits), directions, "{name}, {text}");
        assert_eq!(
            (port.receive_queues(4), port.brings_large_packets(2_000)),
            (queues, large),
            "{name}, {text}"
        );
    }
    assert!(read("generator", "frame_sizes = 3000").unwrap().fits(2_000).is_err());
    assert!(read("generator", "frame_sizes = 3000").unwrap().fits(4_000).is_ok());
    let lacks = read("af_packet", "device = 'not-there'").unwrap().lacks(2_000);
    assert!(matches!(lacks.as_slice(), [PortError::NoDevice { .. }]), "{lacks:?}");
}

#[test]
fn keys_of_the_driver_and_of_every_port_are_told_apart_and_unknown_ones_are_neither() {
    let text = "flows = 3\nlost = 0.1\n";
    let error = read("generator", text).unwrap_err();
    assert_eq!(error.key, Some(KeyFault::Unknown { suggestion: Some("loss") }));
    assert_eq!(&text[error.span.unwrap()], "lost");
    let error = read("generator", "flovs = 3").unwrap_err();
    assert_eq!(error.key, Some(KeyFault::Unknown { suggestion: Some("flows") }));
    let error = read("af_packet", "hold = 3").unwrap_err();
    assert_eq!(error.key, Some(KeyFault::Renamed { new: "limit" }));
    let error = read("af_packet", "loss = 0.1").unwrap_err();
    assert_eq!(error.key, Some(KeyFault::Missing { key: "device" }));
    // A value of either kind is refused at its place.
    for (text, at) in [("flows = 0\n", "0"), ("loss = 3\n", "3"), ("limit = 'x'\n", "'x'")] {
        let error = read("generator", text).unwrap_err();
        assert_eq!((error.key, &text[error.span.unwrap()]), (None, at), "{text}");
    }
}

#[test]
fn a_port_that_cannot_steer_says_so_beside_all_else_that_is_wrong() {
    let directory = Directory::new("fixed");
    let steer = "steer = [{ protocol = 'udp', queue = 0 }]";
    let found = read("pcap", &format!("read = 'missing.pcap'\n{steer}")).unwrap().check(&directory.0);
    assert!(matches!(found.as_slice(), [PortError::Steer { .. }, PortError::File { .. }]), "{found:?}");
    let pool = pool();
    let refused = read("null", steer).unwrap().open(&context(&pool, &directory)).map(|_| ());
    assert!(matches!(refused, Err(PortError::Steer { .. })), "{refused:?}");
}

/// With filters of the graph, each queue of a device has a socket for each of the port's.
#[test]
fn more_queues_than_a_device_has_are_lacking_without_filters_only() {
    let lacks =
        |more: &str| read("af_xdp", &format!("device = 'lo'\nqueues = 200\n{more}")).unwrap().lacks(2_000);
    let queues = |error: &PortError| matches!(error, PortError::Setting { key: "queues", .. });
    assert!(lacks("").iter().any(queues));
    assert!(!lacks("steer = 'graph'").iter().any(queues));
}

netbricks_core::settings! {
    /// Of a vendor's driver.
    #[derive(Debug)]
    struct VendorSettings {
        /// Must be even.
        number: u32 = 2, "whole number";
    }
}

impl Settings for VendorSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        match self.number % 2 {
            0 => Ok(()),
            _ => Err(InvalidSetting { key: "number", problem: "must be even".into() }),
        }
    }
}

/// In place of our own, with nothing but what must be said.
struct Vendor;

impl PortDriver for Vendor {
    type Settings = VendorSettings;
    const NAME: &'static str = "null";
    const SUMMARY: &'static str = "A vendor's.";
    fn open(&self, port: &str, _: &VendorSettings, _: &OpenContext) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(crate::null::Null::new(port, 1)))
    }
}

#[test]
fn a_driver_replaces_another_of_its_name_and_has_defaults_for_all_that_it_does_not_say() {
    let mut drivers = Drivers::standard();
    let driver = drivers.add(Vendor).get("null").unwrap();
    assert_eq!((driver.summary, driver.device_frames, driver.fixed.is_some()), ("A vendor's.", false, false));
    let read = |text: &str| driver.read("x", DeTable::parse(text).unwrap());
    let port = read("seed = 7").unwrap();
    assert_eq!((port.name(), port.directions(), port.receive_queues(8)), ("x", Directions::BOTH, 1));
    assert!(port.fits(0).is_ok() && port.lacks(0).is_empty() && !port.brings_large_packets(0));
    assert!(port.check(Path::new(".")).is_empty() && port.rules().is_empty());
    assert_eq!(read("number = 3").unwrap_err().message, "`number` must be even");
}
