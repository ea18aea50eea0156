//! The drivers of this crate.

use crate::af_packet::AfPacketDriver;
use crate::af_xdp::AfXdpDriver;
use crate::generator::GeneratorDriver;
use crate::memif::MemifDriver;
use crate::memory::MemoryDriver;
use crate::null::NullDriver;
use crate::open::Drivers;
use crate::pcap::PcapDriver;
use crate::tap::TapDriver;
use crate::vhost_user::VhostUserDriver;

impl Drivers {
    /// The drivers of this crate.
    pub fn standard() -> Self {
        let mut drivers = Self::new();
        drivers
            .add(AfPacketDriver)
            .add(AfXdpDriver)
            .add(TapDriver)
            .add(MemifDriver)
            .add(VhostUserDriver)
            .add(MemoryDriver::default())
            .add(NullDriver)
            .add(PcapDriver)
            .add(GeneratorDriver);
        drivers
    }
}
