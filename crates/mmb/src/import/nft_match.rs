//! Expressions of nftables about packets, as conditions.

use super::condition::{Conditions, Version, condition, interface, states};
use super::iptables_rule::protocol;
use super::nft_lexer::Token;
use super::nft_rule::{Parts, Reader};

/// The value of an expression, with its sign.
pub(super) struct Compared {
    /// `<`, `<=`, `>`, `>=`, or empty.
    pub(super) sign: &'static str,
    pub(super) is_negated: bool,
    /// Values of which one is meant; each as it stands.
    pub(super) values: Vec<String>,
    /// A set by name.
    pub(super) named: Option<String>,
}

impl Compared {
    /// The value as a line of mmb has it.
    fn text(&self, translate: impl Fn(&str) -> String) -> String {
        let values: Vec<String> = self.values.iter().map(|value| translate(value)).collect();
        match (&self.named, &values[..]) {
            (Some(name), _) => format!("@{name}"),
            (None, [one]) => one.clone(),
            (None, all) => format!("{{{}}}", all.join(", ")),
        }
    }
}

/// The field of mmb that an expression of two words is about.
pub(super) fn field(header: &str, name: &str) -> Option<&'static str> {
    Some(match (header, name) {
        ("ip", "saddr") => "ip-saddr",
        ("ip", "daddr") => "ip-daddr",
        ("ip", "ttl") => "ip-ttl",
        ("ip", "dscp") => "ip-dscp",
        ("ip", "ecn") => "ip-ecn",
        ("ip", "length") => "ip-len",
        ("ip", "id") => "ip-id",
        ("ip", "version") => "ip-ver",
        ("ip", "hdrlength") => "ip-ihl",
        ("ip", "protocol") => "ip-proto",
        ("ip6", "saddr") => "ip6-saddr",
        ("ip6", "daddr") => "ip6-daddr",
        ("ip6", "hoplimit") => "ip6-hop-limit",
        ("ip6", "nexthdr") => "ip6-next",
        ("ip6", "dscp") => "ip6-dscp",
        ("ip6", "ecn") => "ip6-ecn",
        ("ip6", "flowlabel") => "ip6-flow-label",
        ("ip6", "length") => "ip6-len",
        ("ip6", "version") => "ip6-ver",
        ("tcp", "sport") => "tcp-sport",
        ("tcp", "dport") => "tcp-dport",
        ("tcp", "sequence") => "tcp-seq-num",
        ("tcp", "ackseq") => "tcp-ack-num",
        ("tcp", "window") => "tcp-win",
        ("tcp", "urgptr") => "tcp-urg-ptr",
        ("tcp", "doff") => "tcp-offset",
        ("tcp", "flags") => "tcp-flags",
        ("udp", "sport") => "udp-sport",
        ("udp", "dport") => "udp-dport",
        ("udp", "length") => "udp-len",
        ("icmp", "type") => "icmp-type",
        ("icmp", "code") => "icmp-code",
        ("icmp", "id") => "icmp-id",
        ("icmp", "sequence") => "icmp-seq",
        ("icmpv6", "type") => "icmp6-type",
        ("icmpv6", "code") => "icmp6-code",
        ("icmpv6", "id") => "icmp6-id",
        ("icmpv6", "sequence") => "icmp6-seq",
        ("ether", "saddr") => "eth-saddr",
        ("ether", "daddr") => "eth-daddr",
        ("ether", "type") | ("meta", "protocol") => "net-proto",
        ("vlan", "id") => "vlan-id",
        ("vlan", "pcp") => "vlan-pcp",
        ("arp", "operation") => "arp-operation",
        _ => return None,
    })
}

/// The number that nftables has a name for, where mmb has another name or none.
fn value_of(field: &str, value: &str) -> String {
    let number = match (field, value) {
        ("icmp-type", name) => match name {
            "echo-reply" => 0,
            "destination-unreachable" => 3,
            "source-quench" => 4,
            "redirect" => 5,
            "echo-request" => 8,
            "router-advertisement" => 9,
            "router-solicitation" => 10,
            "time-exceeded" => 11,
            "parameter-problem" => 12,
            "timestamp-request" => 13,
            "timestamp-reply" => 14,
            "info-request" => 15,
            "info-reply" => 16,
            "address-mask-request" => 17,
            "address-mask-reply" => 18,
            _ => return value.to_owned(),
        },
        ("icmp6-type", name) => match name {
            "destination-unreachable" => 1,
            "packet-too-big" => 2,
            "time-exceeded" => 3,
            "parameter-problem" => 4,
            "echo-request" => 128,
            "echo-reply" => 129,
            "mld-listener-query" => 130,
            "mld-listener-report" => 131,
            "mld-listener-done" | "mld-listener-reduction" => 132,
            "nd-router-solicit" => 133,
            "nd-router-advert" => 134,
            "nd-neighbor-solicit" => 135,
            "nd-neighbor-advert" => 136,
            "nd-redirect" => 137,
            "router-renumbering" => 138,
            "mld2-listener-report" => 143,
            _ => return value.to_owned(),
        },
        ("ip-ecn" | "ip6-ecn", "not-ect") => 0,
        ("ip-ecn" | "ip6-ecn", "ect1") => 1,
        ("ip-ecn" | "ip6-ecn", "ect0") => 2,
        ("ip-ecn" | "ip6-ecn", "ce") => 3,
        ("net-proto", "8021q") => 0x8100,
        ("net-proto", "8021ad") => 0x88a8,
        ("arp-operation", "request") => 1,
        ("arp-operation", "reply") => 2,
        ("arp-operation", _) => return value.to_owned(),
        _ => return value.to_owned(),
    };
    number.to_string()
}

/// The bits of TCP's flags.
fn flag(name: &str) -> Result<u8, String> {
    Ok(match name {
        "fin" => 1,
        "syn" => 2,
        "rst" => 4,
        "psh" => 8,
        "ack" => 16,
        "urg" => 32,
        "ecn" => 64,
        "cwr" => 128,
        other => {
            let digits = other.strip_prefix("0x");
            let number = digits.map_or_else(|| other.parse(), |digits| u8::from_str_radix(digits, 16));
            number.map_err(|_| format!("`{other}` is no flag of TCP"))?
        }
    })
}

/// The states of connections, by name or by nftables' numbers.
pub(super) fn state(name: &str) -> Result<u8, String> {
    Ok(match name {
        "new" | "0x8" | "8" => states::NEW,
        "established" | "0x2" | "2" => states::ESTABLISHED,
        "related" | "0x4" | "4" => states::RELATED,
        "invalid" | "0x1" | "1" => states::INVALID,
        "untracked" | "0x40" | "64" => states::UNTRACKED,
        other => return Err(format!("mmb does not know the state `{other}` of connections")),
    })
}

impl Reader<'_> {
    /// Conditions of which one holds, for an expression and one of its values.
    pub(super) fn conditions(
        &self,
        header: &str,
        name: &str,
        compared: &Compared,
    ) -> Result<Vec<Conditions>, String> {
        let of = || Conditions::of(self.version);
        let not = if compared.is_negated { "! " } else { "" };
        match (header, name) {
            ("ct", "state") => self.states(compared),
            ("meta", "l4proto") | ("ip", "protocol") | ("ip6", "nexthdr") => {
                let version = match header {
                    "ip" => Version::V4,
                    "ip6" => Version::V6,
                    _ => Version::Ip,
                };
                let base = of().and(&Conditions::of(version)).ok_or("no packet has this version of IP")?;
                protocols(&base, compared)
            }
            ("meta", "nfproto") => {
                let version = |name: &String| match name.as_str() {
                    "ipv4" | "2" => Ok(Version::V4),
                    "ipv6" | "10" => Ok(Version::V6),
                    other => Err(format!("`{other}` is no family that mmb knows")),
                };
                if compared.is_negated || compared.named.is_some() {
                    return Err("a family that must not be has no translation".into());
                }
                let all: Result<Vec<Version>, String> = compared.values.iter().map(version).collect();
                Ok(all?.into_iter().filter_map(|version| of().and(&Conditions::of(version))).collect())
            }
            ("meta", "iifname" | "iif" | "oifname" | "oif") => {
                let field = if name.starts_with("iif") { "in" } else { "out" };
                if compared.named.is_some() {
                    return Err("sets of interfaces are not translated".into());
                }
                let all: Result<Vec<_>, String> =
                    compared.values.iter().map(|name| interface(field, name, compared.is_negated)).collect();
                if compared.is_negated {
                    let mut conditions = of();
                    conditions.matches.extend(all?);
                    return Ok(vec![conditions]);
                }
                Ok(all?.into_iter().filter_map(|one| of().with(one)).collect())
            }
            ("th", "sport" | "dport") => {
                let all = ["tcp", "udp"].map(|of| self.conditions(of, name, compared));
                let [tcp, udp] = all;
                Ok([tcp?, udp?].concat())
            }
            _ => {
                let Some(field) = field(header, name) else {
                    return Err(format!("`{header} {name}` has no translation"));
                };
                let sign = if compared.sign.is_empty() { "" } else { compared.sign };
                let value = compared.text(|value| value_of(field, value));
                let one = condition(&format!("{not}{field} {sign} {value}"))?;
                Ok(of().with(one).into_iter().collect())
            }
        }
    }

    fn states(&self, compared: &Compared) -> Result<Vec<Conditions>, String> {
        let mut bits = 0;
        for name in &compared.values {
            bits |= state(name)?;
        }
        let states = if compared.is_negated { states::ALL & !bits } else { bits };
        Ok(vec![Conditions { states, ..Conditions::of(self.version) }])
    }

    /// Flags of TCP, behind `tcp flags`.
    ///
    /// `syn`, `syn,ack`, `!= syn`, `== syn`, `syn / syn,ack`, `& (syn | ack) == syn`, in the forms of all versions.
    pub(super) fn flags(&self, parts: &mut Parts<'_>) -> Result<Vec<Conditions>, String> {
        let one = |text: String| -> Result<Vec<Conditions>, String> {
            Ok(Conditions::of(self.version).with(condition(&text)?).into_iter().collect())
        };
        let is_masked = parts.take("&");
        let mask = if is_masked { bits(parts)? } else { 0xff };
        let sign = ["==", "!="].into_iter().find(|sign| parts.take(sign));
        if !is_masked && parts.is("{") {
            return Err("sets of flags are not translated: write a rule for each".into());
        }
        let value = bits(parts)?;
        if parts.take("/") {
            let mask = bits(parts)?;
            let not = if sign == Some("!=") { "! " } else { "" };
            return one(format!("{not}tcp-flags x{value:02x}&x{mask:02x}"));
        }
        match sign {
            Some("!=") => one(format!("! tcp-flags x{value:02x}&x{mask:02x}")),
            Some(_) => one(format!("tcp-flags x{value:02x}&x{mask:02x}")),
            None if is_masked => Err("flags with a mask and no value".into()),
            None if value.count_ones() == 1 => one(format!("tcp-flags x{value:02x}&x{value:02x}")),
            // Any of them.
            None => one(format!("! tcp-flags x00&x{value:02x}")),
        }
    }
}

/// `syn`, `fin,syn`, `(fin | syn)` or `fin | syn`, as bits.
fn bits(parts: &mut Parts<'_>) -> Result<u8, String> {
    let is_open = parts.take("(");
    let mut bits = 0;
    loop {
        bits |= flag(&parts.word().ok_or("flags are missing")?)?;
        if !parts.take("|") && !parts.take(",") {
            break;
        }
    }
    if is_open && !parts.take(")") {
        return Err("a parenthesis is not closed".into());
    }
    Ok(bits)
}

fn protocols(base: &Conditions, compared: &Compared) -> Result<Vec<Conditions>, String> {
    if compared.named.is_some() || !compared.sign.is_empty() {
        return Err("protocols are compared with single values only".into());
    }
    let mut all = Vec::new();
    for name in &compared.values {
        all.extend(protocol(name)?);
    }
    if compared.is_negated {
        let mut conditions = base.clone();
        conditions.not_protocols = all;
        return Ok(vec![conditions]);
    }
    Ok(all.into_iter().map(|protocol| base.clone().with_protocol(protocol)).collect())
}

/// The words of the value of a token; a text in quotes is one.
pub(super) fn value_text(token: &Token) -> String {
    token.text.clone()
}
