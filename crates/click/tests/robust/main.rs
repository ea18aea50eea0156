//! No text, packet or request breaks the crate: random ones, and those that once did.

#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;

use proptest::prelude::*;

fn deciding_text() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "ip ",
        "proto ",
        "tcp ",
        "udp ",
        "src ",
        "dst ",
        "host ",
        "net ",
        "port ",
        "1.2.3.4",
        "/8 ",
        "and ",
        "or ",
        "not ",
        "( ",
        ") ",
        "12/0800 ",
        "0/45?? ",
        "%ff ",
        ", ",
        "-",
        "ttl ",
        ">= ",
        "5 ",
        "icmp type ",
        "echo ",
        "frag ",
        "tcp opt syn ",
        "ip vers 4 ",
        "ip[0:4] ",
        "& ",
        "= ",
    ]);
    prop::collection::vec(words, 0..12).prop_map(|words| words.concat().into_bytes())
}

/// Lines of a client, some of whose data follows.
fn request_text() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "read ",
        "writedata a ",
        "readdata a ",
        "readuntil b END",
        "END",
        "writeuntil c ",
        "llrpc d#1 ",
        "quit",
        "5",
        "3",
        "\r",
        "\n",
        "\r\n",
        "xyz",
        " ",
        "check",
        "help",
    ]);
    prop::collection::vec(words, 0..20).prop_map(|words| words.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn flat_text_gives_the_same_configuration(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        exercise::language(&bytes);
        exercise::language(exercise::written(&bytes).as_bytes());
    }

    #[test]
    fn configurations_are_refused_or_run(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        exercise::configuration(&exercise::written(&bytes));
    }

    #[test]
    fn expressions_decide_about_any_packet(
        class in any::<u8>(), text in deciding_text(), packet in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        exercise::filter(&[&[class], &text[..], &[0], &packet].concat());
    }

    #[test]
    fn pieces_give_the_requests_of_the_whole(size in 0..8_u8, text in request_text()) {
        exercise::control_socket(&[&[size], &text[..]].concat());
    }
}

#[test]
fn a_class_with_several_bodies_that_extends_another_is_no_cycle() {
    let text = "elementclass Foo { $a | input -> output }
        elementclass Foo { $a, $b | input -> output || $a, $b, $c | input -> output || ... }
        Idle -> Foo(1, 2, 3, 4) -> Discard; Idle -> Foo(1) -> Foo(1, 2) -> Foo(1, 2, 3) -> Discard;";
    exercise::language(text.as_bytes());
    exercise::language(text.replace("Foo(1, 2, 3, 4)", "Foo(1)").as_bytes());
}

#[test]
fn quotes_around_a_variable_that_contains_itself_come_to_an_end() {
    exercise::language(b"define($a \"$a\" $a) Idle(\"$a\") -> Discard;");
    exercise::language(b"elementclass A { __REST__ $r | Idle(\"$r\") -> Discard } A(\"$r\n\", \"$r\" $r);");
}
