//! A file of users: one on each line, with a password, and perhaps an address and a prefix.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use super::pool::{Prefix, Reserved, is_of_host};

/// The fault of an address that another machine has.
const NOT_FREE: &str = "`address`, `address_v6`, `gateway` or `dns` has";

/// The things that a subscriber gets after it has proven who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Grant {
    /// An address of its own; otherwise it has one of the pool.
    pub(super) address: Option<Ipv4Addr>,
    /// A prefix of its own; otherwise it has one of the pool.
    pub(super) prefix: Option<Prefix>,
    /// The prefix of its link (Framed-IPv6-Prefix), which holds where there is no other.
    pub(super) framed_prefix: Option<Prefix>,
    /// Prefixes of lengths that cannot be.
    pub(super) odd_prefixes: u8,
    /// The server's Class, which reports have, too.
    pub(super) class: Class,
    /// DNS servers, in place of the configured ones.
    pub(super) dns: [Option<Ipv4Addr>; 2],
    /// Seconds after which the session ends.
    pub(super) session_timeout: Option<u32>,
    /// Seconds without a packet from the subscriber after which the session ends.
    pub(super) idle_timeout: Option<u32>,
    /// Seconds between two reports of its traffic.
    pub(super) interim: Option<u32>,
}

/// The most bytes of a Class.
pub(super) const LONGEST_CLASS: usize = 96;

/// An attribute Class (RFC 2865, section 5.25), in a room of fixed size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Class {
    len: u8,
    bytes: [u8; LONGEST_CLASS],
}

impl Default for Class {
    fn default() -> Self {
        Self { len: 0, bytes: [0; LONGEST_CLASS] }
    }
}

impl fmt::Debug for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", self.bytes())
    }
}

impl Class {
    /// A class; `None` where it is too long.
    pub(super) fn new(class: &[u8]) -> Option<Self> {
        let mut bytes = [0; LONGEST_CLASS];
        bytes.get_mut(..class.len())?.copy_from_slice(class);
        Some(Self { len: class.len() as u8, bytes })
    }
    /// Its bytes; none where the server gave none.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A user of the file.
struct User {
    password: Box<[u8]>,
    grant: Grant,
}

/// The users of a file. What is printed of them holds no password.
#[derive(Default)]
pub(super) struct Users(BTreeMap<Box<[u8]>, User>);

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({})", self.0.len())
    }
}

/// A wrong line of the file: its number from 1, and the fault.
pub(super) type WrongLine = (usize, String);

impl Users {
    /// Reads the text of a file. `len` is the length that each delegated prefix has; `reserved` are others' addresses.
    ///
    /// # Errors
    /// Every wrong line. No message shows a password.
    pub(super) fn read(text: &str, len: u8, reserved: &Reserved) -> Result<Self, Vec<WrongLine>> {
        let (mut users, mut wrong) = (Self::default(), Vec::new());
        let (mut addresses, mut prefixes) = (BTreeMap::new(), BTreeMap::new());
        for (number, line) in (1..).zip(text.lines()) {
            let mut words = line.split_whitespace();
            let Some(name) = words.next().filter(|word| !word.starts_with('#')) else { continue };
            let user = match user(&mut words, len) {
                Ok(user) => user,
                Err(problem) => {
                    wrong.push((number, problem));
                    continue;
                }
            };
            let Grant { address, prefix, .. } = user.grant;
            if let Some(address) = address.filter(|address| !reserved.allows_v4(*address)) {
                let whose = if is_of_host(address) { NOT_FREE } else { "hosts cannot have" };
                wrong.push((number, format!("has the address {address}, which {whose}")));
            }
            if let Some(prefix) = prefix.filter(|prefix| !reserved.allows_v6(*prefix)) {
                let whose = if prefix.is_of_hosts() { NOT_FREE } else { "hosts cannot have" };
                wrong.push((number, format!("has the prefix {prefix}, which {whose}")));
            }
            if let Some(first) = address.and_then(|address| addresses.insert(address, number)) {
                wrong.push((number, format!("has the address of line {first}")));
            }
            if let Some(first) = prefix.and_then(|prefix| prefixes.insert(prefix.bits, number)) {
                wrong.push((number, format!("has the prefix of line {first}")));
            }
            if name.len() > super::session::LONGEST_NAME {
                let most = super::session::LONGEST_NAME;
                wrong.push((number, format!("its name has {} bytes: at most {most} fit", name.len())));
            } else if users.0.insert(name.as_bytes().into(), user).is_some() {
                wrong.push((number, format!("names `{name}` a second time")));
            }
        }
        if wrong.is_empty() { Ok(users) } else { Err(wrong) }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The password and the grant of a user.
    pub(super) fn get(&self, name: &[u8]) -> Option<(&[u8], Grant)> {
        self.0.get(name).map(|user| (&*user.password, user.grant))
    }
}

/// The rest of a line behind the name.
fn user<'l>(words: &mut impl Iterator<Item = &'l str>, len: u8) -> Result<User, String> {
    let password = words.next().ok_or("expected a password behind the name, found nothing")?;
    let mut grant = Grant::default();
    for word in words.take_while(|word| !word.starts_with('#')) {
        if let Ok(address) = word.parse::<Ipv4Addr>()
            && grant.address.is_none()
        {
            grant.address = Some(address);
        } else if let Ok(prefix) = word.parse::<Prefix>()
            && grant.prefix.is_none()
        {
            if prefix.len != len {
                return Err(format!("its prefix has {} bits: `prefix_length` is {len}", prefix.len));
            }
            grant.prefix = Some(prefix);
        } else {
            // The word may be a part of a password with blanks, so it is not shown.
            return Err("expected at most an IPv4 address and an IPv6 prefix behind the password; a password has no blanks".into());
        }
    }
    Ok(User { password: password.as_bytes().into(), grant })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_with_what_they_get() {
        let text = "# comment\n\nalice open-sesame 10.9.0.7 2001:db8:7::/56 # a line\nbob x\n";
        let users = Users::read(text, 56, &Reserved::default()).expect("all lines are right");
        assert_eq!(users.len(), 2);
        let (password, grant) = users.get(b"alice").expect("she is there");
        assert_eq!(password, b"open-sesame");
        assert_eq!(grant.address, Some([10, 9, 0, 7].into()));
        assert_eq!(grant.prefix.map(|prefix| prefix.to_string()), Some("2001:db8:7::/56".into()));
        assert_eq!(users.get(b"bob").map(|(_, grant)| grant), Some(Grant::default()));
        assert!(users.get(b"carol").is_none());
        assert!(!format!("{users:?}").contains("sesame"));
    }

    #[test]
    fn every_wrong_line_is_named_and_no_password_shown() {
        let text = "alice\nbob secret-1 secret-2\ncarol secret-3 10.0.0.1\ncarol secret-4 10.0.0.1\ndave secret-5 2001:db8::/48\n";
        let wrong = Users::read(text, 64, &Reserved::default()).expect_err("they are wrong");
        let lines: Vec<usize> = wrong.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 4, 4, 5], "{wrong:?}");
        let reserved = Reserved { v4: vec![[10, 0, 0, 1].into()], v6: vec!["2001:db8::1".parse().unwrap()] };
        let text =
            "a x 10.0.0.1\nb x 127.0.0.1\nc x 2001:db8::/64\nd x fe80::/64\ne x 10.0.0.2 2001:db8:1::/64\n";
        let of_others = Users::read(text, 64, &reserved).expect_err("they are wrong");
        let lines: Vec<usize> = of_others.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 4], "{of_others:?}");
        assert!(of_others[0].1.contains("`gateway`") && of_others[1].1.contains("hosts cannot have"));
        assert!(!format!("{wrong:?}").contains("secret"), "{wrong:?}");
    }
}
