//! Bytes of a guest's memory, which the guest may write at any time, appended to packets.

use netbricks_buffer::Packet;
use vm_memory::VolatileSlice;

/// Appends bytes to a packet. `false` if the packet's frame has no room for all; none is appended then.
#[inline]
pub(crate) fn append_to(from: &VolatileSlice<'_>, packet: &mut Packet) -> bool {
    let len = from.len();
    let copy = |room: &mut [u8]| match room.get_mut(..len) {
        Some(room) => from.copy_to(room),
        None => 0,
    };
    // SAFETY: `copy_to` answers the bytes that it has written, and shows the room to no other code.
    let copied = unsafe { packet.fill(copy) };
    copied == len
}

#[cfg(test)]
mod tests {
    use super::*;
    use netbricks_buffer::Pool;

    #[test]
    fn bytes_are_appended_where_there_is_room() {
        let pool = Pool::builder().frames(4).build().unwrap();
        let mut packet = pool.empty(64).unwrap();
        let mut bytes: Vec<u8> = (0..100).collect();
        let all = VolatileSlice::from(&mut bytes[..]);
        for (from, len) in [(0, 1), (1, 0), (1, 40), (41, 59)] {
            assert!(append_to(&all.subslice(from, len).unwrap(), &mut packet));
        }
        assert_eq!(packet.data(), (0..100).collect::<Vec<u8>>());
        let mut more = vec![1; packet.tailroom() + 1];
        assert!(!append_to(&VolatileSlice::from(&mut more[..]), &mut packet));
        assert_eq!(packet.len(), 100);
    }
}
