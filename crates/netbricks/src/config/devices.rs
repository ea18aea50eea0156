//! Interfaces that ports name: no two ports may name the same one, since each would take packets of the
//! other.

use std::ops::Range;

use netbricks_ports::Drivers;
use netbricks_ports::interface::Interface;

use super::plan::Plan;
use crate::diagnostic::{Diagnostic, Diagnostics};

/// An interface that a port names.
struct Named<'p> {
    port: &'p str,
    device: &'p str,
    /// The interface's index on this machine, if an interface of that name exists.
    index: Option<u32>,
    place: Range<usize>,
}

impl Plan<'_> {
    /// Reports interfaces that two ports name, also by an alternative name (`ip link property add …
    /// altname`).
    pub(crate) fn check_devices(&self, drivers: &Drivers, diagnostics: &mut Diagnostics) {
        let mut known: Vec<Named<'_>> = Vec::new();
        for port in &self.ports {
            let names_one =
                |driver: &netbricks_ports::Driver| driver.keys.iter().any(|key| key.name == "device");
            if !drivers.get(&port.driver).is_some_and(names_one) {
                continue;
            }
            let Some(value) = port.settings.get_ref().get("device") else { continue };
            // A template such as `tap%d` names a new device each time.
            let Some(device) = value.get_ref().as_str().filter(|device| !device.contains('%')) else {
                continue;
            };
            let index = Interface::find(&port.name, device).ok().map(|interface| interface.index());
            let named = Named { port: &port.name, device, index, place: value.span() };
            let is_same =
                |other: &&Named<'_>| other.device == device || index.is_some() && other.index == index;
            if let Some(other) = known.iter().find(is_same) {
                let by_name = other.device == device;
                let message = if by_name {
                    format!("ports `{}` and `{}` name the same interface, {device}", other.port, named.port)
                } else {
                    format!(
                        "ports `{}` and `{}` name the same interface: {} and {device} are two names of one here",
                        other.port, named.port, other.device
                    )
                };
                let error = Diagnostic::error(message)
                    .at(named.place.clone(), "name another interface")
                    .at(other.place.clone(), format!("port `{}` has it", other.port))
                    .help("a chain may send to the port that it receives from: packets go back out of that interface");
                diagnostics.push(Diagnostic { machine: !by_name, ..error });
            }
            known.push(named);
        }
    }
}
