//! The control task of `router` that follows the kernel's routes by netlink, so that a routing daemon runs beside it.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use netbricks_core::control_task::News;
use netbricks_core::{ControlTask, HandlerCaller};
use netlink_packet_core::{
    NLM_F_APPEND, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::link::LinkFlags;
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::routes::{KernelTable, place_of, taken_over, without_dead_hops};

/// Groups of messages about routes, and about what takes routes along (`linux/rtnetlink.h`).
///
/// The kernel does not tell which routes of IPv4 go with a link or with their source address.
const GROUPS: [u32; 5] = [LINK, IPV4_ADDRESS, IPV4_ROUTE, IPV6_ADDRESS, IPV6_ROUTE];
const LINK: u32 = 1;
const IPV4_ADDRESS: u32 = 5;
const IPV4_ROUTE: u32 = 7;
const IPV6_ADDRESS: u32 = 9;
const IPV6_ROUTE: u32 = 11;
/// Bytes of the buffer for one datagram.
const BUFFER: usize = 1 << 17;
/// Bytes that the kernel keeps for the socket: a full table comes in bursts.
const KEPT: usize = 8 << 20;
/// Routes that one call of the handler changes.
const ROUTES_A_CALL: usize = 4_096;
/// Routes that one call lists.
const LISTED: usize = 10_000;
/// The time that one look at the socket waits.
const WAIT: Duration = Duration::from_millis(200);
/// The time after which it begins again, where the socket failed.
const AGAIN: Duration = Duration::from_secs(5);
/// The least time between an answer to a question for all routes, and the next question.
const BETWEEN: Duration = Duration::from_secs(1);
/// The least time likewise, in times that the answer took: a large table is not read all the time.
const TIMES: u32 = 10;

/// Follows a routing table of the kernel.
pub(super) struct KernelRoutes {
    table: u32,
    kernel: KernelTable,
    following: Option<Following>,
    /// Whether the routes that the router has are known.
    is_compared: bool,
    /// Routes that the router could not use when this was last told.
    unusable: usize,
    told: bool,
}

/// A socket that hears of changes.
struct Following {
    socket: Socket,
    buffer: Vec<u8>,
    /// The answer to a question for all routes that is under way.
    asks: Option<AddressFamily>,
    /// Whether the routes changed while they were told.
    interrupted: bool,
    pace: Pace,
}

/// When all routes are asked for again.
#[derive(Debug)]
struct Pace {
    /// Links by number, and whether each is up.
    links: BTreeMap<u32, bool>,
    /// Whether a link or an address went since the last question, which may have taken routes along.
    is_stale: bool,
    /// When the last question was asked, and when all of its answer was there.
    asked: Instant,
    answered: Instant,
}

impl KernelRoutes {
    pub(super) fn new(table: u32) -> Self {
        Self {
            table,
            kernel: KernelTable::default(),
            following: None,
            is_compared: false,
            unusable: 0,
            told: false,
        }
    }

    /// One round: hears, and writes what changed.
    fn round(&mut self, handlers: &mut dyn HandlerCaller) -> Result<(), String> {
        if !self.is_compared {
            self.compare(handlers)?;
            self.is_compared = true;
        }
        let mut following = match self.following.take() {
            Some(following) => following,
            None => {
                self.kernel.begin_again();
                Following::begin().map_err(|error| format!("the kernel's routes cannot be read: {error}"))?
            }
        };
        let heard = following.hear(&mut self.kernel, self.table, handlers);
        match heard {
            Ok(()) => {}
            Err(error) if is_overrun(&error) => {
                handlers.tell(
                    News::Warning,
                    "the kernel changed more routes than were heard in time: all are read again",
                );
                return Ok(());
            }
            Err(error) => return Err(format!("the kernel's routes cannot be read: {error}")),
        }
        self.go_on(following, handlers, Instant::now())
    }

    /// Writes what was heard, unless all routes are being told: then none counts as gone.
    ///
    /// Only then it asks again. So routes are written also where links go all the time.
    fn go_on(
        &mut self,
        mut following: Following,
        handlers: &mut dyn HandlerCaller,
        now: Instant,
    ) -> Result<(), String> {
        if following.asks.is_none() {
            self.write(handlers)?;
            following
                .ask_again(&mut self.kernel, now)
                .map_err(|error| format!("the kernel's routes cannot be asked for: {error}"))?;
        }
        self.following = Some(following);
        Ok(())
    }

    /// Takes note of the kernel's routes that the router has already, from a task before this one.
    fn compare(&mut self, handlers: &mut dyn HandlerCaller) -> Result<(), String> {
        let mut from = 0;
        loop {
            let answer = handlers.read("routes", &format!("{LISTED} {from} kernel"))?;
            let lines = answer.iter().flat_map(|answer| answer.lines()).skip(3);
            let mut count = 0;
            for line in lines {
                count += 1;
                let prefix = line.split(' ').next().and_then(|prefix| prefix.split_once('/'));
                let prefix = prefix.and_then(|(address, len)| {
                    Some((address.parse::<IpAddr>().ok()?, len.parse::<u8>().ok()?))
                });
                prefix.into_iter().for_each(|prefix| self.kernel.known(prefix));
            }
            if count < LISTED {
                return Ok(());
            }
            from += LISTED;
        }
    }

    fn write(&mut self, handlers: &mut dyn HandlerCaller) -> Result<(), String> {
        let mut unusable = Vec::new();
        while self.kernel.has_changes() && !handlers.is_ending() {
            let lines = self.kernel.take_changes(ROUTES_A_CALL);
            let answers = match handlers.write("kernel", &lines) {
                Ok(answers) => answers,
                Err(problem) => {
                    // What was not written is found out again, by a socket that begins.
                    self.is_compared = false;
                    self.kernel = KernelTable::default();
                    return Err(problem);
                }
            };
            unusable.extend(answers.iter().flat_map(|answer| answer.lines()).map(str::to_owned));
        }
        if !self.told {
            self.told = true;
            let told = format!("follows table {} of the kernel: {} routes", self.table, self.kernel.len());
            handlers.tell(News::Info, &told);
        }
        if let Some(first) = unusable.first()
            && unusable.len() != self.unusable
        {
            handlers.tell(
                News::Warning,
                &format!("{} routes of the kernel cannot be used: {first}", unusable.len()),
            );
        }
        self.unusable = unusable.len();
        Ok(())
    }
}

impl ControlTask for KernelRoutes {
    fn run(&mut self, handlers: &mut dyn HandlerCaller, _: Instant) -> Option<Duration> {
        match self.round(handlers) {
            Ok(()) => Some(Duration::ZERO),
            Err(_) if handlers.is_ending() => Some(Duration::ZERO),
            Err(problem) => {
                handlers.tell(News::Warning, &problem);
                Some(AGAIN)
            }
        }
    }
}

/// Whether messages were lost because they were not read in time.
fn is_overrun(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}

impl Following {
    /// Listens to changes, and asks for all routes.
    fn begin() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        // Without privilege, it is as large as the system allows.
        let _smaller = socket.set_rx_buf_sz(KEPT as i32);
        socket.bind_auto()?;
        GROUPS.iter().try_for_each(|group| socket.add_membership(*group))?;
        socket.set_non_blocking(true)?;
        let mut following = Self {
            socket,
            buffer: vec![0; BUFFER],
            asks: None,
            interrupted: false,
            pace: Pace::new(Instant::now()),
        };
        following.ask(AddressFamily::Inet)?;
        Ok(following)
    }

    /// Asks for all routes again, where a change may have taken some along, and not too often.
    fn ask_again(&mut self, kernel: &mut KernelTable, now: Instant) -> io::Result<()> {
        if self.asks.is_some() || !self.pace.may_ask(now) {
            return Ok(());
        }
        kernel.begin_again();
        self.pace.asked = Instant::now();
        self.ask(AddressFamily::Inet)
    }

    /// Asks for all routes of a version.
    fn ask(&mut self, family: AddressFamily) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut route = RouteMessage::default();
        route.header.address_family = family;
        let mut message =
            NetlinkMessage::new(header, NetlinkPayload::from(RouteNetlinkMessage::GetRoute(route)));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        self.asks = Some(family);
        self.interrupted = false;
        if family == AddressFamily::Inet {
            self.pace.is_stale = false;
        }
        Ok(())
    }

    /// Hears what there is, waiting a moment for it.
    fn hear(
        &mut self,
        kernel: &mut KernelTable,
        table: u32,
        handlers: &mut dyn HandlerCaller,
    ) -> io::Result<()> {
        let mut waiting = [rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::IN)];
        let timeout = rustix::event::Timespec::try_from(WAIT).ok();
        if rustix::event::poll(&mut waiting, timeout.as_ref())? == 0 {
            return Ok(());
        }
        while !handlers.is_ending() {
            let mut room = &mut self.buffer[..];
            let size = match self.socket.recv(&mut room, 0) {
                Ok(size) => size,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.take(size, kernel, table)?;
        }
        Ok(())
    }

    /// Takes up the messages of one datagram.
    fn take(&mut self, size: usize, kernel: &mut KernelTable, table: u32) -> io::Result<()> {
        let mut at = 0;
        while at < size {
            let bytes = self.buffer.get(at..size).unwrap_or_default();
            // A message of a later kernel that cannot be read is passed over by its length.
            let stated = bytes.first_chunk().map_or(0, |len| u32::from_ne_bytes(*len) as usize);
            if stated < 16 {
                break;
            }
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes);
            at += stated.next_multiple_of(4);
            let Ok(message) = message else { continue };
            self.interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
            let joins = message.header.flags & NLM_F_APPEND != 0;
            let replaces = message.header.flags & NLM_F_REPLACE != 0;
            match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(mut route)) => {
                    without_dead_hops(&mut route);
                    match taken_over(&route, table) {
                        Some(route) => kernel.add(route, joins),
                        // In its place there is one now that is not taken over.
                        None if replaces => {
                            place_of(&route, table).into_iter().for_each(|place| kernel.replaced(place));
                        }
                        None => {}
                    }
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelRoute(route)) => {
                    taken_over(&route, table).iter().for_each(|route| kernel.remove(route));
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                    let header = link.header;
                    // Of a new link, all flags count as changed.
                    let changed =
                        header.change_mask.contains(LinkFlags::Up) && header.change_mask.bits() != !0;
                    self.pace.link(header.index, header.flags.contains(LinkFlags::Up), changed);
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => {
                    self.pace.link_gone(link.header.index);
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelAddress(_)) => self.pace.is_stale = true,
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::Done(_) => self.answered(kernel)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The end of an answer: asks for the other version, or again where routes changed meanwhile.
    fn answered(&mut self, kernel: &mut KernelTable) -> io::Result<()> {
        if self.interrupted {
            kernel.begin_again();
            return self.ask(AddressFamily::Inet);
        }
        match self.asks.take() {
            Some(AddressFamily::Inet) => self.ask(AddressFamily::Inet6),
            _ => {
                kernel.all_told();
                self.pace.answered = Instant::now();
                Ok(())
            }
        }
    }
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { links: BTreeMap::new(), is_stale: false, asked: now, answered: now }
    }

    /// Takes note of a link. Only one that goes down takes routes along.
    ///
    /// Of one that was not heard of before, the message says whether it went down, by `changed`.
    fn link(&mut self, number: u32, is_up: bool, changed: bool) {
        let was_up = self.links.insert(number, is_up).unwrap_or(changed);
        self.is_stale |= was_up && !is_up;
    }

    /// Takes note of a link that went away.
    fn link_gone(&mut self, number: u32) {
        self.links.remove(&number);
        self.is_stale = true;
    }

    /// Whether all routes are asked for now, where none is under way.
    fn may_ask(&self, now: Instant) -> bool {
        let took = self.answered.saturating_duration_since(self.asked);
        let pause = took.saturating_mul(TIMES).max(BETWEEN);
        self.is_stale && now.saturating_duration_since(self.answered) >= pause
    }
}

impl std::fmt::Debug for Following {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Following").field("socket", &self.socket.as_fd()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::route::RouteAddress;
    use netlink_packet_route::route::{RouteAttribute, RouteProtocol, RouteType};

    use super::*;

    /// Keeps what is written.
    #[derive(Default)]
    struct Written(Vec<String>);

    impl HandlerCaller for Written {
        fn read(&mut self, _: &str, _: &str) -> Result<Vec<String>, String> {
            Ok(Vec::new())
        }
        fn write(&mut self, _: &str, argument: &str) -> Result<Vec<String>, String> {
            self.0.push(argument.to_owned());
            Ok(Vec::new())
        }
        fn tell(&mut self, _: News, _: &str) {}
        fn is_ending(&self) -> bool {
            false
        }
    }

    fn following(now: Instant) -> Following {
        Following {
            socket: Socket::new(NETLINK_ROUTE).unwrap(),
            buffer: vec![0; 4_096],
            asks: None,
            interrupted: false,
            pace: Pace::new(now),
        }
    }

    fn route(gateway: bool) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.destination_prefix_length = 8;
        message.header.table = 254;
        message.header.kind = RouteType::Unicast;
        message.header.protocol = RouteProtocol::Static;
        let destination = RouteAddress::Inet([10, 0, 0, 0].into());
        message.attributes.push(RouteAttribute::Destination(destination));
        message.attributes.push(RouteAttribute::Priority(20));
        match gateway {
            true => {
                message.attributes.push(RouteAttribute::Gateway(RouteAddress::Inet([192, 0, 2, 2].into())))
            }
            false => message.attributes.push(RouteAttribute::Oif(1)),
        }
        message
    }

    /// Puts a message about a new route where the next datagram is read.
    fn hear(following: &mut Following, kernel: &mut KernelTable, route: RouteMessage, flags: u16) {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        let payload = NetlinkPayload::from(RouteNetlinkMessage::NewRoute(route));
        let mut message = NetlinkMessage::new(header, payload);
        message.finalize();
        let size = message.buffer_len();
        message.serialize(&mut following.buffer[..size]);
        following.take(size, kernel, 254).unwrap();
    }

    #[test]
    fn routes_are_written_also_where_links_go_all_the_time() {
        let (now, mut handlers) = (Instant::now(), Written::default());
        let mut routes = KernelRoutes::new(254);
        let mut following = following(now);
        hear(&mut following, &mut routes.kernel, route(true), 0);
        following.pace.link_gone(1);
        routes.go_on(following, &mut handlers, now + BETWEEN).unwrap();
        assert_eq!(handlers.0, ["+ 10.0.0.0/8 via 192.0.2.2\n"]);
        let mut following = routes.following.take().unwrap();
        assert_eq!(following.asks, Some(AddressFamily::Inet), "it asks again behind that");
        // While all are told, none counts as gone.
        hear(&mut following, &mut routes.kernel, route(false), NLM_F_REPLACE);
        routes.go_on(following, &mut handlers, now + BETWEEN).unwrap();
        assert_eq!(handlers.0.len(), 1);
    }

    #[test]
    fn the_next_question_waits_ten_times_as_long_as_the_last_answer_took() {
        let (now, seconds) = (Instant::now(), Duration::from_secs);
        let mut pace = Pace::new(now);
        assert!(!pace.may_ask(now + seconds(100)), "nothing went");
        pace.link_gone(1);
        assert!(!pace.may_ask(now + BETWEEN / 2) && pace.may_ask(now + BETWEEN));
        pace.answered = now + seconds(3);
        assert!(!pace.may_ask(now + seconds(32)) && pace.may_ask(now + seconds(33)));
    }

    #[test]
    fn only_what_goes_takes_routes_along() {
        let mut pace = Pace::new(Instant::now());
        let mut goes = |change: &dyn Fn(&mut Pace)| {
            pace.is_stale = false;
            change(&mut pace);
            pace.is_stale
        };
        assert!(!goes(&|pace| pace.link(1, false, false)), "a new one");
        assert!(!goes(&|pace| pace.link(1, true, true)), "it comes up");
        assert!(!goes(&|pace| pace.link(1, true, false)), "another change of it");
        assert!(goes(&|pace| pace.link(1, false, true)), "it goes down");
        assert!(!goes(&|pace| pace.link(2, true, true)), "another comes up");
        assert!(goes(&|pace| pace.link(3, false, true)), "one that was up before goes down");
        assert!(goes(&|pace| pace.link_gone(2)), "one goes away");
    }

    #[test]
    fn a_route_is_gone_that_one_replaces_which_is_not_taken_over() {
        let mut following = following(Instant::now());
        let mut kernel = KernelTable::default();
        hear(&mut following, &mut kernel, route(true), 0);
        assert_eq!(kernel.take_changes(9), "+ 10.0.0.0/8 via 192.0.2.2\n");
        // One beside it is none in its place.
        hear(&mut following, &mut kernel, route(false), 0);
        let mut other = route(false);
        other.attributes[1] = RouteAttribute::Priority(30);
        hear(&mut following, &mut kernel, other, NLM_F_REPLACE);
        assert!(!kernel.has_changes());
        hear(&mut following, &mut kernel, route(false), NLM_F_REPLACE);
        assert_eq!((kernel.take_changes(9), kernel.len()), ("- 10.0.0.0/8\n".into(), 0));
    }
}
