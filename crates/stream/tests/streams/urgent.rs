//! Urgent bytes: the stream of an application that did not ask for them in place, as observed on Linux 6.18.

use netbricks_core::packet::Tcp;
use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_stream::{
    Fate, InlineWindow, InlineWindowConfig, PacketizeConfig, Packetizer, Protocol, Reassembler, Replace,
    Replacing, Rewriter, Side, StreamConfig, What, Window, WindowConfig, Windows,
};

use super::exercise::{Told, flow};

const ACK: u8 = flags::ACK;
const URG: u8 = flags::ACK | flags::URG;

/// A segment: the number of its first byte, flags, bytes, urgent pointer.
type Said<'a> = (u32, u8, &'a [u8], u16);

/// The stream that an application reads, and its urgent bytes. The client's first byte has number 1000.
fn read(segments: &[Said<'_>]) -> (String, String) {
    let mut streams = Reassembler::<Tcp>::new(StreamConfig::default()).expect("there is memory");
    let (mut told, mut urgent) = (Told::default(), String::new());
    let mut push = |number: u32, flag, bytes: &[u8], pointer| {
        let mut header = Tcp::new(1, 80, number, 500, flag);
        header.set_urgent_pointer(pointer);
        let segment = Tcp::segment(Tcp::view(&header.octets(), ()), bytes);
        streams.push(flow(1), segment, 0, |delivery| {
            if let What::Urgent(byte) = delivery.what {
                urgent.push(char::from(byte));
            }
            told.take(delivery);
        });
    };
    push(999, flags::SYN, b"", 0);
    for (at, flag, bytes, pointer) in segments {
        push(1_000 + at, *flag, bytes, *pointer);
    }
    let text = told.stream.iter().map(|byte| byte.map_or('-', char::from)).collect();
    (text, urgent)
}

#[test]
fn an_urgent_byte_is_not_among_those_that_an_application_reads() {
    let cases: [(&str, &[Said<'_>], &str, &str); 18] = [
        (
            "pointer 1 between two halves",
            &[(0, ACK, b"Ho", 0), (2, URG, b"Xst", 1), (5, ACK, b"end", 0)],
            "Hostend",
            "X",
        ),
        ("pointer to the middle", &[(0, URG, b"abcdef", 3)], "abdef", "c"),
        ("pointer 0", &[(0, URG, b"abcdef", 0)], "bcdef", "a"),
        ("pointer to the last byte", &[(0, URG, b"abc", 3), (3, ACK, b"def", 0)], "abdef", "c"),
        ("pointer beyond the segment", &[(0, URG, b"abc", 5), (3, ACK, b"defgh", 0)], "abcdfgh", "e"),
        (
            "a newer pointer",
            &[(0, URG, b"abc", 5), (3, URG, b"d", 4), (4, ACK, b"efghij", 0)],
            "abcdefhij",
            "g",
        ),
        (
            "an older pointer",
            &[(0, URG, b"abc", 7), (3, URG, b"d", 2), (4, ACK, b"efghij", 0)],
            "abcdefhij",
            "g",
        ),
        (
            "several, each read before the next came",
            &[(0, URG, b"abc", 1), (3, URG, b"def", 1), (6, URG, b"ghi", 3), (9, URG, b"jkl", 1)],
            "bcefghkl",
            "adij",
        ),
        (
            "sent again with a pointer",
            &[(0, ACK, b"abc", 0), (0, URG, b"abc", 2), (3, ACK, b"def", 0)],
            "abcdef",
            "",
        ),
        (
            "waits, sent again without",
            &[(3, URG, b"def", 2), (3, ACK, b"def", 0), (0, ACK, b"abc", 0)],
            "abcdf",
            "e",
        ),
        (
            "waits, sent again with a pointer",
            &[(3, ACK, b"def", 0), (3, URG, b"def", 2), (0, ACK, b"abc", 0)],
            "abcdf",
            "e",
        ),
        (
            "old bytes that point ahead",
            &[(0, ACK, b"abc", 0), (0, URG, b"abc", 5), (3, ACK, b"defg", 0)],
            "abcdfg",
            "e",
        ),
        ("no bytes", &[(0, ACK, b"abc", 0), (3, URG, b"", 2), (3, ACK, b"defg", 0)], "abcdfg", "e"),
        ("with the end", &[(0, URG | flags::FIN, b"abc", 2)], "ac", "b"),
        ("at the end's number", &[(0, URG | flags::FIN, b"abc", 4)], "abc", ""),
        (
            "two that wait, the later first",
            &[(6, URG, b"ghi", 1), (3, URG, b"def", 1), (0, ACK, b"abc", 0)],
            "abcdefhi",
            "g",
        ),
        ("two that wait", &[(3, URG, b"def", 1), (6, URG, b"ghi", 1), (0, ACK, b"abc", 0)], "abcdefhi", "g"),
        ("one behind the other", &[(0, URG, b"a", 1), (1, URG, b"b", 1), (2, ACK, b"c", 0)], "c", "ab"),
    ];
    for (name, segments, text, urgent) in cases {
        assert_eq!(read(segments), (text.into(), urgent.into()), "{name}");
    }
}

#[test]
fn windows_show_no_urgent_byte_and_count_none() {
    let mut seen = Vec::new();
    let config = WindowConfig::new(4, 4, 1 << 40);
    let mut windows = Windows::<Tcp, _>::new(config, |window: &Window<'_>| {
        seen.push((window.offset, window.bytes.to_vec()));
    })
    .expect("there is memory");
    let mut push = |number: u32, flag, bytes: &[u8], pointer| {
        let mut header = Tcp::new(1, 80, number, 500, flag);
        header.set_urgent_pointer(pointer);
        windows.push(flow(1), Tcp::segment(Tcp::view(&header.octets(), ()), bytes), 0);
    };
    push(999, flags::SYN, b"", 0);
    push(1_000, ACK, b"Ho", 0);
    push(1_002, URG, b"Xst: ok", 1);
    push(1_009, ACK | flags::FIN, b"!?", 0);
    drop(windows);
    let shown: Vec<_> =
        seen.iter().map(|(offset, bytes)| (*offset, String::from_utf8_lossy(bytes))).collect();
    assert_eq!(shown, [(0, "Host".into()), (4, ": ok".into()), (8, "!?".into())]);
}

/// A connection in the packets' path. The client's first byte has number 100, and the server's 500.
struct Path<R: Rewriter>(Packetizer<R>);

impl<R: Rewriter> Path<R> {
    fn new(rewriter: R) -> Self {
        let mut path = Self(Packetizer::new(PacketizeConfig::default(), rewriter).expect("there is memory"));
        path.push(Side::Client, [99, 0], flags::SYN, b"", 0);
        path.push(Side::Server, [499, 100], flags::SYN | ACK, b"", 0);
        path.push(Side::Client, [100, 500], ACK, b"", 0);
        path
    }

    /// The output for a segment: number, acknowledgment number, bytes.
    fn push(
        &mut self,
        side: Side,
        numbers: [u32; 2],
        flag: u8,
        bytes: &[u8],
        pointer: u16,
    ) -> Vec<(u32, u32, String)> {
        let mut header = Tcp::new(1, 80, numbers[0], numbers[1], flag);
        header.set_urgent_pointer(pointer);
        let flow = if side == Side::Client { flow(1) } else { flow(1).reversed() };
        let mut out = Vec::new();
        self.0.push(flow, Tcp::view(&header.octets(), ()), bytes, 0, |emit| {
            let mut bytes = vec![0; emit.len];
            emit.write(&mut bytes);
            assert_eq!(emit.flags & flags::URG, 0);
            out.push((emit.number, emit.acknowledgment, String::from_utf8_lossy(&bytes).into_owned()));
            true
        });
        out
    }
}

fn out(number: u32, acknowledgment: u32, text: &str) -> Vec<(u32, u32, String)> {
    vec![(number, acknowledgment, text.into())]
}

#[test]
fn an_urgent_byte_does_not_go_on_and_numbers_follow() {
    let mut path = Path::new(Replace::new(b"cat", b"tiger", None).expect("a string"));
    assert_eq!(path.push(Side::Client, [100, 500], URG, b"oXne", 2), out(100, 500, "one"));
    assert_eq!(path.push(Side::Client, [104, 500], ACK, b", two", 0), out(103, 500, ", two"));
    // The receiver has the urgent byte once it has the bytes before it.
    assert_eq!(path.push(Side::Server, [500, 101], ACK, b"", 0), out(500, 102, ""));
    assert_eq!(path.push(Side::Server, [500, 108], ACK, b"", 0), out(500, 109, ""));
    // With nothing left of a segment, an old byte asks its receiver for an acknowledgment.
    assert_eq!(path.push(Side::Client, [109, 500], URG, b"Y", 1), out(107, 500, "\0"));
    assert_eq!(path.push(Side::Client, [110, 500], ACK, b"!", 0), out(108, 500, "!"));
    assert_eq!(path.push(Side::Client, [109, 500], ACK, b"Y!", 0), out(108, 500, "!"));
    assert_eq!(path.push(Side::Server, [500, 109], ACK, b"", 0), out(500, 111, ""));
}

#[test]
fn an_urgent_byte_hides_no_string_that_is_replaced() {
    let mut path = Path::new(Replace::new(b"cat", b"tiger", None).expect("a string"));
    assert_eq!(path.push(Side::Client, [100, 500], URG, b"a cXat", 4), out(100, 500, "a tiger"));
    assert_eq!(path.push(Side::Server, [500, 107], ACK, b"", 0), out(500, 106, ""));
    // It waits behind a possible beginning of the string, which is none then. Another beginning follows
    // there.
    assert_eq!(path.push(Side::Client, [106, 500], URG, b"caX", 3), out(107, 500, ""));
    assert_eq!(
        path.push(Side::Client, [109, 500], URG, b"Yb", 1),
        out(107, 500, "caYb"),
        "the second goes on"
    );
    assert_eq!(path.push(Side::Server, [500, 111], ACK, b"", 0), out(500, 111, ""));
    assert_eq!(path.push(Side::Client, [111, 500], ACK, b" cat", 0), out(111, 500, " tiger"));
    assert_eq!(path.push(Side::Server, [500, 117], ACK, b"", 0), out(500, 115, ""));
}

#[test]
fn a_window_in_the_packets_path_shows_what_goes_on() {
    let config =
        InlineWindowConfig { packets: PacketizeConfig::default(), ..InlineWindowConfig::new(16, 16, 0) };
    let inline = InlineWindow::new(config, |window: &Window<'_>, _: &mut Replacing<'_, '_>| {
        assert!(!window.bytes.contains(&b'X'), "{window:?}");
        if window.bytes.contains(&b';') { Fate::Pass } else { Fate::Hold }
    });
    let mut path = Path::new(inline.expect("there is memory"));
    assert_eq!(path.push(Side::Client, [100, 500], URG, b"hoXst", 3), out(100, 500, ""));
    assert_eq!(path.push(Side::Client, [105, 500], ACK, b";", 0), out(100, 500, "host;"));
    assert_eq!(path.push(Side::Server, [500, 105], ACK, b"", 0), out(500, 106, ""));
}

#[test]
fn an_urgent_byte_that_waits_moves_with_its_connection() {
    let twin = || Path::new(Replace::new(b"cat", b"tiger", None).expect("a string"));
    let mut path = twin();
    path.push(Side::Client, [100, 500], URG, b"caX", 3);
    let bytes = path.0.take_where(|_| true);
    let mut path = Path(
        Packetizer::new(PacketizeConfig::default(), Replace::new(b"cat", b"tiger", None).expect("a string"))
            .expect("there is memory"),
    );
    netbricks_core::Declared::import(&mut path.0, &bytes, 0).expect("it was packed");
    assert_eq!(path.push(Side::Client, [103, 500], ACK, b"t!", 0), out(100, 500, "tiger!"));
    assert_eq!(path.push(Side::Server, [500, 106], ACK, b"", 0), out(500, 105, ""));
}
