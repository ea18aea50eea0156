//! The packets of PPP's control protocols and their options (RFC 1661, sections 5 and 6).

/// Protocol numbers of PPP.
pub(super) mod protocol {
    pub(in super::super) const IPV4: u16 = 0x0021;
    pub(in super::super) const IPV6: u16 = 0x0057;
    pub(in super::super) const IPCP: u16 = 0x8021;
    pub(in super::super) const IPV6CP: u16 = 0x8057;
    pub(in super::super) const LCP: u16 = 0xc021;
    pub(in super::super) const PAP: u16 = 0xc023;
    pub(in super::super) const CHAP: u16 = 0xc223;
}

/// Codes of control packets. Those of PAP and CHAP are 1 to 4, too.
pub(super) mod code {
    pub(in super::super) const CONFIGURE_REQUEST: u8 = 1;
    pub(in super::super) const CONFIGURE_ACK: u8 = 2;
    pub(in super::super) const CONFIGURE_NAK: u8 = 3;
    pub(in super::super) const CONFIGURE_REJECT: u8 = 4;
    pub(in super::super) const TERMINATE_REQUEST: u8 = 5;
    pub(in super::super) const TERMINATE_ACK: u8 = 6;
    pub(in super::super) const CODE_REJECT: u8 = 7;
    pub(in super::super) const PROTOCOL_REJECT: u8 = 8;
    pub(in super::super) const ECHO_REQUEST: u8 = 9;
    pub(in super::super) const ECHO_REPLY: u8 = 10;
    pub(in super::super) const DISCARD_REQUEST: u8 = 11;
}

/// A control packet: its code, identifier and data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control<'p> {
    pub(super) code: u8,
    pub(super) id: u8,
    pub(super) data: &'p [u8],
    /// The packet with its head, for a Code-Reject.
    pub(super) whole: &'p [u8],
}

impl<'p> Control<'p> {
    /// Reads a packet; bytes behind its length are padding. `None` where the length leads beyond the payload.
    pub(super) fn read(payload: &'p [u8]) -> Option<Self> {
        let head = payload.first_chunk::<4>()?;
        let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let whole = payload.get(..len)?;
        Some(Self { code: head[0], id: head[1], data: whole.get(4..)?, whole })
    }
}

/// The options of a Configure packet, as type and value. A length that lies ends them with an error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options<'p>(pub(super) &'p [u8]);

/// An option's length is below 2, or leads beyond the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrongLength;

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PppOption<'p> {
    pub(super) kind: u8,
    pub(super) value: &'p [u8],
    /// The option with its head.
    pub(super) whole: &'p [u8],
}

impl<'p> Iterator for Options<'p> {
    type Item = Result<PppOption<'p>, WrongLength>;
    fn next(&mut self) -> Option<Self::Item> {
        let kind = *self.0.first()?;
        let found = self.0.get(1).and_then(|len| {
            let (whole, rest) = self.0.split_at_checked((*len).into())?;
            Some((PppOption { kind, value: whole.get(2..)?, whole }, rest))
        });
        let Some((option, rest)) = found else {
            self.0 = &[];
            return Some(Err(WrongLength));
        };
        self.0 = rest;
        Some(Ok(option))
    }
}

/// The most bytes of a control packet that is sent.
pub(super) const LONGEST: usize = 1_492;

/// Bytes of fixed room, for the data of a control packet.
pub(super) struct Writer {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Writer {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; LONGEST], len: 0 }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
    /// Adds bytes, as many as there is room for.
    pub(super) fn add(&mut self, bytes: &[u8]) -> &mut Self {
        let len = bytes.len().min(LONGEST - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&bytes[..len]);
        self.len += len;
        self
    }
    /// Adds an option, if there is room for it.
    pub(super) fn option(&mut self, kind: u8, value: &[u8]) -> &mut Self {
        if value.len() <= 253 && self.len + 2 + value.len() <= LONGEST {
            self.add(&[kind, 2 + value.len() as u8]).add(value);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn packets_and_options_are_read_within_their_lengths() {
        let packet = [1, 7, 0, 10, 1, 4, 5, 0xd4, 5, 2, 0, 0, 0];
        let control = Control::read(&packet).expect("it is whole");
        assert_eq!((control.code, control.id, control.data), (1, 7, &packet[4..10]));
        let options: Vec<_> = Options(control.data).map(|option| option.expect("it is whole")).collect();
        assert_eq!(options.len(), 2);
        assert_eq!((options[0].kind, options[0].value), (1, &[5, 0xd4][..]));
        assert_eq!((options[1].kind, options[1].value), (5, &[][..]));
        for wrong in [&[1, 7, 0][..], &[1, 7, 0, 3], &[1, 7, 0, 5], &[1, 7, 0xff, 0xff, 0]] {
            assert_eq!(Control::read(wrong), None, "{wrong:?}");
        }
        for wrong in [&[1][..], &[1, 0], &[1, 1], &[1, 3], &[5, 6, 0, 0]] {
            assert_eq!(Options(wrong).last(), Some(Err(WrongLength)), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn options_cover_the_bytes_once_and_end(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let options: Vec<_> = Options(&bytes).collect();
            let covered: usize = options.iter().flatten().map(|option| option.whole.len()).sum();
            prop_assert!(covered <= bytes.len());
            prop_assert!(options.iter().rev().skip(1).all(Result::is_ok), "an error is the last");
            prop_assert_eq!(options.iter().all(Result::is_ok), covered == bytes.len());
        }

        #[test]
        fn a_writer_never_passes_its_end(lengths in proptest::collection::vec(0_usize..300, 0..20)) {
            let mut writer = Writer::new();
            for len in lengths {
                writer.option(1, &vec![7; len]);
            }
            prop_assert!(Options(writer.bytes()).all(|option| option.is_ok()));
        }
    }
}
