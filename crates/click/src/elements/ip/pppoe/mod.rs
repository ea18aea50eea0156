//! PPP over Ethernet: an access concentrator's discovery, the session header, and the control protocols of PPP.

use crate::element::Class;

mod control;
mod discovery;
mod session;

pub(super) const CLASSES: &[&[Class]] = &[control::CLASSES, discovery::CLASSES, session::CLASSES];

/// EtherType of the discovery stage.
const DISCOVERY: u16 = 0x8863;
/// EtherType of the session stage.
const SESSION: u16 = 0x8864;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of Ethernet and PPPoE headers.
const HEADERS: usize = ETHERNET + 6;
/// Version and type of PPPoE.
const VERSION: u8 = 0x11;
