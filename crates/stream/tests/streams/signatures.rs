//! Segments with another signature than their connection's: receivers drop them (RFC 2385, section 2; RFC
//! 5925, section 7.4).

use netbricks_core::packet::Tcp;
use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_stream::{
    Arrival, MidstreamPolicy, PacketizeConfig, Packetizer, Passage, Protocol, Replace, Segment, Signature,
    StreamConfig,
};

use super::exercise::{flow, segment};
use super::rules::{Heard, ack, fin, rst, syn};

const MD5: Signature = Signature::Md5;
const OPTION: [u8; 20] = [19, 18, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];

fn signed(signature: Signature, segment: Segment<'_>) -> Segment<'_> {
    Segment { signature, ..segment }
}
fn syn_ack(number: u32, acknowledged: u32) -> Segment<'static> {
    Segment { opens: true, answers: true, ..ack(number, acknowledged) }
}
fn says(number: u32, acknowledged: u32, bytes: &[u8]) -> Segment<'_> {
    Segment { bytes, ..ack(number, acknowledged) }
}
fn heard() -> Heard {
    Heard::new(StreamConfig::default())
}

/// All other signatures than this one.
fn others(than: Signature) -> impl Iterator<Item = Signature> {
    let all = [Signature::None, MD5, Signature::Authentication, Signature::Several];
    all.into_iter().filter(move |signature| *signature != than)
}

#[test]
fn only_segments_that_are_signed_as_the_connection_count() {
    let (client, server) = (flow(1), flow(1).reversed());
    for own in [Signature::None, MD5, Signature::Authentication] {
        let mut heard = heard();
        heard.told(client, signed(own, syn(1_000)));
        for other in others(own) {
            assert_eq!(
                heard.push(server, signed(other, syn_ack(9_000, 1_000))).0,
                Arrival::Ignored,
                "{other:?}"
            );
        }
        heard.told(server, signed(own, syn_ack(500, 1_000)));
        heard.told(client, signed(own, ack(1_000, 500)));
        for other in others(own) {
            let decoys = [
                says(1_000, 500, b"decoy"),
                says(1_003, 500, b"decoy"),
                rst(1_000),
                fin(1_000, b""),
                Segment { acknowledges: Some(500), ..rst(1_000) },
            ];
            for decoy in decoys {
                assert_eq!(
                    heard.push(client, signed(other, decoy)),
                    (Arrival::Ignored, String::new()),
                    "{other:?}"
                );
            }
            assert_eq!(heard.told(server, signed(other, says(500, 1_000, b"decoy"))), "");
        }
        assert_eq!(heard.told(client, signed(own, says(1_000, 500, b"real"))), "real");
        assert_eq!(heard.told(server, signed(own, says(500, 1_004, b"answer"))), "[answer]");
        assert_eq!(heard.told(client, signed(own, rst(1_004))), ".reset[.reset]");
    }
}

#[test]
fn an_opening_that_its_receiver_did_not_take_is_forgotten_with_its_signature() {
    let (client, server) = (flow(1), flow(1).reversed());
    // Whichever comes first, with the same number and with another one.
    for (decoy, real) in [(MD5, Signature::None), (Signature::None, MD5)] {
        for number in [9_000, 1_000] {
            for openings in [[(decoy, number), (real, 1_000)], [(real, 1_000), (decoy, number)]] {
                let mut heard = heard();
                for (signature, number) in openings {
                    heard.told(client, signed(signature, syn(number)));
                }
                heard.told(server, signed(real, syn_ack(500, 1_000)));
                assert_eq!(heard.told(client, signed(decoy, says(1_000, 500, b"decoy"))), "");
                assert_eq!(
                    heard.told(client, signed(real, says(1_000, 500, b"real"))),
                    "real",
                    "{openings:?}"
                );
                assert_eq!(heard.told(server, signed(real, says(500, 1_004, b"ok"))), "[ok]");
            }
        }
    }
}

#[test]
fn of_one_direction_alone_the_bytes_say_which_opening_counts() {
    for (decoy, real) in [(MD5, Signature::None), (Signature::None, MD5)] {
        for openings in [[(decoy, 9_000), (real, 1_000)], [(real, 1_000), (decoy, 9_000)]] {
            let mut heard = heard();
            for (signature, number) in openings {
                heard.told(flow(1), signed(signature, syn(number)));
            }
            assert_eq!(heard.told(flow(1), signed(decoy, segment(1_000, b"decoy"))), "");
            assert_eq!(heard.told(flow(1), signed(real, segment(1_000, b"real"))), "real", "{openings:?}");
        }
    }
}

#[test]
fn a_connection_that_is_taken_up_in_its_middle_is_signed_as_its_first_segment() {
    let mut heard = heard();
    assert_eq!(heard.told(flow(1), signed(MD5, segment(1_000, b"signed"))), "signed");
    assert_eq!(heard.told(flow(1), segment(1_006, b"decoy")), "");
    assert_eq!(heard.told(flow(1).reversed(), says(500, 1_006, b"decoy")), "");
    assert_eq!(heard.told(flow(1).reversed(), signed(MD5, says(500, 1_006, b"too"))), "[too]");
    // A segment that no receiver takes begins nothing.
    assert_eq!(heard.push(flow(2), signed(Signature::Several, segment(1, b"x"))).0, Arrival::Ignored);
}

#[test]
fn it_goes_on_as_signed_where_it_moves() {
    let mut heard = heard();
    heard.told(flow(1), signed(MD5, syn(1_000)));
    heard.told(flow(1).reversed(), signed(MD5, syn_ack(500, 1_000)));
    let bytes = heard.streams.encode();
    let mut heard = self::heard();
    assert_eq!(heard.streams.decode(&bytes, 0), Ok(1));
    assert_eq!(heard.told(flow(1), says(1_000, 500, b"decoy")), "");
    assert_eq!(heard.told(flow(1), signed(MD5, says(1_000, 500, b"real"))), "real");
}

#[test]
fn options_say_how_a_segment_is_signed() {
    let read = |options: &[u8]| {
        let mut header = Tcp::new(1, 80, 1, 2, flags::ACK);
        header.set_options_len(options.len());
        let bytes = [&header.octets(), options].concat();
        Tcp::segment(Tcp::view(&bytes, ()), b"").signature
    };
    assert_eq!(read(&[]), Signature::None);
    assert_eq!(read(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]), Signature::None);
    assert_eq!(read(&OPTION), MD5);
    assert_eq!(read(&[&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2][..], &OPTION].concat()), MD5);
    assert_eq!(read(&[29, 8, 1, 1, 9, 9, 9, 9]), Signature::Authentication);
    assert_eq!(read(&[&[29, 8, 1, 1, 9, 9, 9, 9][..], &OPTION].concat()), Signature::Several);
    assert_eq!(read(&[&OPTION[..18], &OPTION[..18]].concat()), Signature::Several);
    assert_eq!(read(&[&[0, 0][..], &OPTION[..18]].concat()), Signature::None, "behind the end of the list");
}

/// The passage of a segment in the packets' path, and the bytes that go out.
fn pass(
    packetizer: &mut Packetizer<Replace>,
    back: bool,
    numbers: [u32; 2],
    flag: u8,
    options: &[u8],
    bytes: &[u8],
) -> (Passage, Vec<u8>) {
    let mut header = Tcp::new(1, 80, numbers[0], numbers[1], flag);
    header.set_options_len(options.len());
    let header = [&header.octets(), options].concat();
    let flow = if back { flow(1).reversed() } else { flow(1) };
    let mut out = Vec::new();
    let passage = packetizer.push(flow, Tcp::view(&header, ()), bytes, 0, |emit| {
        let start = out.len();
        out.resize(start + emit.len, 0);
        emit.write(&mut out[start..]);
        true
    });
    (passage, out)
}

#[test]
fn in_the_path_a_signed_segment_of_a_connection_that_is_not_signed_goes_nowhere() {
    for midstream in [MidstreamPolicy::Pass, MidstreamPolicy::Refuse] {
        let config = PacketizeConfig { midstream, ..PacketizeConfig::default() };
        let replace = Replace::new(b"cat", b"tiger", None).expect("a string");
        let mut path = Packetizer::new(config, replace).expect("there is memory");
        let ack = flags::ACK;
        pass(&mut path, false, [99, 0], flags::SYN, &[], b"");
        // Until its ends agree, they may be ends that sign, and the unsigned segments may be forged.
        let unknown = if midstream == MidstreamPolicy::Pass { Passage::Unchanged } else { Passage::Refused };
        assert_eq!(pass(&mut path, false, [8_999, 0], flags::SYN, &OPTION, b"").0, unknown);
        assert_eq!(pass(&mut path, true, [8_999, 100], flags::SYN | ack, &OPTION, b"").0, unknown);
        pass(&mut path, true, [499, 100], flags::SYN | ack, &[], b"");
        assert_eq!(pass(&mut path, false, [100, 500], ack, &OPTION, b"").0, unknown);
        pass(&mut path, false, [100, 500], ack, &[], b"");
        let decoys: [(u8, &[u8]); 4] =
            [(ack, b"decoy"), (flags::RST, b""), (flags::FIN | ack, b""), (flags::SYN, b"")];
        for (flag, bytes) in decoys {
            let decoy = pass(&mut path, false, [100, 500], flag, &OPTION, bytes);
            assert_eq!(decoy, (Passage::Refused, Vec::new()), "{flag:#x}");
        }
        let real = pass(&mut path, false, [100, 500], ack, &[], b"cat");
        assert_eq!(real, (Passage::Replaced, b"tiger".to_vec()));
    }
}
