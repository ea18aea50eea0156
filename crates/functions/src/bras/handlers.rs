//! Handlers: the list of sessions, their end, and what the control task takes and brings.

use std::fmt::Write as _;
use std::net::IpAddr;

use netbricks_core::node::SectionMerge;
use netbricks_core::packet::{Ip, MacAddress};
use netbricks_core::{Handler, Section, State, Worker};

use super::access::Access;
use super::radius::grant;
use super::requests::Kind;
use super::session::{Order, Session, Verdict};
use super::sessions::Sessions;

/// The most sessions that one call lists.
const MOST_LISTED: usize = 10_000;
/// Sessions that a call without a number lists.
const LISTED: usize = 100;

/// Declares the handlers, the report and the explanation of traced packets.
pub(super) fn declare(sessions: &State<Sessions>, worker: &Worker) {
    declare_list(sessions, worker);
    declare_disconnect(sessions, worker);
    declare_task(sessions, worker);
    report(sessions, worker);
    explain(sessions, worker);
}

fn declare_list(sessions: &State<Sessions>, worker: &Worker) {
    let list = "So many sessions, one a line, from one on: number, state, user, address, prefix, Ethernet address, VLANs, SESSION_ID, packets and bytes from and to the subscriber.";
    let list = Handler::read("sessions", list).argument("[SESSIONS [FROM]]");
    let of = sessions.clone();
    worker.handler(list, move |argument| {
        let mut words = argument.split_whitespace();
        let mut number = |unset: usize, most: usize| match words.next() {
            None => Ok(unset),
            Some(word) => word
                .parse()
                .ok()
                .filter(|number| *number <= most)
                .ok_or_else(|| format!("expected a number, 0 to {most}, found `{word}`")),
        };
        let (count, from) = (number(LISTED, MOST_LISTED)?, number(0, usize::MAX)?);
        let sessions = of.borrow();
        let mut lines = format!("{} sessions\n", sessions.len());
        for session in sessions.iter().skip(from).take(count) {
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{}", shown(session));
        }
        Ok(lines)
    });
}

/// A session on a line of a list.
fn shown(session: &Session) -> String {
    let Session { number, name, line, id, from_subscriber, to_subscriber, .. } = session;
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    format!(
        "{number:x} {} {name} {} {} {} {line} {id} {} {} {} {}",
        session.phase(),
        or_none(session.address.map(|address| address.to_string())),
        or_none(session.prefix.map(|prefix| prefix.to_string())),
        MacAddress::new(line.mac),
        from_subscriber.packets,
        from_subscriber.bytes,
        to_subscriber.packets,
        to_subscriber.bytes,
    )
}

fn declare_disconnect(sessions: &State<Sessions>, worker: &Worker) {
    let disconnect =
        "Ends sessions: that of a number, those of a user or an Ethernet address, or all; answers how many.";
    let disconnect = Handler::write("disconnect", disconnect).argument("NUMBER | user NAME | mac MAC | all");
    let of = sessions.clone();
    worker.handler(disconnect, move |argument| {
        let words: Vec<&str> = argument.split_whitespace().collect();
        let mut sessions = of.borrow_mut();
        let chosen: Vec<u32> = match words.as_slice() {
            ["all"] => sessions.iter().map(|session| session.index).collect(),
            ["user", name] => {
                let is_its = |session: &&Session| session.name.to_string() == *name;
                sessions.iter().filter(is_its).map(|session| session.index).collect()
            }
            ["mac", mac] => {
                let mac: MacAddress =
                    mac.parse().map_err(|_| format!("expected an Ethernet address, found `{mac}`"))?;
                let is_its = |session: &&Session| MacAddress::new(session.line.mac) == mac;
                sessions.iter().filter(is_its).map(|session| session.index).collect()
            }
            [number] => numbered(number)?.and_then(|number| sessions.numbered(number)).into_iter().collect(),
            _ => return Err(format!("expected NUMBER, `user NAME`, `mac MAC` or `all`, found `{argument}`")),
        };
        for index in &chosen {
            order(&mut sessions, *index, Order::Disconnect);
        }
        Ok(format!("{} ended", chosen.len()))
    });
}

/// The number that a word shows in hexadecimal digits.
fn numbered(word: &str) -> Result<Option<u64>, String> {
    u64::from_str_radix(word, 16)
        .map(Some)
        .map_err(|_| format!("expected the number of a session in hexadecimal digits, found `{word}`"))
}

fn order(sessions: &mut Sessions, index: u32, order: Order) {
    if let Some(session) = sessions.get_mut(index) {
        // An order to end stays.
        if session.order != Some(Order::Disconnect) {
            session.order = Some(order);
        }
        sessions.call_on(index);
    }
}

fn declare_task(sessions: &State<Sessions>, worker: &Worker) {
    let take = "For the task that asks RADIUS servers: takes the requests that wait, one a line: `access` or `accounting`, the session, the token of its answer, and the packet in hexadecimal digits. `access` takes only those.";
    let of = sessions.clone();
    let take = Handler::write("take-requests", take).argument("[access]");
    worker.handler(take, move |argument| {
        let only = match argument.trim() {
            "" => None,
            "access" => Some(Kind::Access),
            other => return Err(format!("expected `access` or nothing, found `{other}`")),
        };
        Ok(of.borrow_mut().shared.requests.take(only))
    });
    let answer = "For the task that asks RADIUS servers: takes their answers, one a line, and counts reports that no server took.";
    let answer = Handler::write("answer", answer).argument(
        "NUMBER TOKEN accept [address A] [prefix P] [framed-prefix P] [odd-prefix BITS] [class HEX] [dns A] [session-timeout S] [idle-timeout S] [interim S] | NUMBER TOKEN reject | NUMBER TOKEN unanswered | lost NUMBER",
    );
    let of = sessions.clone();
    worker.handler(answer, move |argument| {
        let mut orders = Vec::new();
        for (number, line) in (1..).zip(argument.lines()) {
            let answer = read_answer(line).map_err(|problem| format!("line {number}: {problem}"))?;
            orders.push(answer);
        }
        let mut sessions = of.borrow_mut();
        let mut known = 0;
        for (number, answer) in orders {
            let Some((token, verdict)) = answer else {
                if sessions.is_own(number) {
                    sessions.shared.counts.lost_reports.add(1);
                }
                continue;
            };
            // The session may be gone, be another worker's, or have asked again since.
            let waits = |index: &u32| sessions.get(*index).is_some_and(|session| session.asked == token);
            if let Some(index) = sessions.numbered(number).filter(waits) {
                known += 1;
                order(&mut sessions, index, Order::Answer { token, verdict });
            }
        }
        Ok(format!("{known} sessions answered"))
    });
}

/// A session's number, and the token and verdict; neither for a report that was lost.
fn read_answer(line: &str) -> Result<(u64, Option<(u64, Verdict)>), String> {
    let mut words = line.split_whitespace();
    if let Some(number) = line.strip_prefix("lost ") {
        return Ok((numbered(number)?.unwrap_or(0), None));
    }
    let number = numbered(words.next().unwrap_or_default())?.unwrap_or(0);
    let word = words.next().unwrap_or("nothing");
    let token = u64::from_str_radix(word, 16)
        .ok()
        .filter(|token| *token != 0)
        .ok_or_else(|| format!("expected the token of `take-requests`, found `{word}`"))?;
    let verdict = match words.next() {
        Some("accept") => Verdict::Accept(grant(&mut words)?),
        Some("reject") => Verdict::Reject,
        Some("unanswered") => Verdict::Unanswered,
        other => {
            let found = other.unwrap_or("nothing");
            return Err(format!("expected `accept`, `reject` or `unanswered`, found `{found}`"));
        }
    };
    Ok((number, Some((token, verdict))))
}

fn report(sessions: &State<Sessions>, worker: &Worker) {
    let of = sessions.clone();
    worker.report(move || {
        let sessions = of.borrow();
        let mut by_phase = std::collections::BTreeMap::new();
        for session in sessions.iter() {
            *by_phase.entry(session.phase()).or_insert(0_u64) += 1;
        }
        let rows = by_phase.into_iter().map(|(phase, count)| vec![phase.to_owned(), count.to_string()]);
        let counts = sessions.shared.counts.all().into_iter();
        let waiting = ("waiting-requests", sessions.shared.requests.len() as u64);
        Section {
            title: "sessions".into(),
            columns: ["state", "sessions"].map(Into::into).into(),
            rows: rows.collect(),
            counts: counts.chain([waiting]).map(|(name, count)| (name.replace('-', "_"), count)).collect(),
            merge: SectionMerge::Sum,
            ..Section::default()
        }
    });
}

/// Declares the sentence of a trace about the packet's session.
fn explain(sessions: &State<Sessions>, worker: &Worker) {
    let of = sessions.clone();
    worker.explain(move |frame, why| {
        let sessions = of.borrow();
        let session = match Access::read_frame(frame, 0) {
            Ok(access) if !access.is_session => {
                return write!(why, "PPPoE discovery, code {:#04x}", access.code);
            }
            Ok(access) => sessions.find(&access.line, access.id),
            Err(_) => match Ip::in_frame(frame).map(|(ip, _)| ip.destination()) {
                Some(IpAddr::V4(to)) => sessions.shared.addresses.of_v4(to),
                Some(IpAddr::V6(to)) => sessions.shared.addresses.of_v6(to),
                None => return Ok(()),
            },
        };
        match session.and_then(|index| sessions.get(index)) {
            Some(session) => {
                write!(why, "session {:x} of {}, {}", session.number, session.name, session.phase())
            }
            None => write!(why, "no session is known for it"),
        }
    });
}
