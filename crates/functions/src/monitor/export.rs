//! Records on their way to a collector: swept out of the table, and kept until the control side takes them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use netbricks_core::packet::FlowKey;
use netbricks_core::tables::Cursor;
use netbricks_core::{Flows, Handler, TableKey, Worker};

use super::config::MonitorConfig;
use super::conversation::{Conversation, ConversationKey};
use super::ipfix::{self, EndReason};
use crate::count::Count;

/// How often a part of the table is looked at (ns).
const SWEEP: u64 = 20_000_000;
/// The slots of a part: some 0.1 ms, which packets wait.
const STEPS: usize = 64;
/// A connection that has ended is reported after so long a silence (ns).
const LINGER: u64 = 1_000_000_000;
/// The most conversations that one call of the handler takes.
const TAKEN: usize = 256;

/// The conversations that wait to be sent.
#[derive(Clone)]
pub(super) struct Waiting(Rc<Queue>);

struct Queue {
    records: RefCell<VecDeque<(FlowKey, Conversation, EndReason)>>,
    most: usize,
    exported: Count,
    lost: Count,
}

impl Waiting {
    pub(super) fn new(config: &MonitorConfig, worker: &Worker) -> Self {
        let most = if worker.is_control() { 0 } else { config.export_queue };
        let (exported, lost) = (Count::new("exported", worker), Count::new("lost", worker));
        let records = RefCell::new(VecDeque::with_capacity(most));
        Self(Rc::new(Queue { records, most, exported, lost }))
    }

    /// Reports a conversation. Nothing happens where it has no news.
    pub(super) fn report(&self, key: FlowKey, conversation: &mut Conversation, reason: EndReason, now: u64) {
        if !conversation.has_news() {
            return;
        }
        let mut records = self.0.records.borrow_mut();
        if records.len() < self.0.most {
            records.push_back((key, *conversation, reason));
        } else {
            self.0.lost.add(1);
        }
        conversation.report(now);
    }

    /// Conversations that went to the control side, and that found no room here.
    pub(super) fn counts(&self) -> [u64; 2] {
        [self.0.exported.here(), self.0.lost.here()]
    }

    /// Declares the handler by which the control side takes records.
    fn declare(&self, worker: &Worker) {
        let this = self.clone();
        let summary = "Takes records that wait, oldest first: how many were lost in all, then a line for each, \
                       its IP version and its bytes (IPFIX).";
        worker.handler(Handler::write("take_records", summary), move |_| {
            let mut records = this.0.records.borrow_mut();
            let count = records.len().min(TAKEN);
            let mut text = format!("{}\n", this.0.lost.here());
            for (key, conversation, reason) in records.drain(..count) {
                for record in ipfix::records(key, &conversation, reason) {
                    text += &ipfix::line(&record);
                    text.push('\n');
                }
            }
            this.0.exported.add(count as u64);
            Ok(text)
        });
    }
}

/// Declares the export of a table: conversations that were idle or active for long, or have ended.
pub(super) fn declare(
    conversations: &Flows<ConversationKey, Conversation>,
    waiting: &Waiting,
    config: &MonitorConfig,
    worker: &Worker,
) {
    waiting.declare(worker);
    let (idle, active) = (config.idle.nanoseconds(), config.active.nanoseconds());
    let (swept, to) = (conversations.clone(), waiting.clone());
    let mut cursor = Cursor::default();
    worker.invoke_every("sweep", SWEEP, move |event| {
        let now = event.now();
        swept.with(|table| {
            for _ in 0..STEPS {
                let more =
                    table.walk(&mut cursor, netbricks_core::tables::MAXIMUM_WORK, |key, conversation| {
                        let key = ConversationKey::restore(*key).0;
                        match due(conversation, now, idle, active) {
                            Some(EndReason::Active) => to.report(key, conversation, EndReason::Active, now),
                            Some(reason) => {
                                to.report(key, conversation, reason, now);
                                return false;
                            }
                            None => {}
                        }
                        true
                    });
                if !more {
                    cursor = Cursor::default();
                    break;
                }
            }
        });
    });
    let (flushed, to) = (conversations.clone(), waiting.clone());
    let flush = "Reports all conversations now, as far as there is room for them.";
    worker.handler(Handler::write("flush", flush), move |_| {
        flushed.with(|table| {
            table.retain(|key, conversation| {
                let now = conversation.last();
                to.report(ConversationKey::restore(*key).0, conversation, EndReason::Forced, now);
                true
            });
        });
        Ok("done".into())
    });
}

/// The reason to report a conversation now, if there is one.
pub(super) fn due(conversation: &Conversation, now: u64, idle: u64, active: u64) -> Option<EndReason> {
    let silent = now.saturating_sub(conversation.last());
    if conversation.has_ended() && silent >= LINGER.min(idle) {
        Some(EndReason::EndOfFlow)
    } else if silent >= idle {
        Some(EndReason::Idle)
    } else if now.saturating_sub(conversation.since) >= active {
        Some(EndReason::Active)
    } else {
        None
    }
}
