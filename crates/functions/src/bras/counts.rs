//! The counters of the function.

use netbricks_core::{Counter, Worker};

macro_rules! counts {
    ($($(#[$doc:meta])* $field:ident, $name:literal;)*) => {
        /// Counters of packets and of what became of sessions.
        pub(super) struct Counts { $($(#[$doc])* pub(super) $field: Counter),* }

        impl Counts {
            pub(super) fn new(worker: &Worker) -> Self {
                Self { $($field: worker.counter($name)),* }
            }
            /// All counters by name.
            pub(super) fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$field.get())),*]
            }
        }
    };
}

counts! {
    /// IP packets of subscribers that went to the core.
    upstream, "upstream";
    /// IP packets that went to subscribers.
    downstream, "downstream";
    /// Offers (PADO).
    offers, "offers";
    /// Sessions that discovery began (PADS).
    begun, "begun";
    /// Requests that a limit refused.
    refused, "refused";
    /// Requests whose cookie was wrong or old.
    wrong_cookies, "wrong-cookies";
    /// Sessions that came up.
    opened, "opened";
    /// Sessions that were up and ended.
    closed, "closed";
    /// Sessions that ended before they were up.
    failed, "failed";
    /// Subscribers that did not prove who they are.
    authentication_failed, "authentication-failed";
    /// Sessions for which there was no address.
    without_address, "without-address";
    /// Requests that no RADIUS server answered, or for which there was no room.
    unanswered, "unanswered";
    /// Reports for RADIUS servers for which there was no room, or which no server took.
    lost_reports, "lost-reports";
    /// Prefixes of RADIUS servers whose length is not that of the settings.
    ignored_prefixes, "ignored-prefixes";
    /// Packets with a source address that is not the subscriber's.
    spoofed, "spoofed";
    /// Packets of sessions that are not there, which were answered by PADT.
    strays, "strays";
    /// ICMP errors.
    errors_sent, "errors-sent";
    /// Packets that left in fragments.
    fragmented, "fragmented";
    /// Segments whose maximum segment size was lowered.
    clamped, "clamped";
}
