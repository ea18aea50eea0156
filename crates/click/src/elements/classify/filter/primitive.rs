//! Primitives of filters: one thing that is tested, such as `src tcp port > 1023`.

use super::super::program::expression::{Compare, Expression};
use super::super::program::view::{MAC, NETWORK, TRANSPORT};
use super::words::{ANY_TRANSPORT, DCCP, ICMP, TCP, TCP_OR_UDP, UDP, protocol_name};

/// A field of up to 32 bits, in a word of the IP header or of a transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// The transport protocol; 0 for the IP header.
    pub(crate) transport: i32,
    /// Bits of the header before it.
    pub(crate) offset: u16,
    /// Its bits.
    pub(crate) bits: u32,
}

impl Field {
    const fn of_ip(offset: u16, bits: u32) -> Self {
        Self { transport: 0, offset, bits }
    }
    pub(crate) const VERSION: Self = Self::of_ip(0, 4);
    pub(crate) const HEADER_LENGTH: Self = Self::of_ip(4, 4);
    pub(crate) const TOS: Self = Self::of_ip(8, 8);
    pub(crate) const DSCP: Self = Self::of_ip(8, 6);
    pub(crate) const LENGTH: Self = Self::of_ip(16, 16);
    pub(crate) const ID: Self = Self::of_ip(32, 16);
    pub(crate) const TTL: Self = Self::of_ip(64, 8);
    pub(crate) const TCP_WINDOW: Self = Self { transport: TCP, offset: 112, bits: 16 };
    pub(crate) const ICMP_TYPE: Self = Self { transport: ICMP, offset: 0, bits: 8 };

    fn name(self) -> String {
        match self {
            Self::LENGTH => "ip len".into(),
            Self::ID => "ip id".into(),
            Self::VERSION => "ip vers".into(),
            Self::HEADER_LENGTH => "ip hl".into(),
            Self::TOS => "ip tos".into(),
            Self::DSCP => "ip dscp".into(),
            Self::TTL => "ip ttl".into(),
            Self::TCP_WINDOW => "tcp win".into(),
            Self::ICMP_TYPE => "icmp type".into(),
            Self { transport: 0, .. } => "ip[...]".into(),
            Self { transport, .. } => format!("{}[...]", protocol_name(transport)),
        }
    }
    /// Ones for its bits.
    fn mask(self) -> u32 {
        u32::MAX >> 32_u32.saturating_sub(self.bits).min(31)
    }
}

/// A kind of thing that is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Host,
    Net,
    Protocol,
    Fragment,
    Unfragmented,
    Port,
    TcpOption,
    Ether,
    Ect,
    Ce,
    Field(Field),
}

impl Kind {
    /// Its name in messages.
    pub(crate) fn name(kind: Option<Self>) -> String {
        let name = match kind {
            None => "<none>",
            Some(Self::Host) => "ip host",
            Some(Self::Net) => "ip net",
            Some(Self::Protocol) => "proto",
            Some(Self::Fragment) => "ip frag",
            Some(Self::Unfragmented) => "ip unfrag",
            Some(Self::Port) => "port",
            Some(Self::TcpOption) => "tcp opt",
            Some(Self::Ether) => "ether host",
            Some(Self::Ect) => "ip ect",
            Some(Self::Ce) => "ip ce",
            Some(Self::Field(field)) => return field.name(),
        };
        name.into()
    }
}

/// Which of two addresses or ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
    Both,
    Either,
}

/// How a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    Above,
    Below,
}

/// A value as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    None,
    /// A number.
    Number,
    /// A value of a kind, by name or form.
    Of(Kind),
}

/// A mask as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mask {
    None,
    Number(u32),
    Address(u32),
    Ether([u8; 6]),
}

/// The header that was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Ip,
    Ether,
}

/// One thing that is tested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Primitive {
    pub(crate) kind: Option<Kind>,
    /// Whether its kind is known to be wrong; that was told.
    pub(crate) wrong: bool,
    pub(crate) data: Data,
    pub(crate) relation: Relation,
    pub(crate) negated: bool,
    pub(crate) side: Option<Side>,
    pub(crate) transport: Option<i32>,
    /// A number, or an address as one.
    pub(crate) value: u32,
    pub(crate) mask: u32,
    pub(crate) ether: [u8; 6],
    pub(crate) ether_mask: [u8; 6],
}

/// Messages on a primitive; a warning is no error.
pub(crate) trait Tell {
    fn error(&self, message: &str);
    fn warning(&self, message: &str);
}

/// The error was told.
pub(crate) struct Told;

impl Primitive {
    /// Nothing yet.
    pub(crate) const NONE: Self = Self {
        kind: None,
        wrong: false,
        data: Data::None,
        relation: Relation::Equal,
        negated: false,
        side: None,
        transport: None,
        value: 0,
        mask: 0,
        ether: [0; 6],
        ether_mask: [0xFF; 6],
    };

    pub(crate) fn set_kind(&mut self, kind: Kind, tell: &impl Tell) {
        if self.kind.is_some() {
            tell.error("type specified twice");
        }
        self.kind = Some(kind);
    }
    pub(crate) fn set_side(&mut self, side: Side, tell: &impl Tell) {
        if self.side.is_some() {
            tell.error("'src' or 'dst' specified twice");
        }
        self.side = Some(side);
    }
    pub(crate) fn set_transport(&mut self, transport: i32, tell: &impl Tell) {
        if self.transport.is_some_and(|before| before != transport) {
            tell.error("transport protocol specified twice");
        }
        self.transport = Some(transport);
    }

    fn described(&self) -> String {
        let side = match self.side {
            None => "",
            Some(Side::Source) => "src ",
            Some(Side::Destination) => "dst ",
            Some(Side::Either) => "src or dst ",
            Some(Side::Both) => "src and dst ",
        };
        format!("{side}{}", Kind::name(self.kind))
    }
    fn wrong(&self, tell: &impl Tell, problem: &str) -> Told {
        tell.error(&format!("'{}': {problem}", self.described()));
        Told
    }
    fn relation_sign(&self) -> &'static str {
        match (self.relation, self.negated) {
            (Relation::Equal, false) => "=",
            (Relation::Equal, true) => "!=",
            (Relation::Above, false) => ">",
            (Relation::Above, true) => "<=",
            (Relation::Below, false) => "<",
            (Relation::Below, true) => ">=",
        }
    }

    /// Works out what is left open, from the primitive before and the header, and checks that all fits.
    pub(crate) fn complete(
        &mut self,
        before: &Self,
        header: Option<Header>,
        mask: Mask,
        tell: &impl Tell,
    ) -> Result<(), Told> {
        if self.wrong {
            return Err(Told);
        }
        let given_side = self.side;
        if self.kind.is_none() {
            self.infer_kind(before, tell)?;
        }
        let of_ether = self.data == Data::Of(Kind::Ether);
        let header = header.unwrap_or(if of_ether { Header::Ether } else { Header::Ip });
        if header == Header::Ether && self.kind == Some(Kind::Host) {
            self.kind = Some(Kind::Ether);
        }
        self.check_kind(header, mask, tell)?;
        if matches!(self.kind, Some(Kind::Host | Kind::Port | Kind::Ether)) {
            self.side = self.side.or(Some(Side::Either));
        } else if given_side.is_some() {
            tell.warning(&format!("'{}': 'src' or 'dst' ignored", self.described()));
        }
        Ok(())
    }

    /// The kind that the value tells, or that the primitive before had.
    fn infer_kind(&mut self, before: &Self, tell: &impl Tell) -> Result<(), Told> {
        if self.data == Data::Number {
            match before.kind {
                Some(kind @ (Kind::Field(_) | Kind::Protocol | Kind::Port)) => self.data = Data::Of(kind),
                _ => {
                    tell.error("specify header field or 'port'");
                    return Err(Told);
                }
            }
        }
        match self.data {
            Data::Of(kind) => {
                self.kind = Some(kind);
                match kind {
                    Kind::Host | Kind::Net | Kind::TcpOption | Kind::Ether => {
                        self.side = self.side.or(before.side)
                    }
                    Kind::Port => {
                        self.side = self.side.or(before.side);
                        self.transport = self.transport.or(before.transport);
                    }
                    Kind::Field(field) if field.transport != 0 => {
                        self.transport = self.transport.or(Some(field.transport));
                    }
                    _ => (),
                }
            }
            _ if self.transport.is_some() => self.kind = Some(Kind::Protocol),
            _ => {
                tell.error("partial directive");
                return Err(Told);
            }
        }
        Ok(())
    }

    fn check_kind(&mut self, header: Header, mask: Mask, tell: &impl Tell) -> Result<(), Told> {
        let kind = self.kind.unwrap_or(Kind::Host);
        let is_ip = header == Header::Ip;
        match kind {
            Kind::Host | Kind::Net => return self.check_host(kind, is_ip, mask, tell),
            Kind::Ether => {
                if is_ip || self.data != Data::Of(Kind::Ether) {
                    return Err(self.wrong(tell, "address missing"));
                }
                if self.relation != Relation::Equal {
                    return Err(self.wrong(tell, "operator not supported"));
                }
                self.ether_mask = match mask {
                    Mask::None => [0xFF; 6],
                    Mask::Ether(mask) => mask,
                    _ => return Err(self.wrong(tell, "bad mask")),
                };
                return Ok(());
            }
            _ if !is_ip => return Err(self.wrong(tell, "ip only")),
            _ => (),
        }
        match kind {
            Kind::Protocol => self.check_protocol(mask, tell),
            Kind::Port => self.check_port(mask, tell),
            Kind::TcpOption => self.check_tcp_option(mask, tell),
            Kind::Ect => {
                match self.data {
                    Data::None => (self.value, self.negated) = (0, true),
                    Data::Number if matches!(mask, Mask::None | Mask::Number(_)) => (),
                    Data::Number => return Err(self.wrong(tell, "bad mask")),
                    Data::Of(_) => return Err(self.wrong(tell, "value missing")),
                }
                self.set_mask(0x3, mask, tell)?;
                self.kind = Some(Kind::Field(Field::TOS));
                Ok(())
            }
            Kind::Ce | Kind::Fragment | Kind::Unfragmented => {
                if self.data != Data::None || mask != Mask::None {
                    return Err(self.wrong(tell, "value not supported"));
                }
                match kind {
                    Kind::Ce => {
                        (self.mask, self.value) = (0x3, 0x3);
                        self.kind = Some(Kind::Field(Field::TOS));
                    }
                    Kind::Unfragmented => {
                        self.negated = true;
                        self.kind = Some(Kind::Fragment);
                    }
                    _ => (),
                }
                Ok(())
            }
            Kind::Field(field) => {
                if self.data != Data::Number && self.data != Data::Of(kind) {
                    return Err(self.wrong(tell, "value missing"));
                }
                if !matches!(mask, Mask::None | Mask::Number(_)) {
                    return Err(self.wrong(tell, "bad mask"));
                }
                self.set_mask(field.mask(), mask, tell)
            }
            Kind::Host | Kind::Net | Kind::Ether => Ok(()),
        }
    }

    fn check_host(&mut self, kind: Kind, is_ip: bool, mask: Mask, tell: &impl Tell) -> Result<(), Told> {
        if !is_ip || self.data != Data::Of(kind) {
            return Err(self.wrong(tell, "address missing"));
        }
        if self.relation != Relation::Equal {
            return Err(self.wrong(tell, "operator not supported"));
        }
        if kind == Kind::Host {
            self.mask = u32::MAX;
        }
        self.kind = Some(Kind::Host);
        match mask {
            Mask::None => (),
            Mask::Address(mask) => self.mask = mask,
            // Click reads the number's bytes as they lie in memory.
            Mask::Number(mask) => self.mask = mask.swap_bytes(),
            Mask::Ether(_) => return Err(self.wrong(tell, "bad mask")),
        }
        Ok(())
    }

    fn check_protocol(&mut self, mask: Mask, tell: &impl Tell) -> Result<(), Told> {
        let before = self.transport;
        match self.data {
            Data::Number | Data::Of(Kind::Protocol) => {
                if before.is_some_and(|before| before != self.value as i32) {
                    return Err(self.wrong(tell, "specified twice"));
                }
                self.data = Data::None;
            }
            Data::None if before.is_some() => self.value = before.unwrap_or(0) as u32,
            _ => {
                self.transport = None;
                return Err(self.wrong(tell, "value missing"));
            }
        }
        self.transport = None;
        let number = self.value as i32;
        if number >= TCP_OR_UDP {
            if self.relation != Relation::Equal || mask != Mask::None {
                tell.error(&format!("'{}': operator or mask not supported", protocol_name(number)));
                return Err(Told);
            }
            self.mask = 0xFF;
        } else if !matches!(mask, Mask::None | Mask::Number(_)) {
            return Err(self.wrong(tell, "bad mask"));
        } else {
            self.set_mask(0xFF, mask, tell)?;
        }
        if self.relation == Relation::Equal && self.mask == 0xFF && !self.negated {
            self.transport = Some(self.value as i32);
        }
        Ok(())
    }

    fn check_port(&mut self, mask: Mask, tell: &impl Tell) -> Result<(), Told> {
        if self.data == Data::Number {
            self.data = Data::Of(Kind::Port);
        }
        if self.data != Data::Of(Kind::Port) {
            return Err(self.wrong(tell, "value missing"));
        }
        match self.transport {
            None => self.transport = Some(TCP_OR_UDP),
            Some(TCP | UDP | TCP_OR_UDP | DCCP) => {
                if !matches!(mask, Mask::None | Mask::Number(_)) {
                    return Err(self.wrong(tell, "bad mask"));
                }
            }
            Some(other) => {
                tell.error(&format!("'port': bad protocol {other}"));
                return Err(Told);
            }
        }
        self.set_mask(0xFFFF, mask, tell)
    }

    fn check_tcp_option(&mut self, mask: Mask, tell: &impl Tell) -> Result<(), Told> {
        if self.data == Data::Number {
            self.data = Data::Of(Kind::TcpOption);
        }
        if self.data != Data::Of(Kind::TcpOption) {
            return Err(self.wrong(tell, "value missing"));
        }
        match self.transport {
            None => self.transport = Some(TCP),
            Some(TCP) => (),
            Some(other) => {
                tell.error(&format!("'tcp opt': bad protocol {other}"));
                return Err(Told);
            }
        }
        if self.relation != Relation::Equal || self.negated || mask != Mask::None {
            return Err(self.wrong(tell, "operator or mask not supported"));
        }
        if self.value > 255 {
            tell.error(&format!("'tcp opt': value {} out of range", self.value as i32));
            return Err(Told);
        }
        self.mask = self.value;
        Ok(())
    }

    /// Takes a mask of a field's bits. A comparison becomes one that asks whether the field is above a bound.
    fn set_mask(&mut self, full: u32, given: Mask, tell: &impl Tell) -> Result<(), Told> {
        let given = match given {
            Mask::None | Mask::Ether(_) => 0,
            Mask::Number(mask) => mask,
            Mask::Address(mask) => mask.swap_bytes(),
        };
        let mask = if given == 0 { full } else { given };
        if mask & full != mask {
            return Err(self.wrong(tell, &format!("mask out of range, bound 0x{full:X}")));
        }
        let below = self.relation == Relation::Below;
        if self.relation == Relation::Equal {
            if self.value > full {
                return Err(self.wrong(tell, &format!("out of range, bound {full}")));
            }
            self.mask = mask;
            return Ok(());
        }
        if below && (self.value == 0 || self.value > mask) || !below && self.value >= mask {
            let holds = if below && self.value > mask { !self.negated } else { self.negated };
            let (sign, value, answer) =
                (self.relation_sign(), self.value, if holds { "true" } else { "false" });
            tell.warning(&format!("relation '{sign} {value}' is always {answer} (range 0-{mask})"));
            (self.value, self.mask, self.negated, self.relation) = (0, 0, !holds, Relation::Equal);
            return Ok(());
        }
        if below {
            // Below a number is not above the one before.
            self.value -= 1;
            self.negated = !self.negated;
            self.relation = Relation::Above;
        }
        let missing = self.value & full & !mask;
        if missing != 0 {
            // Above a value whose bits the mask does not have: above the greatest that has the same bits before.
            let behind = u32::MAX.checked_shr(missing.leading_zeros() + 1).unwrap_or(0);
            self.value = (self.value | behind) & mask;
        }
        self.mask = mask;
        Ok(())
    }

    /// The condition on packets. `None` where it asks for nothing, as `transp` does.
    pub(crate) fn expression(&self) -> Option<Expression> {
        let mut parts = Vec::new();
        match self.transport {
            Some(TCP_OR_UDP) => parts.push(Expression::Any(vec![protocol(TCP, 0xFF), protocol(UDP, 0xFF)])),
            Some(number) if number < TCP_OR_UDP => parts.push(protocol(number, 0xFF)),
            _ => (),
        }
        let in_transport = match self.kind {
            Some(Kind::Port | Kind::TcpOption) => true,
            Some(Kind::Field(field)) => field.transport != 0,
            _ => false,
        };
        if in_transport {
            // Only a first fragment has a transport header.
            parts.push(Expression::word(NETWORK + 4, 0x1FFF, 0));
        }
        match self.kind {
            Some(Kind::Host) => parts.push(self.of_sides(|side| {
                let place = if side == Side::Source { NETWORK + 12 } else { NETWORK + 16 };
                Expression::word(place, self.mask, self.value)
            })),
            Some(Kind::Ether) => parts.push(self.of_sides(|side| self.ether_of(side))),
            Some(Kind::Protocol) if self.transport.is_none_or(|one| one < TCP_OR_UDP) => {
                parts.push(self.compared(NETWORK + 8, 16, self.negated));
            }
            Some(Kind::Fragment) => {
                let whole = Expression::word(NETWORK + 4, 0x3FFF, 0);
                parts.push(if self.negated { whole } else { whole.not_of_long() });
            }
            Some(Kind::Port) => {
                parts.push(self.of_sides(|side| {
                    self.compared(TRANSPORT, if side == Side::Source { 16 } else { 0 }, false)
                }))
            }
            Some(Kind::TcpOption) => {
                parts.push(Expression::word(TRANSPORT + 12, self.mask << 16, self.value << 16));
            }
            Some(Kind::Field(field)) => {
                let base = if field.transport == 0 { NETWORK } else { TRANSPORT };
                let place = base.wrapping_add(field.offset >> 3 & !3);
                let behind = 32_u32.saturating_sub(u32::from(field.offset & 0x1F) + field.bits);
                parts.push(self.compared(place, behind, self.negated));
            }
            _ => (),
        }
        (!parts.is_empty()).then_some(Expression::All(parts))
    }

    /// A condition on source, destination or both.
    fn of_sides(&self, one: impl Fn(Side) -> Expression) -> Expression {
        let side = self.side.unwrap_or(Side::Either);
        let mut parts = Vec::new();
        if side != Side::Destination {
            parts.push(one(Side::Source));
        }
        if side != Side::Source {
            parts.push(one(Side::Destination));
        }
        let both = if side == Side::Either { Expression::Any(parts) } else { Expression::All(parts) };
        if self.negated { both.not_of_long() } else { both }
    }

    /// The value's relation to a field of a word.
    fn compared(&self, place: u16, shift: u32, negated: bool) -> Expression {
        let plain = match self.relation {
            Relation::Equal => Expression::word(place, self.mask << shift, self.value << shift),
            _ => Expression::Compare(Compare {
                place,
                shift,
                mask: self.mask,
                bound: self.value & self.mask,
                above: true,
                short: false,
            }),
        };
        if negated { plain.not_of_long() } else { plain }
    }

    fn ether_of(&self, side: Side) -> Expression {
        // Two words: the first word of the MAC header's range has two bytes, the second four, and so on.
        let number = |bytes: &[u8]| bytes.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        let (value, mask) = (&self.ether, &self.ether_mask);
        let (first, second) = if side == Side::Source {
            let last = |bytes: &[u8; 6]| number(&bytes[4..]) << 16;
            (
                Expression::word(MAC + 8, number(&mask[..4]), number(&value[..4])),
                Expression::word(MAC + 12, last(mask), last(value)),
            )
        } else {
            (
                Expression::word(MAC, number(&mask[..2]), number(&value[..2])),
                Expression::word(MAC + 4, number(&mask[2..]), number(&value[2..])),
            )
        };
        Expression::All(vec![first, second])
    }
}

fn protocol(number: i32, mask: u32) -> Expression {
    Expression::word(NETWORK + 8, mask << 16, (number as u32 & mask) << 16)
}

/// The transport protocol of `tcp[...]` and the like; `None` names the IP header.
pub(crate) fn bracket_field(transport: Option<i32>, byte: u16, bytes: u32) -> Field {
    debug_assert!(transport.is_none_or(|one| one <= ANY_TRANSPORT + 1));
    Field { transport: transport.unwrap_or(0), offset: byte * 8, bits: bytes * 8 }
}
