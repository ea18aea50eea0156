//! Conversations: both directions of each flow, with times and TCP flags, for reports and for a collector.

use netbricks_core::node::SectionMerge;
use netbricks_core::packet::stack::{Layer, Root};
use netbricks_core::packet::{FlowKey, Ip, IpRef, Link, protocol};
use netbricks_core::tables::{Entry, FlowTableConfig, Full};
use netbricks_core::view::{Enclosing, IpRewrite};
use netbricks_core::{
    Flows, Function, Handler, Input, Operator, Section, StoredFlow, TableKey, Verdict, View, Worker,
};

use super::config::MonitorConfig;
use super::conversation::{Conversation, ConversationKey, Seen, letters};
use super::export::{self, Waiting};
use super::ipfix::EndReason;
use super::state::{Largest, most};

type Packet<'v> = View<'v, Layer<Layer<Root, Link>, Ip>>;

/// Counts packets and bytes of both directions of each flow, with times, TCP flags and the handshake's round trips.
///
/// With a collector, it also makes the records that the control side sends there. Packets are never dropped.
pub fn conversations(input: Input, config: &MonitorConfig, worker: &Worker) -> impl Function + use<> {
    let idle = config.idle.nanoseconds();
    let exports = config.collector.is_some();
    let table = worker.flow_table::<ConversationKey, Conversation>(
        "conversations",
        FlowTableConfig {
            capacity: config.capacity,
            // With a collector the sweep ends conversations, so that each is reported.
            idle_timeout: Some(if exports { idle.saturating_mul(2).saturating_add(SWEPT) } else { idle }),
            full: if exports { Full::EvictOldest } else { Full::EvictExpired },
            seed: worker.seed(),
        },
    );
    let waiting = exports.then(|| Waiting::new(config, worker));
    if let Some(waiting) = &waiting {
        export::declare(&table, waiting, config, worker);
    }
    report(&table, config.top, waiting.clone(), worker);
    let active = config.active.nanoseconds();
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .lookup(
            &table,
            |packet| ConversationKey::of(packet.flow_key()).0,
            move |packet, entry| count(packet, entry, waiting.as_ref(), (idle, active)),
        )
        .done()
}

/// A whole sweep of the largest table takes less (ns).
const SWEPT: u64 = 120_000_000_000;

fn count(
    packet: &Packet<'_>,
    entry: Entry<'_, StoredFlow, Conversation>,
    waiting: Option<&Waiting>,
    (idle, active): (u64, u64),
) {
    let seen = seen(packet);
    let (key, is_reversed) = ConversationKey::of(packet.flow_key());
    match entry {
        Entry::Found(mut found) => {
            let conversation = found.get_mut();
            let over = match export::due(conversation, seen.now, idle, active) {
                // Not swept yet: its end does not depend on when the sweep comes.
                Some(EndReason::Active) => {
                    if let Some(waiting) = waiting {
                        waiting.report(key.0, conversation, EndReason::Active, seen.now);
                    }
                    None
                }
                Some(EndReason::Idle) => Some(EndReason::Idle),
                _ if conversation.is_followed_by(&seen) => Some(EndReason::EndOfFlow),
                _ => None,
            };
            match over {
                Some(reason) => {
                    if let Some(waiting) = waiting {
                        waiting.report(key.0, conversation, reason, seen.now);
                    }
                    *conversation = Conversation::begin(is_reversed, &seen);
                }
                None => conversation.count(is_reversed, &seen),
            }
        }
        Entry::Vacant(vacant) => {
            let (displaced, _) = vacant.replace(Conversation::begin(is_reversed, &seen));
            if let (Some((key, mut conversation)), Some(waiting)) = (displaced, waiting) {
                let key = ConversationKey::restore(key).0;
                waiting.report(key, &mut conversation, EndReason::LackOfResources, seen.now);
            }
        }
        Entry::Full => {}
    }
}

/// The facts about a packet that a conversation counts.
fn seen(packet: &Packet<'_>) -> Seen {
    let (header, payload) = (packet.header(), packet.payload());
    let bytes = packet.frame_len() as u64;
    let octets = match (header, header.stated_len()) {
        // A length that is not stated is that of the frame.
        (IpRef::V4(_), 0) | (IpRef::V6(_), 40) => bytes.saturating_sub(packet.outer::<Link>().len() as u64),
        (_, stated) => stated as u64,
    };
    let (mut flags, mut icmp) = (0, 0);
    if !header.is_later_fragment() {
        match header.protocol() {
            protocol::TCP => flags = payload.get(13).copied().unwrap_or(0),
            protocol::ICMP | protocol::ICMPV6 => {
                icmp = payload.first_chunk().map_or(0, |kind| u16::from_be_bytes(*kind));
            }
            _ => {}
        }
    }
    let tos = header.dscp() << 2 | header.ecn();
    Seen { now: packet.arrived_at(), bytes, octets, flags, tos, icmp }
}

const COLUMNS: [&str; 10] = [
    "flow",
    "packets",
    "bytes",
    "packets back",
    "bytes back",
    "flags",
    "flags back",
    "duration (us)",
    "RTT to responder (us)",
    "RTT to initiator (us)",
];

/// A conversation's cells.
fn row(key: FlowKey, conversation: &Conversation) -> Vec<String> {
    let Conversation { there, back, responder_rtt, initiator_rtt, .. } = conversation;
    let numbers = [there.packets, there.bytes, back.packets, back.bytes].map(|number| number.to_string());
    let times = [conversation.last() - there.first.min(conversation.last()), *responder_rtt, *initiator_rtt];
    let mut row = vec![conversation.flow(key).to_string()];
    row.extend(numbers);
    row.extend([letters(there.flags), letters(back.flags)]);
    row.extend(times.map(|time| (time / 1_000).to_string()));
    row
}

/// Declares the report and the handler of the largest conversations, by the bytes of both directions.
fn report(
    table: &Flows<ConversationKey, Conversation>,
    top: usize,
    waiting: Option<Waiting>,
    worker: &Worker,
) {
    let size = |conversation: &Conversation| conversation.there.bytes + conversation.back.bytes;
    let (asked, table) = (table.clone(), table.clone());
    let handler = Handler::read("top", "The largest conversations, by bytes.").argument("[NUMBER]");
    worker.handler_in_steps(handler, move |argument| {
        let most = most(argument, top, "conversations")?;
        Ok(Largest::steps(&asked, most, size, |flows, _, _| {
            let rows = flows.iter().map(|(key, conversation)| row(*key, conversation).join("\t") + "\n");
            std::iter::once(COLUMNS.join("\t") + "\n").chain(rows).collect()
        }))
    });
    worker.report_in_steps(move || {
        let waiting = waiting.clone();
        Largest::steps(&table, top, size, move |flows, of, refused| {
            let mut counts = vec![("refused_packets".to_owned(), refused)];
            if let Some(waiting) = &waiting {
                counts.extend(["exported", "lost"].map(String::from).into_iter().zip(waiting.counts()));
            }
            Section {
                title: "largest conversations".into(),
                columns: COLUMNS.map(Into::into).into(),
                rows: flows.iter().map(|(key, conversation)| row(*key, conversation)).collect(),
                of: Some(of),
                counts: counts.into_iter().collect(),
                merge: SectionMerge::Largest { by: 2, rows: top },
            }
        })
    });
}
