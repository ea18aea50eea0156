//! Whole TCP conversations: handshake, a request, an answer with acknowledgments, teardown by the client.
//!
//! Then the next conversation follows in the same flow, from another port.

use netbricks_core::tables::prefetch;
use netbricks_packet::tcp::flags::{ACK, FIN, PSH, SYN};
use rand_xoshiro::rand_core::Rng;

use super::below;
use super::flow::Flow;
use super::payload::{self, HEAD, Payload};
use super::template::{Layout, Segment, write_segment};

/// The next step of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Syn,
    SynAck,
    Ack,
    Request,
    Answer,
    AnswerAck,
    Fin,
    FinAck,
    LastAck,
}

/// The state of a conversation. Sequence numbers start at random, as RFC 9293, section 3.4.1 requires.
#[derive(Clone, Copy, Debug, Default)]
struct Conversation {
    step: Step,
    client_start: u32,
    server_start: u32,
    /// The bytes that each side sends, and has sent.
    request: u32,
    requested: u32,
    answer: u32,
    answered: u32,
    /// Segments of the answer that are not acknowledged yet.
    unacknowledged: u32,
    /// The requested object, and the number of its bytes after an HTTP head.
    object: u32,
    body: u32,
}

pub(super) struct Conversations {
    all: Vec<Conversation>,
    payload: Payload,
}

/// Segments of the largest request and answer.
const REQUEST_SEGMENTS: usize = 2;
const ANSWER_SEGMENTS: usize = 12;

impl Conversations {
    pub(super) fn new(flows: usize, payload: Payload) -> Self {
        Self { all: vec![Conversation::default(); flows], payload }
    }

    /// Prefetches a conversation's state before it is needed.
    #[inline(always)]
    pub(super) fn prefetch(&self, place: usize) {
        prefetch(&raw const self.all[place]);
    }

    /// Writes the next segment of a flow's conversation; answers its length.
    ///
    /// A frame with data has at most `size` bytes.
    pub(super) fn write(
        &mut self,
        room: &mut [u8],
        place: usize,
        flow: &mut Flow,
        size: usize,
        random: &mut impl Rng,
    ) -> usize {
        let conversation = &mut self.all[place];
        let most = size.saturating_sub(Layout::of(flow.kind).payload).max(1);
        if conversation.step == Step::Syn {
            if flow.packets > 0 {
                flow.next_port();
            }
            *conversation = Conversation::begin(most, self.payload, random);
        }
        flow.packets += 1;
        let Conversation {
            client_start,
            server_start,
            requested,
            answered,
            request,
            answer,
            object,
            body,
            ..
        } = *conversation;
        // The sequence number of each side's next byte; a SYN counts as one byte.
        let client = client_start.wrapping_add(1).wrapping_add(requested);
        let server = server_start.wrapping_add(1).wrapping_add(answered);
        let from_client = |sequence, ack, flags| Segment { from_client: true, sequence, ack, flags };
        let from_server = |sequence, ack, flags| Segment { from_client: false, sequence, ack, flags };
        let (segment, data, next) = match conversation.step {
            Step::Syn => (from_client(client_start, 0, SYN), 0, Step::SynAck),
            Step::SynAck => (from_server(server_start, client, SYN | ACK), 0, Step::Ack),
            Step::Ack => (from_client(client, server, ACK), 0, Step::Request),
            Step::Request => {
                let data = (request - requested).min(most as u32);
                conversation.requested += data;
                let is_last = conversation.requested == request;
                let flags = if is_last { PSH | ACK } else { ACK };
                (from_client(client, server, flags), data, if is_last { Step::Answer } else { Step::Request })
            }
            Step::Answer => {
                let data = (answer - answered).min(most as u32);
                conversation.answered += data;
                conversation.unacknowledged += 1;
                let is_last = conversation.answered == answer;
                // Every second segment and the last one are acknowledged (RFC 9293, section 3.8.6.3).
                let acknowledged = is_last || conversation.unacknowledged == 2;
                let flags = if is_last { PSH | ACK } else { ACK };
                (
                    from_server(server, client, flags),
                    data,
                    if acknowledged { Step::AnswerAck } else { Step::Answer },
                )
            }
            Step::AnswerAck => {
                conversation.unacknowledged = 0;
                let next = if answered == answer { Step::Fin } else { Step::Answer };
                (from_client(client, server, ACK), 0, next)
            }
            Step::Fin => (from_client(client, server, FIN | ACK), 0, Step::FinAck),
            Step::FinAck => (from_server(server, client.wrapping_add(1), FIN | ACK), 0, Step::LastAck),
            Step::LastAck => (from_client(client.wrapping_add(1), server.wrapping_add(1), ACK), 0, Step::Syn),
        };
        conversation.step = next;
        let payload = self.payload;
        let offset = if segment.from_client { requested } else { answered };
        write_segment(room, flow, &segment, data as usize, |room| {
            if payload == Payload::Http {
                http(room, segment.from_client, offset as usize, object, body);
            } else {
                payload::fill(room, payload, u64::from(offset), random);
            }
        })
    }
}

impl Conversation {
    fn begin(most: usize, payload: Payload, random: &mut impl Rng) -> Self {
        let (client_start, server_start) = (random.next_u32(), random.next_u32());
        let object = random.next_u32() % 1_000_000;
        let body = below(random, ANSWER_SEGMENTS * most);
        let request = 1 + below(random, REQUEST_SEGMENTS * most);
        let mut head = [0; HEAD];
        let (request, answer) = if payload == Payload::Http {
            let request = payload::http_request(&mut head, u64::from(object));
            (request, payload::http_answer(&mut head, body as u64) + body)
        } else {
            (request, 1 + body)
        };
        Self {
            client_start,
            server_start,
            request: request as u32,
            answer: answer as u32,
            object,
            body: body as u32,
            ..Self::default()
        }
    }
}

/// The bytes of an HTTP request or answer from `offset` on.
fn http(room: &mut [u8], is_request: bool, offset: usize, object: u32, body: u32) {
    let mut head = [0; HEAD];
    let len = if is_request {
        payload::http_request(&mut head, u64::from(object))
    } else {
        payload::http_answer(&mut head, u64::from(body))
    };
    for (place, byte) in room.iter_mut().enumerate() {
        let at = offset + place;
        *byte = if at < len { head[at] } else { (at - len) as u8 };
    }
}
