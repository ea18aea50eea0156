//! The largest segment size of an interface, which only rtnetlink(7) tells.

use std::io;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
/// Leaves the counters out of the answer, so that it is short.
const IFLA_EXT_MASK: u16 = 29;
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
/// `IFLA_GSO_MAX_SIZE`, `IFLA_GRO_MAX_SIZE`, and the same two for IPv4 (linux/if_link.h).
const SIZES: [u16; 4] = [41, 58, 63, 64];
/// Bytes of `struct nlmsghdr`, and of `struct ifinfomsg` behind it.
const HEADER: usize = 16;
const LINK: usize = 16;
/// Kernels give no larger answer to one request (`NLMSG_GOODSIZE`).
const ROOM: usize = 32 << 10;

/// Bytes of the largest segment that the interface of this index hands over or takes.
///
/// Asks in this thread's network namespace. `None` if the kernel does not say.
pub(super) fn largest_segment(index: u32) -> io::Result<Option<u32>> {
    // No protocol means NETLINK_ROUTE, which is 0.
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut request = Vec::with_capacity(HEADER + LINK + 8);
    request.extend(((HEADER + LINK + 8) as u32).to_ne_bytes());
    request.extend(RTM_GETLINK.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([0; 4]);
    request.extend(index.to_ne_bytes());
    request.extend([0; 8]);
    request.extend(8_u16.to_ne_bytes());
    request.extend(IFLA_EXT_MASK.to_ne_bytes());
    request.extend(RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
    send(&socket, &request, SendFlags::empty())?;
    let mut answer = vec![0; ROOM];
    let (len, _) = recv(&socket, &mut *answer, RecvFlags::DONTWAIT)?;
    Ok(largest(&answer[..len.min(ROOM)]))
}

/// The largest of the sizes in an answer.
fn largest(answer: &[u8]) -> Option<u32> {
    let half = |bytes: &[u8], at: usize| Some(u16::from_ne_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    if half(answer, 4)? != RTM_NEWLINK {
        return None;
    }
    let mut rest = answer.get(HEADER + LINK..)?;
    let mut found = None;
    while let (Some(len), Some(kind)) = (half(rest, 0), half(rest, 2)) {
        let len = usize::from(len);
        if let (true, Some([a, b, c, d])) = (SIZES.contains(&kind), rest.get(4..len)) {
            found = found.max(Some(u32::from_ne_bytes([*a, *b, *c, *d])));
        }
        // Each attribute begins at a multiple of four bytes, and has at least four.
        let Some(next) = rest.get(len.max(4).next_multiple_of(4)..) else { break };
        rest = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_loopback_interface_has_segments_of_64_kib_at_least() {
        let index = crate::interface::Interface::find("lan", "lo").unwrap().index();
        // A kernel before 4.16 does not say.
        let size = largest_segment(index).unwrap();
        assert!(size.is_none_or(|size| size >= 65_535), "{size:?}");
        assert_eq!(largest_segment(u32::MAX >> 1).unwrap(), None, "no such interface");
    }

    proptest! {
        #[test]
        fn no_answer_is_read_beyond_its_end(mut answer: Vec<u8>, is_link: bool) {
            if let (true, Some(kind)) = (is_link, answer.get_mut(4..6)) {
                kind.copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
            }
            let _ = largest(&answer);
        }
    }
}
