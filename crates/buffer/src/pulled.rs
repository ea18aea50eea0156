//! Bytes that were taken from a packet's front, and are kept there.

use crate::meta::{CUT, KEPT};
use crate::packet::{NoRoom, Packet};

impl Packet {
    /// As [`pull_front`](Packet::pull_front), and keeps the bytes for [`pulled`](Packet::pulled).
    ///
    /// A packet of which bytes are [missing](Packet::missing) keeps none.
    ///
    /// # Errors
    /// [`NoRoom`] when the packet is shorter than `count`.
    pub fn pull_front_kept(&mut self, count: usize) -> Result<(), NoRoom> {
        let start = self.line().start;
        self.pull_front(count)?;
        let flags = self.line().fresh.flags;
        if flags & CUT == 0 {
            let from = if flags & KEPT == 0 { start } else { start.min(self.second().missing) };
            self.line_mut().fresh.flags |= KEPT;
            self.annotations_mut().second_mut().missing = from;
        }
        Ok(())
    }

    /// The bytes before the first that [`pull_front_kept`](Packet::pull_front_kept) left there.
    #[inline]
    pub fn pulled(&self) -> &[u8] {
        let line = self.line();
        if line.fresh.flags & (KEPT | CUT) != KEPT {
            return &[];
        }
        let Some(count) = line.start.checked_sub(self.second().missing) else { return &[] };
        // SAFETY: the first byte lies in the frame, and kept bytes begin at most `start` bytes before it.
        let first = unsafe { line.frame.as_ptr().add((line.start - count) as usize) };
        // SAFETY: from there to the first byte the frame holds bytes that were this packet's, and only it has the frame.
        unsafe { std::slice::from_raw_parts(first, count as usize) }
    }

    /// Keeps the bytes that another packet keeps.
    ///
    /// This one is its copy, and the first bytes of both lie at the same place.
    #[inline]
    pub(crate) fn keep_pulled(&mut self, of: &Self) {
        if of.line().fresh.flags & KEPT == 0 {
            return;
        }
        let (pulled, start) = (of.pulled(), self.line().start as usize);
        let Some(from) = start.checked_sub(pulled.len()) else { return };
        self.annotations_mut().second_mut().missing = from as u32;
        // SAFETY: the first byte lies in the frame, and `from` is no more.
        let first = unsafe { self.line().frame.as_ptr().add(from) };
        // SAFETY: so many bytes lie between there and the first byte, and the frames are two.
        unsafe { std::ptr::copy_nonoverlapping(pulled.as_ptr(), first, pulled.len()) };
    }
}

#[cfg(test)]
mod tests {
    use crate::Pool;

    /// A packet of ten bytes, in a pool of one frame in which an earlier packet left a secret.
    fn after_a_secret(frames: usize) -> (Pool, crate::Packet) {
        let pool = Pool::builder().frames(frames).build().expect("memory");
        let secrets: Vec<_> = (0..frames).filter_map(|_| pool.packet(&[0x5A; 512])).collect();
        assert_eq!(secrets.len(), frames);
        drop(secrets);
        let packet = pool.packet(b"0123456789").expect("a frame");
        (pool, packet)
    }

    #[test]
    fn pulled_bytes_are_its_own_and_no_others() {
        let (_pool, mut packet) = after_a_secret(1);
        assert_eq!(packet.pulled(), b"");
        packet.pull_front_kept(4).expect("there are ten");
        assert_eq!((packet.pulled(), packet.data()), (&b"0123"[..], &b"456789"[..]));
        packet.push_front(2).expect("there is room").copy_from_slice(b"ab");
        assert_eq!(packet.pulled(), b"01");
        packet.push_front(300).expect_err("the headroom has 258 bytes");
        packet.push_front(100).expect("there is room").fill(b'x');
        assert_eq!(packet.pulled(), b"", "all of them are in the packet again");
        packet.pull_front_kept(100).expect("they are there");
        assert_eq!(packet.pulled(), [b'x'; 100]);
        packet.pull_front(1).expect("it is there");
        assert_eq!(packet.pulled().len(), 101);
        packet.set_missing(5);
        assert_eq!(packet.pulled(), b"");
    }

    #[test]
    fn a_copy_has_the_same_pulled_bytes() {
        let (_pool, mut packet) = after_a_secret(3);
        packet.pull_front_kept(4).expect("there are ten");
        let copy = packet.try_copy().expect("a frame");
        assert_eq!((copy.pulled(), copy.data()), (&b"0123"[..], &b"456789"[..]));
    }

    #[test]
    fn a_new_packet_shows_nothing_of_earlier_ones() {
        let (pool, mut packet) = after_a_secret(1);
        packet.pull_front(4).expect("there are ten");
        assert_eq!(packet.pulled(), b"");
        packet.pull_front_kept(1).expect("there are six");
        let raw = packet.into_raw();
        // SAFETY: it was given away just now, and no device has touched it.
        let packet = unsafe { pool.from_raw(raw, 300, 20) }.expect("it lies in the frame");
        assert_eq!(packet.pulled(), b"");
    }
}
