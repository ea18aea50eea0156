//! The work for a packet: it grows as its bytes do, however the bytes are chosen.

use netbricks_testkit::run_configured;

use super::{settings, udp};
use crate::signature::evaluate::MOST_PLACES;
use crate::signature::{HISTORY, signature, work};

/// The work for a packet of these bytes.
fn spent(rule: &str, bytes: &[u8]) -> u64 {
    work::take();
    run_configured(signature::<HISTORY>, settings(&[rule]), [udp(53, bytes)]);
    work::take()
}

#[test]
fn work_grows_as_the_bytes_do() {
    // In each payload every position is one where the parts so far may end.
    let parts = [
        r#"content:"a"; content:!"b"; distance:0;"#,
        r#"content:"a"; content:!"b"; distance:-3; within:60000;"#,
        r#"content:"a"; content:!"ab"; distance:0; nocase; endswith;"#,
        r#"content:"a"; content:"aa"; distance:0; content:!"b"; distance:1;"#,
        r#"content:"a"; content:"aaaaaaaa"; distance:0; content:"aaaaaaaa"; distance:10000;"#,
        r#"content:"a"; pcre:"/^a+b/R";"#,
        r#"content:"a"; pcre:"/\ba+b/R";"#,
        r#"content:"a"; pcre:"/a[^b]*b/R";"#,
        r#"content:"a"; pcre:!"/a[^b]*b/R";"#,
        r#"content:"a"; pcre:!"/a[^c]*$/R"; pcre:"/a$/R";"#,
        r#"content:"a"; isdataat:50000,relative;"#,
    ];
    let (few, many) = (vec![b'a'; 800], vec![b'a'; 6_400]);
    for parts in parts {
        let rule = format!("alert udp any any -> any any ({parts} sid:1;)");
        let (less, more) = (spent(&rule, &few), spent(&rule, &many));
        assert!(less > 0, "{parts}");
        // Eight times the bytes, with a little more for the halvings of a search by order.
        assert!(more <= 12 * less, "{parts}: {less} for 800 bytes, {more} for 6,400");
    }
}

#[test]
fn an_expression_that_looks_behind_is_denied_at_a_bounded_number_of_places() {
    let rule = r#"alert udp any any -> any any (content:"a"; pcre:!"/^a+b/R"; sid:1;)"#;
    let bytes = vec![b'a'; 6_400];
    // At each batch size, once.
    assert!(spent(rule, &bytes) <= 3 * (MOST_PLACES as u64 + 2) * bytes.len() as u64);
}
