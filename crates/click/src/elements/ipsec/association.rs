//! Security associations: keys, sequence numbers out, and the window of those that came in.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use aes::Aes128;
use aes::cipher::block_padding::NoPadding;
use aes::cipher::{BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit, KeyInit};
use hmac::{Hmac, Mac};
use netbricks_core::Random;
use netbricks_core::buffer::Packet;
use sha1::Sha1;

use crate::packet::Annotated;
use crate::router::At;

/// Bytes of a block of AES, and of an initialisation vector.
pub(super) const BLOCK: usize = 16;
/// Bytes of an integrity check value of HMAC-SHA-1-96.
pub(super) const ICV: usize = 12;
/// The most sequence numbers that a window knows.
pub(super) const WINDOW: u32 = 128;

/// Where a packet has the number of its association.
const REFERENCE: usize = 40;
/// Where a packet has the state of its integrity check value.
const CHECKED: usize = 44;

/// Why a sequence number is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    /// It lies before the window.
    Old,
    /// It came before.
    Seen,
}

/// The sequence numbers that came in lately (RFC 4303 section 3.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    size: u32,
    last: u32,
    /// Bit `n` says whether `last - n` came.
    seen: u128,
}

impl Window {
    /// A window of a size that begins at a sequence number.
    pub(super) fn new(size: u32, first: u32) -> Self {
        Self { size: size.clamp(1, WINDOW), last: first, seen: 0 }
    }
    /// Takes a sequence number, once.
    pub(super) fn take(&mut self, number: u32) -> Result<(), Replay> {
        if number == 0 {
            return Err(Replay::Old);
        }
        if let Some(ahead) = number.checked_sub(self.last).filter(|ahead| *ahead > 0) {
            self.seen = self.seen.checked_shl(ahead).unwrap_or(0) | 1;
            self.last = number;
            return Ok(());
        }
        let behind = self.last - number;
        if behind >= self.size {
            return Err(Replay::Old);
        }
        let bit = 1_u128 << behind;
        if self.seen & bit != 0 {
            return Err(Replay::Seen);
        }
        self.seen |= bit;
        Ok(())
    }
}

/// A security association of two gateways, with the same keys in both directions.
pub(super) struct Association {
    /// Its security parameters index.
    pub(super) spi: u32,
    keys: Keys,
    cipher: Aes128,
    authentication: Hmac<Sha1>,
    secret: u64,
    /// Makes initialisation vectors differ from those of an earlier run with the same key.
    ///
    /// It is made of the secret, and of the time of the first packet.
    nonce: OnceCell<u64>,
    next: Cell<Option<u32>>,
    window: Cell<Window>,
}

/// Keys and the numbers that both gateways begin with.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Keys {
    /// Key of AES.
    pub(super) encryption: [u8; 16],
    /// Key of HMAC-SHA-1: 16 or 20 bytes.
    pub(super) authentication: Vec<u8>,
    /// The first sequence number.
    pub(super) first: u32,
    /// Size of the window.
    pub(super) window: u32,
}

impl Association {
    /// An association, with a random number that is secret. `None`: a key has a bad length.
    pub(super) fn new(spi: u32, keys: Keys, secret: u64) -> Option<Self> {
        if !matches!(keys.authentication.len(), 16 | 20) {
            return None;
        }
        Some(Self {
            spi,
            cipher: Aes128::new(&keys.encryption.into()),
            authentication: Hmac::new_from_slice(&keys.authentication).ok()?,
            secret,
            nonce: OnceCell::new(),
            next: Cell::new(Some(keys.first)),
            window: Cell::new(Window::new(keys.window, keys.first)),
            keys,
        })
    }
    /// Whether it has these keys.
    pub(super) fn has(&self, keys: &Keys) -> bool {
        self.keys == *keys
    }
    /// The next sequence number. `None` when all were used: the association needs other keys.
    pub(super) fn next(&self) -> Option<u32> {
        let number = self.next.get()?;
        self.next.set(number.checked_add(1));
        Some(number)
    }
    /// Takes a sequence number that came in and was authenticated.
    pub(super) fn take(&self, number: u32) -> Result<(), Replay> {
        let mut window = self.window.get();
        let taken = window.take(number);
        self.window.set(window);
        taken
    }
    /// An initialisation vector that takes the key to foresee: an encrypted nonce (NIST SP 800-38A, appendix C).
    pub(super) fn vector(&self, number: u32, now: u64) -> [u8; BLOCK] {
        let (secret, now) = (self.secret.to_le_bytes(), now.to_le_bytes());
        let nonce = self.nonce.get_or_init(|| Random::of(&[b"association", &secret, &now]).draw());
        let mut block = [0; BLOCK];
        block[..8].copy_from_slice(&nonce.to_be_bytes());
        block[8..12].copy_from_slice(&self.spi.to_be_bytes());
        block[12..].copy_from_slice(&number.to_be_bytes());
        let mut block = block.into();
        self.cipher.encrypt_block(&mut block);
        block.into()
    }
    /// Encrypts whole blocks in place (RFC 3602). `false`: they are not whole.
    pub(super) fn encrypt(&self, vector: [u8; BLOCK], bytes: &mut [u8]) -> bool {
        let length = bytes.len();
        let mode: cbc::Encryptor<Aes128> = InnerIvInit::inner_iv_init(self.cipher.clone(), &vector.into());
        length.is_multiple_of(BLOCK) && mode.encrypt_padded::<NoPadding>(bytes, length).is_ok()
    }
    /// Decrypts whole blocks in place. `false`: they are not whole.
    pub(super) fn decrypt(&self, vector: [u8; BLOCK], bytes: &mut [u8]) -> bool {
        let mode: cbc::Decryptor<Aes128> = InnerIvInit::inner_iv_init(self.cipher.clone(), &vector.into());
        bytes.len().is_multiple_of(BLOCK) && mode.decrypt_padded::<NoPadding>(bytes).is_ok()
    }
    /// The integrity check value of bytes (RFC 2404).
    pub(super) fn sign(&self, bytes: &[u8]) -> [u8; ICV] {
        let mut mac = self.authentication.clone();
        mac.update(bytes);
        let whole = mac.finalize().into_bytes();
        whole.first_chunk::<ICV>().copied().unwrap_or_default()
    }
    /// Whether an integrity check value is that of bytes. Right and wrong values take the same time.
    pub(super) fn is_signed(&self, bytes: &[u8], value: &[u8; ICV]) -> bool {
        let mut mac = self.authentication.clone();
        mac.update(bytes);
        mac.verify_truncated_left(value).is_ok()
    }
}

/// The associations of a configuration, by the number that packets have in an annotation.
pub(super) struct Associations {
    secrets: Rc<RefCell<Random>>,
    known: RefCell<HashMap<u32, Rc<Association>>>,
    last: Cell<u32>,
}

impl Associations {
    /// The associations of an element's configuration.
    pub(super) fn of(at: At<'_>) -> Rc<Self> {
        at.router.shared("IPsec associations", || Self {
            secrets: Rc::clone(&at.router.surroundings().secrets),
            known: RefCell::default(),
            last: Cell::default(),
        })
    }
    /// A random number for a new association.
    pub(super) fn secret(&self) -> u64 {
        self.secrets.borrow_mut().draw()
    }
    /// Notes an association; its number.
    pub(super) fn add(&self, association: Rc<Association>) -> u32 {
        let number = self.last.get().wrapping_add(1).max(1);
        self.last.set(number);
        self.known.borrow_mut().insert(number, association);
        number
    }
    /// Forgets an association.
    pub(super) fn remove(&self, number: u32) {
        self.known.borrow_mut().remove(&number);
    }
    /// The association that a packet's annotation means.
    pub(super) fn find(&self, packet: &Packet) -> Option<Rc<Association>> {
        self.known.borrow().get(&packet.anno_u32(REFERENCE)).cloned()
    }
}

/// Notes the association that a packet belongs to; its integrity check value was not looked at yet.
pub(super) fn refer(packet: &mut Packet, number: u32) {
    packet.set_anno_u32(REFERENCE, number);
    packet.set_anno_u8(CHECKED, 0);
}

/// Whether a packet's integrity check value was made, or was verified and taken off.
pub(super) fn is_checked(packet: &Packet) -> bool {
    packet.anno_u8(CHECKED) != 0
}

/// Notes that a packet's integrity check value was made, or was verified and taken off.
pub(super) fn set_checked(packet: &mut Packet) {
    packet.set_anno_u8(CHECKED, 1);
}
