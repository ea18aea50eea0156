//! Test vectors of RFC 3602 and RFC 2202, windows, and packets through tunnels.

use super::association::{Association, Keys, Replay, Window};
use crate::testing::{Run, build, run};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a digit") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn association(encryption: &str, authentication: Vec<u8>) -> Association {
    let encryption = bytes(encryption).try_into().expect("16 bytes");
    let keys = Keys { encryption, authentication, first: 1, window: 64 };
    Association::new(1, keys, 3).expect("good keys")
}

#[test]
fn aes_encrypts_as_rfc_3602_says() {
    // Section 4, cases 1 to 4.
    for (key, vector, plain, encrypted) in [
        (
            "06a9214036b8a15b512e03d534120006",
            "3dafba429d9eb430b422da802c9fac41",
            b"Single block msg".to_vec(),
            "e353779c1079aeb82708942dbe77181a",
        ),
        (
            "c286696d887c9aa0611bbb3e2025a45a",
            "562e17996d093d28ddb3ba695a2e6f58",
            (0..32).collect(),
            "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1",
        ),
        (
            "6c3ea0477630ce21a2ce334aa746c2cd",
            "c782dc4c098c66cbd9cd27d825682c81",
            b"This is a 48-byte message (exactly 3 AES blocks)".to_vec(),
            "d0a02b3836451753d493665d33f0e8862dea54cdb293abc7506939276772f8d5\
             021c19216bad525c8579695d83ba2684",
        ),
        (
            "56e47a38c5598974bc46903dba290349",
            "8ce82eefbea0da3c44699ed7db51b7d9",
            (0xA0..0xE0).collect(),
            "c30e32ffedc0774e6aff6af0869f71aa0f3af07a9a31a9c684db207eb0ef8e4e\
             35907aa632c3ffdf868bb7b29d3d46ad83ce9f9a102ee99d49a53e87f4c3da55",
        ),
    ] {
        let association = association(key, vec![0; 16]);
        let vector = bytes(vector).try_into().expect("16 bytes");
        let mut text = plain.clone();
        assert!(association.encrypt(vector, &mut text));
        assert_eq!(text, bytes(encrypted));
        assert!(association.decrypt(vector, &mut text));
        assert_eq!(text, plain);
        assert!(!association.encrypt(vector, &mut text[1..]));
        assert!(!association.decrypt(vector, &mut text[1..]));
    }
}

#[test]
fn hmac_is_cut_to_96_bits_as_rfc_2404_says() {
    // RFC 2202 section 3, cases 1, 5 and one of a long text.
    for (key, data, value) in [
        (vec![0x0B; 20], b"Hi There".to_vec(), "b617318655057264e28bc0b6"),
        (vec![0x0C; 20], b"Test With Truncation".to_vec(), "4c1a03424b55e07fe7f27be1"),
        (vec![0xAA; 20], vec![0xDD; 50], "125d7342b9ac11cd91a39af4"),
    ] {
        let association = association("06a9214036b8a15b512e03d534120006", key);
        let value: [u8; 12] = bytes(value).try_into().expect("12 bytes");
        assert_eq!(association.sign(&data), value);
        assert!(association.is_signed(&data, &value));
        for bit in 0..96 {
            let mut wrong = value;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!association.is_signed(&data, &wrong));
        }
    }
}

#[test]
fn windows_take_each_number_once() {
    let mut window = Window::new(4, 1);
    assert_eq!(window.take(0), Err(Replay::Old));
    for (number, taken) in [
        (1, Ok(())),
        (1, Err(Replay::Seen)),
        (3, Ok(())),
        (2, Ok(())),
        (2, Err(Replay::Seen)),
        (7, Ok(())),
        (3, Err(Replay::Old)),
        (4, Ok(())),
        (4, Err(Replay::Seen)),
        (u32::MAX, Ok(())),
        (u32::MAX, Err(Replay::Seen)),
        (7, Err(Replay::Old)),
        (u32::MAX - 3, Ok(())),
        (u32::MAX - 4, Err(Replay::Old)),
    ] {
        assert_eq!(window.take(number), taken, "{number}");
    }
    let mut largest = Window::new(1000, 500);
    assert_eq!(largest.take(700), Ok(()));
    assert_eq!(largest.take(573), Ok(()));
    assert_eq!(largest.take(572), Err(Replay::Old));
}

#[test]
fn sequence_numbers_are_not_used_twice() {
    let keys = Keys { encryption: [1; 16], authentication: vec![2; 16], first: u32::MAX, window: 64 };
    let association = Association::new(1, keys, 3).expect("good keys");
    assert_eq!((association.next(), association.next()), (Some(u32::MAX), None));
    assert_ne!(association.vector(1, 0), association.vector(2, 0));
}

const KEYS: &str = "7 \\<000102030405060708090a0b0c0d0e0f> \\<101112131415161718191a1b1c1d1e1f> 1 64";

/// A tunnel from one table to another, and what stands between on either side.
fn tunnel(out: &str, back: &str) -> Run {
    run(&format!(
        "a::RadixIPsecLookup(10.0.0.0/8 192.0.2.2 1 {KEYS}, 0/0 2);
         b::RadixIPsecLookup(192.0.2.2/32 0, 10.0.0.0/8 - 1 {KEYS}, 0/0 2);
         InfiniteSource(DATA \"some secret words\", LIMIT 3, STOP true)
             -> UDPIPEncap(1.1.1.1, 5, 10.9.9.9, 7) -> a;
         a[0] -> Discard; a[2] -> Discard;
         a[1] -> {out} -> IPsecEncap(50) -> FixIPSrc(192.0.2.1) -> CheckIPHeader -> b;
         b[0] -> StripIPHeader -> {back} -> CheckIPHeader(VERBOSE true) -> CheckUDPHeader(VERBOSE true)
              -> c::Counter -> IPPrint(got, TTL true, LENGTH true) -> Discard;
         b[1] -> Discard; b[2] -> other::Counter -> Discard;"
    ))
}

const BY_RFC: [&str; 2] = [
    "IPsecESPEncap -> IPsecAES(1) -> IPsecAuthHMACSHA1(0)",
    "auth::IPsecAuthHMACSHA1(1) -> IPsecAES(0) -> IPsecESPUnencap",
];
const BY_CLICK: [&str; 2] = [
    "IPsecESPEncap -> IPsecAuthHMACSHA1(0) -> IPsecAES(1)",
    "IPsecAES(0) -> auth::IPsecAuthHMACSHA1(1) -> IPsecESPUnencap",
];

#[test]
fn packets_pass_tunnels() {
    for [out, back] in [BY_RFC, BY_CLICK] {
        let run = tunnel(out, back);
        assert_eq!(run.errors, Vec::<String>::new());
        assert_eq!(run.read("c.count"), "3", "{:?}", run.said());
        let said = run.said();
        assert!(said.iter().all(|line| line.contains("1.1.1.1.5 > 10.9.9.9.7: udp 25")), "{said:?}");
    }
}

#[test]
fn replayed_and_changed_packets_are_refused() {
    for [out, back] in [BY_RFC, BY_CLICK] {
        let again = run(&format!(
            "a::RadixIPsecLookup(10.0.0.0/8 192.0.2.2 1 {KEYS});
             b::RadixIPsecLookup(192.0.2.2/32 0, 10.0.0.0/8 - 1 {KEYS});
             InfiniteSource(DATA words, LIMIT 3, STOP true) -> UDPIPEncap(1.1.1.1, 5, 10.9.9.9, 7) -> a;
             a[0] -> Discard;
             a[1] -> {out} -> IPsecEncap(50) -> t::Tee -> CheckIPHeader -> b;
             t[1] -> CheckIPHeader -> b;
             b[0] -> StripIPHeader -> {back} -> c::Counter -> Discard; b[1] -> Discard;"
        ));
        assert_eq!(again.read("c.count"), "3");
        assert_eq!(again.said(), ["Replay protection: This packet is already seen..."; 3]);
        // From the SPI (which then is unknown) to the value at the end, each byte is covered.
        let changed = tunnel(out, &format!("StoreData(30, \\<FFFF>) -> {back}"));
        assert_eq!((changed.read("c.count"), changed.read("auth.drops")), ("0".into(), "3".into()));
        assert_eq!(changed.said(), ["Invalid SHA1 authentication digest"]);
    }
}

#[test]
fn packets_without_authentication_are_refused() {
    let run = tunnel("IPsecESPEncap", "IPsecESPUnencap -> auth::Null");
    assert_eq!(run.read("c.count"), "0");
    assert_eq!(run.said().len(), 3);
    assert!(run.said()[0].ends_with("packet was not authenticated"), "{:?}", run.said());
}

#[test]
fn hostile_packets_are_dropped() {
    // ESP packets of all lengths, with an SPI that is known.
    let mut configuration = format!(
        "b::RadixIPsecLookup(0/0 0 , 10.0.0.0/8 - 1 {KEYS}, 9.9.9.9/32 2);
         b[0] -> StripIPHeader -> t::Tee(3) -> IPsecAuthHMACSHA1(1) -> IPsecAES(0) -> IPsecESPUnencap -> Discard;
         t[1] -> IPsecAES(0) -> IPsecAuthHMACSHA1(1) -> IPsecESPUnencap -> Discard;
         t[2] -> IPsecESPUnencap -> Discard; b[1] -> Discard; b[2] -> c::Counter -> Discard; "
    );
    for length in 0..60 {
        let data = format!("00000007{}", "AB".repeat(length));
        configuration += &format!(
            "InfiniteSource(DATA \\<{data}>, LIMIT 1) -> Truncate({length}) -> IPEncap(50, 1.1.1.1, 2.2.2.2) -> b; "
        );
    }
    configuration += "InfiniteSource(DATA x, LIMIT 2) -> IPEncap(17, 1.1.1.1, 2.2.2.2) -> b; ";
    let run = run(&configuration);
    assert_eq!(run.errors, Vec::<String>::new());
    assert_eq!(run.read("c.count"), "2");
}

#[test]
fn routes_change_by_handlers() {
    let run = build(&format!(
        "Idle -> b::RadixIPsecLookup(10.0.0.0/8 1.2.3.4 1 {KEYS}, 0/0 0); b[0] -> Discard; b[1] -> Discard"
    ));
    assert_eq!(run.errors, Vec::<String>::new());
    let table = run.read("b.table");
    assert!(table.starts_with("10.0.0.0/8\t\t1.2.3.4\t\t1  |TUNNELED CONNECTION|"), "{table}");
    assert!(!table.contains("0001020304"), "keys do not show: {table}");
    assert_eq!(run.read("b.lookup 10.1.1.1"), "1 1.2.3.4");
    assert_eq!(run.write("b.add 10.0.0.0/8 0"), "conflict with existing route '10.0.0.0/8 1.2.3.4 1'");
    assert_eq!(run.write("b.remove 10.0.0.0/8 1.2.3.4 1"), "");
    assert_eq!(run.read("b.lookup 10.1.1.1"), "0");
    assert_eq!(run.write(&format!("b.set 11.0.0.0/8 1 {KEYS}")), "");
    assert_eq!(run.read("b.lookup 11.1.1.1"), "1");
    assert_eq!(run.write("b.remove 12.0.0.0/8"), "route '12.0.0.0/8 - -1' not found");
}

#[test]
fn bad_routes_are_refused() {
    for route in ["10.0.0.0/8 1 7 short short 1 64", "10.0.0.0/8 1 7", "10.0.0.0/8 9", "x 1"] {
        let run = build(&format!("Idle -> b::RadixIPsecLookup({route}); b[0] -> Discard; b[1] -> Discard"));
        let error = "argument 1 should be 'ADDR/MASK [GATEWAY] OUTPUT'";
        assert!(run.errors.iter().any(|line| line.ends_with(error)), "{route}: {:?}", run.errors);
    }
}

#[test]
fn runs_with_the_same_seed_send_the_same_packets() {
    let sent = || {
        let run = run(&format!(
            "a::RadixIPsecLookup(10.0.0.0/8 192.0.2.2 1 {KEYS}); a[0] -> Discard;
             InfiniteSource(DATA words, LIMIT 3, STOP true) -> UDPIPEncap(1.1.1.1, 5, 10.9.9.9, 7) -> a;
             a[1] -> IPsecESPEncap -> IPsecAES(1) -> Print(MAXLENGTH 100) -> Discard;"
        ));
        assert_eq!((run.errors.len(), run.said().len()), (0, 3));
        run.said()
    };
    assert_eq!(sent(), sent());
    // Nobody who does not know the run's secret foresees the vectors, and a later first packet has others.
    let of = |secret: u64, now: u64| {
        let keys = Keys { encryption: [1; 16], authentication: vec![2; 16], first: 1, window: 64 };
        Association::new(1, keys, secret).expect("good keys").vector(1, now)
    };
    assert_eq!(of(1, 5), of(1, 5));
    assert!(of(1, 5) != of(2, 5) && of(1, 5) != of(1, 6));
}
