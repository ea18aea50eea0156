//! `tap`: a TAP device of our own, whose other end is the host's stack.
//!
//! Use it for tests, for virtual machines and as a way into the host. The device lives as long as the port.
//!
//! Each packet costs one system call: read(2) and write(2) on a TAP device carry one packet, however many
//! buffers they name. There is no ring to map, and recvmmsg(2) needs a socket. Only vhost can hand over
//! batches (`drivers/net/tun.c`, `tun_sendmsg`). With the offloads on, one packet has up to 64 KiB of a
//! stream.

mod queue;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use netbricks_core::{InvalidSetting, Settings};

use self::queue::{Receiver, Sender};
use crate::device::{self, Device, DevicePort, InUse, Opening, check_queues};
use crate::driver::{Demands, OpenContext, PortDriver, QueueDivision};
use crate::interface::{HEADER, Interface, refused, unusable};
use crate::port::{Capabilities, Port, PortError, ReceiveQueue, TransmitQueue};
use crate::returning::Wanted;
use crate::steer::{FilterSupport, Filtering, MOST_RULES, Rules, Unsteerable, extended, program};
use crate::sys::bpf::Program;
use crate::sys::interface::padded;
use crate::sys::tun::{
    MAKER, Queue, TUN_F_CSUM, TUN_F_TSO_ECN, TUN_F_TSO4, TUN_F_TSO6, TUN_F_USO4, TUN_F_USO6,
};

/// The mechanism that applies rules.
const PROGRAM: &str = "eBPF (TUNSETSTEERINGEBPF)";
const DRIVER: &str = "tap";
const CAPABILITY: &str = "CAP_NET_ADMIN";

/// The driver `tap`.
pub(crate) struct TapDriver;

impl PortDriver for TapDriver {
    type Settings = TapSettings;
    const NAME: &'static str = DRIVER;
    const SUMMARY: &'static str =
        "A TAP device that lives as long as the port; the host's stack is at its other end.";
    const DIVISION: QueueDivision = QueueDivision::Asymmetric;
    const FILTERS: Option<FilterSupport> = Some(FilterSupport::program(PROGRAM));

    fn open(&self, name: &str, settings: &TapSettings, cx: &OpenContext) -> Result<Box<dyn Port>, PortError> {
        let own = settings.clone();
        // It is never made again here: it was deleted from outside.
        device::open(name, &settings.device, cx, Wanted::There, move |opening| open_device(opening, &own))
    }

    fn lacks(&self, port: &str, settings: &TapSettings, _: &Demands) -> Vec<PortError> {
        let lack = |problem| PortError::Setting { port: port.into(), key: "device", problem };
        let made_by = (!Path::new(MAKER).exists())
            .then(|| lack(format!("needs {MAKER}, which is not there: `modprobe tun`")));
        let device = &settings.device;
        // A device that does not exist yet is made.
        let other = Interface::find(port, device)
            .is_ok_and(|interface| is_other(port, &interface))
            .then(|| unusable(port, device, "is there and is no TAP device: choose another name"));
        made_by.into_iter().chain(other).collect()
    }

    /// Large packets are segments that the host leaves uncut; without offloads, jumbo frames.
    fn brings_large_packets(&self, settings: &TapSettings, small: usize) -> bool {
        settings.offload || settings.device_mtu.is_some_and(|mtu| mtu + HEADER > small)
    }

    fn receive_queues(&self, settings: &TapSettings, wanted: usize) -> usize {
        settings.queues.unwrap_or(wanted)
    }
}

/// The error for a device that cannot be made.
///
/// No capability helps if this user may not open the file through which it is made.
fn not_made(name: &str, device: &str, error: std::io::Error) -> PortError {
    let action = format!("making the TAP device {device}");
    if error.raw_os_error() == Some(libc::EACCES) {
        let action = format!("{action}: opening {MAKER} (this user must be allowed to read and write it)");
        return PortError::System { port: name.into(), action, source: error };
    }
    refused(name, &action, CAPABILITY, error)
}

/// Whether an existing interface is not a TAP device: another driver's, or a TUN device of the same driver.
fn is_other(port: &str, interface: &Interface) -> bool {
    interface.driver() != "tun" || interface.needs_ethernet(port).is_err()
}

netbricks_core::settings! {
    /// The settings of a `tap` port.
    #[derive(Clone, Debug)]
    pub(crate) struct TapSettings {
        /// The TAP device's name; with `%d` in it the kernel chooses the number.
        device: String = required, "text, up to 15 bytes";
        /// Queues among which the kernel spreads flows.
        queues: Option<usize> = unset "one a worker", "whole number";
        /// Carry partial checksums and packets up to 64 KiB (TSO, USO) both ways.
        offload: bool = true, "true or false";
        /// The device's MTU, which the host's stack keeps to.
        device_mtu: Option<usize> = unset "1500", "whole number, bytes";
        /// The host's MAC address on it.
        mac: Option<String> = unset "random", "MAC address";
        /// The host's IP address on it.
        address: Option<String> = unset, "address/prefix";
    }
}

impl TapSettings {
    /// The MAC address, once checked.
    fn mac(&self) -> Option<Result<[u8; 6], String>> {
        self.mac.as_deref().map(|text| {
            let mut mac = [0; 6];
            let mut parts = text.split(':');
            for place in &mut mac {
                let part = parts.next().filter(|part| part.len() == 2);
                *place = part
                    .and_then(|part| u8::from_str_radix(part, 16).ok())
                    .ok_or_else(|| expected_mac(text))?;
            }
            if parts.next().is_some() || mac[0] & 1 != 0 {
                return Err(expected_mac(text));
            }
            Ok(mac)
        })
    }
    /// Address and prefix length, once checked.
    fn address(&self) -> Option<Result<(IpAddr, u8), String>> {
        self.address.as_deref().map(|text| {
            let (address, prefix) = text.split_once('/').ok_or_else(|| expected_address(text))?;
            let address: IpAddr = address.parse().map_err(|_| expected_address(text))?;
            let longest = if address.is_ipv4() { 32 } else { 128 };
            match prefix.parse() {
                Ok(prefix) if prefix <= longest => Ok((address, prefix)),
                _ => Err(expected_address(text)),
            }
        })
    }
}

fn expected_mac(found: &str) -> String {
    format!("must be a unicast MAC address such as \"02:00:00:00:00:01\", found {found:?}")
}
fn expected_address(found: &str) -> String {
    format!("must be an address with its prefix such as \"10.0.0.1/24\" or \"fd00::1/64\", found {found:?}")
}

impl Settings for TapSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        let refuse = |key, problem| Err(InvalidSetting { key, problem });
        if padded(&self.device).is_none() {
            return refuse(
                "device",
                format!("must have 1 to 15 bytes and no slash, found {:?}", self.device),
            );
        }
        check_queues(self.queues)?;
        if self.device_mtu.is_some_and(|mtu| !(68..=65_521).contains(&mtu)) {
            return refuse("device_mtu", "must be 68 to 65521 bytes".into());
        }
        if let Some(Err(problem)) = self.mac() {
            return refuse("mac", problem);
        }
        match self.address() {
            Some(Err(problem)) => refuse("address", problem),
            _ => Ok(()),
        }
    }
}

/// The queues of an open TAP device.
struct Tap {
    offload: bool,
    queues: Vec<Arc<Queue>>,
    is_steered: bool,
}

impl Drop for Tap {
    fn drop(&mut self) {
        if self.is_steered {
            // A device that another process made stays. If the device is gone, there is nothing to undo.
            let _ = self.queues[0].choose_by(None);
        }
    }
}

/// Makes the device, or attaches to it where it is there.
fn open_device(opening: &Opening<'_>, settings: &TapSettings) -> Result<DevicePort<Tap>, PortError> {
    let Opening { port: name, device: wanted, cx, .. } = *opening;
    let refused = |action: String| move |error| refused(name, &action, CAPABILITY, error);
    let count = opening.queues(settings.queues, usize::MAX);
    if let Ok(there) = Interface::find(name, wanted) {
        there.needs_ethernet(name)?;
    }
    let (first, device) = Queue::attach(wanted).map_err(|error| not_made(name, wanted, error))?;
    let mut queues = vec![Arc::new(first)];
    for _ in 1..count {
        let (queue, _) = Queue::attach(&device).map_err(refused(format!("adding a queue to {device}")))?;
        queues.push(Arc::new(queue));
    }
    // A device that outlives its users keeps the program of a user that was killed.
    let _ = queues[0].choose_by(None);
    let mut warnings = Vec::new();
    if settings.offload {
        let largest = cx.pool.largest_packet();
        let large = largest >= crate::interface::LARGEST_ARRIVAL;
        if !large {
            warnings.push(format!(
                "the pool's largest frame takes {largest} bytes: {device} carries partial checksums, but no packets larger than its MTU; give the pool large frames for that (`large_frames` in `[runtime]`)"
            ));
        }
        offer(&queues[0], large).map_err(refused(format!("setting the offloads of {device}")))?;
    }
    let interface = Interface::find(name, &device)?;
    if let Some(mac) = settings.mac().and_then(Result::ok) {
        interface.set_mac(mac).map_err(refused(format!("setting the MAC address of {device}")))?;
    }
    if let Some(mtu) = settings.device_mtu {
        interface.set_mtu(mtu).map_err(refused(format!("setting the MTU of {device}")))?;
    }
    if let Some((address, prefix)) = settings.address().and_then(Result::ok) {
        interface
            .set_address(address, prefix)
            .map_err(refused(format!("giving {device} the address {address}/{prefix}")))?;
    }
    interface.set_up().map_err(refused(format!("switching {device} on")))?;
    let mtu = interface.mtu().map_err(refused(format!("asking for the MTU of {device}")))?;
    let counters = opening.counters(queues.len());
    let queues = Tap { offload: settings.offload, queues, is_steered: cx.filters };
    if cx.filters {
        // Its hash brings both directions of a flow to one queue, also where there will be no rules.
        let chosen = queues.choose(&device, &Rules::default());
        chosen.map_err(|reason| PortError::Steer { port: name.into(), reason })?;
    }
    Ok(DevicePort::new(opening, (interface, mtu), counters, warnings, queues))
}

impl Tap {
    /// Has a program choose among the queues, by these rules.
    fn choose(&self, device: &str, rules: &Rules) -> Result<(), Unsteerable> {
        let failed = |action: String| move |source| Unsteerable::System { action, source };
        let loaded = Program::load_filter(&extended(&program(rules)), "nb_steer")
            .map_err(failed(format!("loading a program for {device}, which needs CAP_BPF")))?;
        self.queues[0]
            .choose_by(Some(&loaded))
            .map_err(failed(format!("having a program choose among the queues of {device}")))
    }
}

/// Sets the offloads that the host may leave to us, as far as its kernel knows them.
fn offer(queue: &Queue, large: bool) -> std::io::Result<()> {
    if !large {
        return queue.set_offload(TUN_F_CSUM);
    }
    let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    // USO came with Linux 6.2.
    queue.set_offload(tcp | TUN_F_USO4 | TUN_F_USO6).or_else(|_| queue.set_offload(tcp))
}

impl Device for Tap {
    const DRIVER: &'static str = DRIVER;

    fn capabilities(&self, on: &InUse) -> Capabilities {
        Capabilities {
            receive_queues: self.queues.len(),
            transmit_queues: self.queues.len(),
            // With several queues, the kernel sends a flow to the queue that last sent for it, which may be
            // any queue. Our program's hash treats both directions the same.
            symmetric_rss: self.queues.len() == 1 || on.filters,
            checksum_offload: self.offload,
            segmentation_offload: self.offload,
            ..Capabilities::default()
        }
    }
    fn filtered_by(&self) -> Option<Filtering> {
        Some(Filtering::new(PROGRAM, MOST_RULES))
    }
    fn steer(&mut self, on: &InUse, rules: &Rules) -> Result<(), Unsteerable> {
        rules.check_number(MOST_RULES)?;
        self.choose(on.interface.name(), rules)?;
        self.is_steered = on.filters || !rules.is_empty();
        Ok(())
    }
    fn receive_queue(&mut self, on: &InUse, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        let action = "making an event descriptor";
        let receiver = Receiver::new(Arc::clone(&self.queues[queue]), Arc::clone(&on.counters[queue]));
        Ok(Box::new(receiver.map_err(|error| refused(&on.port, action, CAPABILITY, error))?))
    }
    fn transmit_queue(&mut self, on: &InUse, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        let (file, counters) = (Arc::clone(&self.queues[queue]), Arc::clone(&on.counters[queue]));
        Ok(Box::new(Sender::new(file, self.offload, counters)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<TapSettings, String> {
        let settings: TapSettings = toml::from_str(text).map_err(|error| error.to_string())?;
        settings.check().map_err(|refused| refused.to_string())?;
        Ok(settings)
    }

    #[test]
    fn settings_are_checked() {
        let good =
            settings("device = \"tap0\"\nmac = \"02:00:00:00:00:0a\"\naddress = \"fd00::1/64\"").unwrap();
        assert_eq!(good.mac().unwrap().unwrap(), [2, 0, 0, 0, 0, 10]);
        assert_eq!(good.address().unwrap().unwrap(), ("fd00::1".parse().unwrap(), 64));
        for (text, key) in [
            ("device = \"a-name-of-17-byte\"", "`device`"),
            ("device = \"tap0\"\nmac = \"01:00:00:00:00:0a\"", "`mac`"),
            ("device = \"tap0\"\nmac = \"02:00:00:00:00\"", "`mac`"),
            ("device = \"tap0\"\naddress = \"10.0.0.1/33\"", "`address`"),
            ("device = \"tap0\"\naddress = \"10.0.0.1\"", "`address`"),
            ("device = \"tap0\"\ndevice_mtu = 67", "`device_mtu`"),
            ("device = \"tap0\"\nqueues = 0", "`queues`"),
        ] {
            let refused = settings(text).unwrap_err();
            assert!(refused.starts_with(key), "{text}: {refused}");
        }
    }
}
