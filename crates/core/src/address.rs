//! Addresses as table keys that name which address of a packet they are.
//!
//! So a planner knows the shuffle that brings all packets of an entry to one worker.

use std::net::IpAddr;

use netbricks_packet::HashKey;

use crate::shuffle::ShuffleKey;
use crate::state::TableKey;

macro_rules! address_keys {
    ($($(#[$doc:meta])* $name:ident, $by:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub IpAddr);

        impl TableKey for $name {
            type Stored = IpAddr;
            #[inline(always)]
            fn store(self) -> IpAddr {
                self.0
            }
            fn restore(stored: IpAddr) -> Self {
                Self(stored)
            }
            fn spread(self, by: ShuffleKey, hash: &HashKey) -> Option<u64> {
                let follows = Self::follows(by) || by == ShuffleKey::Own;
                follows.then(|| by.spread_address(self.0, hash)).flatten()
            }
            fn follows(by: ShuffleKey) -> bool {
                by == ShuffleKey::$by
            }
        }
    )*};
}

address_keys! {
    /// The source address of packets, as a table's key: a limit or a count for each sender.
    ///
    /// On several workers, a shuffle with the key `source` brings packets of one source to one worker. A
    /// chain file gets one before the function, where it names none.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link};
    /// use netbricks_core::tables::{Entry, FlowTableConfig};
    /// use netbricks_core::{DropReason, Function, Input, Metadata, Operator, SourceAddress, Worker};
    ///
    /// /// Lets 60 packets of each sender pass.
    /// fn allowance(input: Input, worker: &Worker) -> impl Function {
    ///     let seen = worker.flow_table::<SourceAddress, u64>("seen", FlowTableConfig::new(65_536));
    ///     input
    ///         .parse::<Link>()
    ///         .parse::<Ip>()
    ///         .lookup(
    ///             &seen,
    ///             |packet| SourceAddress(packet.header().source()),
    ///             |_, entry| match entry {
    ///                 Entry::Found(mut packets) => {
    ///                     *packets.get_mut() += 1;
    ///                     *packets.get_mut()
    ///                 }
    ///                 Entry::Vacant(vacant) => *vacant.insert(1),
    ///                 Entry::Full => u64::MAX,
    ///             },
    ///         )
    ///         .filter(DropReason::RateLimited, |packet| *packet.get::<u64>() <= 60)
    ///         .done()
    /// }
    /// ```
    SourceAddress, Source;
    /// The destination address of packets, as a table's key; as [`SourceAddress`], with the shuffle key `destination`.
    DestinationAddress, Destination;
}
