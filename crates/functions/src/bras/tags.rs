//! The tags of PPPoE discovery packets (RFC 2516, section 5 and appendix A; RFC 4638).

/// Types of tags.
pub(super) mod kind {
    pub(in super::super) const END_OF_LIST: u16 = 0x0000;
    pub(in super::super) const SERVICE_NAME: u16 = 0x0101;
    pub(in super::super) const AC_NAME: u16 = 0x0102;
    pub(in super::super) const HOST_UNIQ: u16 = 0x0103;
    pub(in super::super) const AC_COOKIE: u16 = 0x0104;
    pub(in super::super) const RELAY_SESSION_ID: u16 = 0x0110;
    pub(in super::super) const PPP_MAX_PAYLOAD: u16 = 0x0120;
    pub(in super::super) const SERVICE_NAME_ERROR: u16 = 0x0201;
    pub(in super::super) const AC_SYSTEM_ERROR: u16 = 0x0202;
}

/// The tags of a discovery packet that matter to an access concentrator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tags<'p> {
    /// The first Service-Name. A PADI and a PADR must have exactly one.
    pub(super) service: Option<&'p [u8]>,
    pub(super) host_uniq: Option<&'p [u8]>,
    pub(super) cookie: Option<&'p [u8]>,
    pub(super) relay: Option<&'p [u8]>,
    pub(super) max_payload: Option<u16>,
}

impl<'p> Tags<'p> {
    /// Reads tags up to the end of the payload or an End-Of-List; `None` where a length leads beyond.
    pub(super) fn read(payload: &'p [u8]) -> Option<Self> {
        let mut tags = Self::default();
        let mut rest = payload;
        while !rest.is_empty() {
            let (head, more) = rest.split_first_chunk::<4>()?;
            let [kind, len] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_be_bytes);
            let (value, after) = more.split_at_checked(len.into())?;
            match kind {
                kind::END_OF_LIST => break,
                kind::SERVICE_NAME => tags.service = tags.service.or(Some(value)),
                kind::HOST_UNIQ => tags.host_uniq = tags.host_uniq.or(Some(value)),
                kind::AC_COOKIE => tags.cookie = tags.cookie.or(Some(value)),
                kind::RELAY_SESSION_ID => tags.relay = tags.relay.or(Some(value)),
                kind::PPP_MAX_PAYLOAD => {
                    tags.max_payload = tags.max_payload.or(value.try_into().ok().map(u16::from_be_bytes));
                }
                _ => {}
            }
            rest = after;
        }
        Some(tags)
    }
}

/// The most bytes of the tags of an answer.
const MOST: usize = 1_480;

/// Tags of a packet under construction.
pub(super) struct TagWriter {
    bytes: [u8; MOST],
    len: usize,
    is_full: bool,
}

impl TagWriter {
    pub(super) fn new() -> Self {
        Self { bytes: [0; MOST], len: 0, is_full: false }
    }

    /// Adds a tag.
    pub(super) fn tag(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let room = self.bytes.get_mut(self.len..).and_then(|rest| rest.get_mut(..4 + value.len()));
        let Some(room) = room.filter(|_| value.len() <= MOST) else {
            self.is_full = true;
            return self;
        };
        room[..2].copy_from_slice(&kind.to_be_bytes());
        room[2..4].copy_from_slice(&(value.len() as u16).to_be_bytes());
        room[4..].copy_from_slice(value);
        self.len += 4 + value.len();
        self
    }

    /// Adds a tag where it has a value.
    pub(super) fn maybe(&mut self, kind: u16, value: Option<&[u8]>) -> &mut Self {
        match value {
            Some(value) => self.tag(kind, value),
            None => self,
        }
    }

    /// The bytes; `None` where there was no room for all tags.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len).filter(|_| !self.is_full)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tags_are_read_as_they_were_written() {
        let mut writer = TagWriter::new();
        writer
            .tag(kind::SERVICE_NAME, b"")
            .tag(kind::HOST_UNIQ, b"host")
            .tag(0x7777, b"unknown")
            .maybe(kind::RELAY_SESSION_ID, Some(b"relay"))
            .maybe(kind::AC_COOKIE, None)
            .tag(kind::PPP_MAX_PAYLOAD, &1_500_u16.to_be_bytes())
            .tag(kind::END_OF_LIST, b"")
            .tag(kind::AC_COOKIE, b"behind the end");
        let tags = Tags::read(writer.bytes().expect("there is room")).expect("they are whole");
        let expected = Tags {
            service: Some(b""),
            host_uniq: Some(b"host"),
            cookie: None,
            relay: Some(b"relay"),
            max_payload: Some(1_500),
        };
        assert_eq!(tags, expected);
        assert_eq!(TagWriter::new().tag(1, &[0; MOST - 3]).bytes(), None, "no room for the head");
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for bytes in [&[1, 1, 0][..], &[1, 1, 0, 1], &[1, 3, 0xff, 0xff, 7], &[1, 1, 0, 0, 1]] {
            assert_eq!(Tags::read(bytes), None, "{bytes:?}");
        }
        assert_eq!(Tags::read(&[]), Some(Tags::default()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_within_their_bounds(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(tags) = Tags::read(&bytes) {
                let found = [tags.service, tags.host_uniq, tags.cookie, tags.relay];
                let within: usize = found.iter().flatten().map(|value| 4 + value.len()).sum();
                prop_assert!(within <= bytes.len());
            }
        }
    }
}
