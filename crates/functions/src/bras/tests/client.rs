//! A scripted subscriber, which discovers, negotiates, and sends and gets IP packets.

use std::net::Ipv4Addr;

use md5::{Digest, Md5};

use crate::router::tests::rig::{Out, Rig};

/// The number of the access port in the rig, and of the core port.
pub(super) const ACCESS: usize = 0;
pub(super) const CORE: usize = 1;
/// The concentrator's Ethernet address, and the gateway's.
pub(super) const AC: [u8; 6] = [2, 0, 0, 0, 0xac, 1];
pub(super) const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];

/// Settings of all tests, before their own.
pub(super) const COMMON: &str = "access = \"access\"\ncore = \"core\"\naddress = \"10.0.0.1\"\nmac = \"02:00:00:00:ac:01\"\n\
     gateway = \"02:00:00:00:00:fe\"\nname = \"test-ac\"\npool = [\"10.0.1.0/24\"]\nsessions = 32\n";

/// A concentrator with these settings.
pub(super) fn rig(more: &str) -> Rig {
    Rig::of("bras", &format!("{COMMON}{more}"))
}

/// The subscriber's own wishes, and what it was given.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) mac: [u8; 6],
    /// Bytes of VLAN tags, between addresses and EtherType.
    pub(super) tags: Vec<u8>,
    pub(super) service: Vec<u8>,
    pub(super) host_uniq: Vec<u8>,
    pub(super) max_payload: Option<u16>,
    pub(super) mru: u16,
    pub(super) user: &'static str,
    pub(super) password: &'static str,
    /// The number of the authentication protocol that it insists on.
    pub(super) insists: Option<u16>,
    pub(super) wants_v6: bool,
    pub(super) answers_echo: bool,
    pub(super) magic: u32,
    pub(super) id: u16,
    pub(super) cookie: Vec<u8>,
    pub(super) lcp: [bool; 2],
    pub(super) method: u16,
    pub(super) address: Ipv4Addr,
    pub(super) dns: [Ipv4Addr; 2],
    pub(super) interface_id: u64,
    /// By layer: whether our request was acknowledged, and theirs.
    pub(super) ipcp: [bool; 2],
    pub(super) ipv6cp: [bool; 2],
    pub(super) rejected: Vec<u8>,
    /// The verdict about its password.
    pub(super) is_in: Option<bool>,
    pub(super) is_closed: bool,
    /// The error tag of a PADS.
    pub(super) refusal: Option<(u16, Vec<u8>)>,
    /// IP packets that it got, from the IP header on.
    pub(super) got: Vec<Vec<u8>>,
    /// The payload sizes that discovery told.
    pub(super) told_payload: Option<u16>,
    /// Every PPP packet that it got: protocol and bytes.
    pub(super) heard: Vec<(u16, Vec<u8>)>,
}

/// A tag or an option with its head.
fn tag(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_be_bytes().to_vec();
    bytes.extend((value.len() as u16).to_be_bytes());
    bytes.extend(value);
    bytes
}
pub(super) fn option(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind, 2 + value.len() as u8], value].concat()
}
pub(super) fn control(code: u8, id: u8, data: &[u8]) -> Vec<u8> {
    let [high, low] = (4 + data.len() as u16).to_be_bytes();
    [&[code, id, high, low], data].concat()
}
fn options(data: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut rest = data;
    let mut all = Vec::new();
    while let [kind, len, ..] = rest {
        all.push((*kind, rest[2..usize::from(*len)].to_vec()));
        rest = &rest[usize::from(*len)..];
    }
    all
}

impl Client {
    pub(super) fn new(number: u8) -> Self {
        Self {
            mac: [2, 0, 0, 0, 1, number],
            tags: Vec::new(),
            service: Vec::new(),
            host_uniq: vec![0xaa, number],
            max_payload: None,
            mru: 1_492,
            user: "alice",
            password: "open-sesame",
            insists: None,
            wants_v6: false,
            answers_echo: true,
            magic: 0x1234_5600 + u32::from(number),
            id: 0,
            cookie: Vec::new(),
            lcp: [false; 2],
            method: 0,
            address: Ipv4Addr::UNSPECIFIED,
            dns: [Ipv4Addr::UNSPECIFIED; 2],
            interface_id: 0,
            ipcp: [false; 2],
            ipv6cp: [false; 2],
            rejected: Vec::new(),
            is_in: None,
            is_closed: false,
            refusal: None,
            got: Vec::new(),
            told_payload: None,
            heard: Vec::new(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.ipcp == [true; 2] && !self.is_closed
    }
    pub(super) fn is_open_v6(&self) -> bool {
        self.ipv6cp == [true; 2] && !self.is_closed
    }

    fn link(&self, to: [u8; 6], kind: u16) -> Vec<u8> {
        [&to[..], &self.mac, &self.tags, &kind.to_be_bytes()].concat()
    }

    /// A discovery packet with these tags.
    pub(super) fn discovery(&self, to: [u8; 6], code: u8, id: u16, tags: &[u8]) -> Vec<u8> {
        let [a, b] = id.to_be_bytes();
        let [c, d] = (tags.len() as u16).to_be_bytes();
        [&self.link(to, 0x8863)[..], &[0x11, code, a, b, c, d], tags].concat()
    }

    fn own_tags(&self) -> Vec<u8> {
        let mut tags = tag(0x0101, &self.service);
        if !self.host_uniq.is_empty() {
            tags.extend(tag(0x0103, &self.host_uniq));
        }
        if let Some(most) = self.max_payload {
            tags.extend(tag(0x0120, &most.to_be_bytes()));
        }
        tags
    }

    pub(super) fn padi(&self) -> Vec<u8> {
        self.discovery([0xff; 6], 0x09, 0, &self.own_tags())
    }
    pub(super) fn padr(&self) -> Vec<u8> {
        let tags = [self.own_tags(), tag(0x0104, &self.cookie)].concat();
        self.discovery(AC, 0x19, 0, &tags)
    }
    pub(super) fn padt(&self) -> Vec<u8> {
        self.discovery(AC, 0xa7, self.id, &[])
    }

    /// A session packet.
    pub(super) fn session(&self, protocol: u16, payload: &[u8]) -> Vec<u8> {
        let [a, b] = self.id.to_be_bytes();
        let [c, d] = (2 + payload.len() as u16).to_be_bytes();
        let mut frame =
            [&self.link(AC, 0x8864)[..], &[0x11, 0, a, b, c, d], &protocol.to_be_bytes(), payload].concat();
        // Ethernet pads.
        frame.resize(frame.len().max(60), 0);
        frame
    }

    /// An IP packet of a frame that a builder made, in the session.
    pub(super) fn ip(&self, frame: &[u8]) -> Vec<u8> {
        let protocol = if frame[12..14] == [8, 0] { 0x21 } else { 0x57 };
        self.session(protocol, &frame[14..])
    }

    pub(super) fn lcp_request(&self) -> Vec<u8> {
        let mut wishes = Vec::new();
        for (kind, value) in
            [(1, self.mru.to_be_bytes().to_vec()), (5, self.magic.to_be_bytes().to_vec()), (7, vec![])]
        {
            if !self.rejected.contains(&kind) {
                wishes.extend(option(kind, &value));
            }
        }
        self.session(0xc021, &control(1, 1, &wishes))
    }
    fn ipcp_request(&self) -> Vec<u8> {
        let mut wishes = Vec::new();
        for (kind, value) in [(3, self.address), (129, self.dns[0]), (131, self.dns[1])] {
            if !self.rejected.contains(&kind) {
                wishes.extend(option(kind, &value.octets()));
            }
        }
        self.session(0x8021, &control(1, 1, &wishes))
    }
    fn ipv6cp_request(&self) -> Vec<u8> {
        self.session(0x8057, &control(1, 1, &option(1, &self.interface_id.to_be_bytes())))
    }

    /// Reacts to a frame of the concentrator, as a subscriber does.
    pub(super) fn hear(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let at = 12 + self.tags.len();
        if frame[..6] != self.mac || frame[6..12] != AC || frame[12..at] != self.tags {
            return Vec::new();
        }
        assert_eq!(frame[at + 2], 0x11);
        let kind = u16::from_be_bytes([frame[at], frame[at + 1]]);
        let code = frame[at + 3];
        let id = u16::from_be_bytes([frame[at + 4], frame[at + 5]]);
        let len = usize::from(u16::from_be_bytes([frame[at + 6], frame[at + 7]]));
        let payload = &frame[at + 8..at + 8 + len];
        if kind == 0x8863 {
            return self.hear_discovery(code, id, payload);
        }
        assert_eq!((kind, code), (0x8864, 0));
        if id != self.id {
            return Vec::new();
        }
        let (protocol, body) = (u16::from_be_bytes([payload[0], payload[1]]), &payload[2..]);
        self.heard.push((protocol, body.to_vec()));
        match protocol {
            0xc021 => self.hear_lcp(body),
            0xc023 => self.hear_verdict(body[0] == 2),
            0xc223 => self.hear_chap(body),
            0x8021 => self.hear_ipcp(body),
            0x8057 => self.hear_ipv6cp(body),
            0x21 | 0x57 => {
                self.got.push(body.to_vec());
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn hear_discovery(&mut self, code: u8, id: u16, tags: &[u8]) -> Vec<Vec<u8>> {
        let mut rest = tags;
        let mut host_uniq = Vec::new();
        while let [a, b, c, d, ..] = rest {
            let (kind, len) = (u16::from_be_bytes([*a, *b]), usize::from(u16::from_be_bytes([*c, *d])));
            let value = &rest[4..4 + len];
            match kind {
                0x0103 => host_uniq = value.to_vec(),
                0x0104 => self.cookie = value.to_vec(),
                0x0120 => self.told_payload = Some(u16::from_be_bytes([value[0], value[1]])),
                0x0201 | 0x0202 => self.refusal = Some((kind, value.to_vec())),
                _ => {}
            }
            rest = &rest[4 + len..];
        }
        match code {
            0x07 => {
                assert_eq!(host_uniq, self.host_uniq);
                vec![self.padr()]
            }
            0x65 if id != 0 => {
                self.id = id;
                vec![self.lcp_request()]
            }
            0xa7 if id == self.id => {
                self.is_closed = true;
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn hear_lcp(&mut self, body: &[u8]) -> Vec<Vec<u8>> {
        let (code, id, len) = (body[0], body[1], usize::from(u16::from_be_bytes([body[2], body[3]])));
        let data = &body[4..len];
        match code {
            1 => {
                let method = options(data).into_iter().find(|(kind, _)| *kind == 3);
                self.method =
                    method.as_ref().map_or(0, |(_, value)| u16::from_be_bytes([value[0], value[1]]));
                if let Some(insists) =
                    self.insists.filter(|insists| *insists != self.method && self.method != 0)
                {
                    let mut value = insists.to_be_bytes().to_vec();
                    if insists == 0xc223 {
                        value.push(5);
                    }
                    return vec![self.session(0xc021, &control(3, id, &option(3, &value)))];
                }
                self.lcp[1] = true;
                let mut answers = vec![self.session(0xc021, &control(2, id, data))];
                answers.extend(self.prove());
                answers
            }
            2 => {
                self.lcp[0] = true;
                self.prove()
            }
            3 => {
                for (kind, value) in options(data) {
                    match kind {
                        1 => self.mru = u16::from_be_bytes([value[0], value[1]]),
                        5 => self.magic = u32::from_be_bytes(value.try_into().unwrap()),
                        other => panic!("a Nak of option {other}"),
                    }
                }
                vec![self.lcp_request()]
            }
            4 => {
                self.rejected.extend(options(data).iter().map(|(kind, _)| *kind));
                vec![self.lcp_request()]
            }
            5 => vec![self.session(0xc021, &control(6, id, b""))],
            9 if self.answers_echo => {
                vec![self.session(0xc021, &control(10, id, &self.magic.to_be_bytes()))]
            }
            _ => Vec::new(),
        }
    }

    /// Shows the password, or begins to ask for addresses where none is wanted.
    fn prove(&mut self) -> Vec<Vec<u8>> {
        match (self.lcp, self.method) {
            ([true, true], 0xc023) => {
                let proof = [
                    &[self.user.len() as u8],
                    self.user.as_bytes(),
                    &[self.password.len() as u8],
                    self.password.as_bytes(),
                ]
                .concat();
                vec![self.session(0xc023, &control(1, 9, &proof))]
            }
            ([true, true], 0) => self.begin_network(),
            _ => Vec::new(),
        }
    }

    fn begin_network(&mut self) -> Vec<Vec<u8>> {
        self.rejected.clear();
        let mut requests = vec![self.ipcp_request()];
        if self.wants_v6 {
            requests.push(self.ipv6cp_request());
        }
        requests
    }

    fn hear_verdict(&mut self, is_in: bool) -> Vec<Vec<u8>> {
        let is_new = self.is_in.is_none();
        self.is_in = Some(is_in);
        if is_in && is_new { self.begin_network() } else { Vec::new() }
    }

    fn hear_chap(&mut self, body: &[u8]) -> Vec<Vec<u8>> {
        if body[0] != 1 {
            return self.hear_verdict(body[0] == 3);
        }
        let challenge = &body[5..5 + usize::from(body[4])];
        let sum =
            Md5::new().chain_update([body[1]]).chain_update(self.password).chain_update(challenge).finalize();
        let response = [&[16], &sum[..], self.user.as_bytes()].concat();
        vec![self.session(0xc223, &control(2, body[1], &response))]
    }

    fn hear_ipcp(&mut self, body: &[u8]) -> Vec<Vec<u8>> {
        let data = &body[4..usize::from(u16::from_be_bytes([body[2], body[3]]))];
        match body[0] {
            1 => {
                self.ipcp[1] = true;
                vec![self.session(0x8021, &control(2, body[1], data))]
            }
            2 => {
                self.ipcp[0] = true;
                Vec::new()
            }
            3 => {
                for (kind, value) in options(data) {
                    let value: [u8; 4] = value.try_into().unwrap();
                    match kind {
                        3 => self.address = value.into(),
                        129 => self.dns[0] = value.into(),
                        131 => self.dns[1] = value.into(),
                        other => panic!("a Nak of option {other}"),
                    }
                }
                vec![self.ipcp_request()]
            }
            4 => {
                self.rejected.extend(options(data).iter().map(|(kind, _)| *kind));
                vec![self.ipcp_request()]
            }
            _ => Vec::new(),
        }
    }

    fn hear_ipv6cp(&mut self, body: &[u8]) -> Vec<Vec<u8>> {
        let data = &body[4..usize::from(u16::from_be_bytes([body[2], body[3]]))];
        match body[0] {
            1 => {
                self.ipv6cp[1] = true;
                vec![self.session(0x8057, &control(2, body[1], data))]
            }
            2 => {
                self.ipv6cp[0] = true;
                Vec::new()
            }
            3 => {
                self.interface_id = u64::from_be_bytes(data[2..10].try_into().unwrap());
                vec![self.ipv6cp_request()]
            }
            _ => Vec::new(),
        }
    }

    /// Sends frames and reacts to answers until there are none; frames that went to the core.
    pub(super) fn talk(&mut self, rig: &mut Rig, first: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let (mut pending, mut core) = (first, Vec::new());
        for _ in 0..60 {
            if pending.is_empty() {
                return core;
            }
            let out = rig.send(ACCESS, std::mem::take(&mut pending));
            pending = self.take(out, &mut core);
        }
        panic!("they talk for ever");
    }

    /// Reacts to what left.
    fn take(&mut self, out: Out, core: &mut Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut pending = Vec::new();
        for (port, frame) in out {
            if port == CORE { core.push(frame) } else { pending.extend(self.hear(&frame)) }
        }
        pending
    }

    /// Discovers and negotiates, as far as the concentrator goes along.
    pub(super) fn dial(&mut self, rig: &mut Rig) {
        let padi = self.padi();
        self.talk(rig, vec![padi]);
    }

    /// Lets time pass (ms), and answers what is asked meanwhile; frames that went to the core.
    pub(super) fn wait(&mut self, rig: &mut Rig, ms: u64) -> Vec<Vec<u8>> {
        let mut core = Vec::new();
        for _ in 0..ms.div_ceil(100) {
            let out = rig.wait(100);
            let pending = self.take(out, &mut core);
            core.extend(self.talk(rig, pending));
        }
        core
    }

    /// Sends a frame in the session; what went to the core.
    pub(super) fn push(&mut self, rig: &mut Rig, frame: Vec<u8>) -> Vec<Vec<u8>> {
        self.talk(rig, vec![frame])
    }
}
