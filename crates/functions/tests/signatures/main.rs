//! Rules of all kinds, also broken ones, over streams that are cut anywhere.
#![forbid(unsafe_code)]

#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;

use netbricks_testkit::mutate::Random;

const RULES: [&str; 9] = [
    r#"alert tcp-stream any any -> any any (content:"needle"; sid:1;)"#,
    r#"alert tcp-stream any any -> any any (content:"ne"; nocase; content:"le"; distance:-1; within:6; sid:2;)"#,
    r#"alert tcp-stream any any -> any any (content:"e"; offset:3; depth:9; content:!"d"; distance:0; within:2; sid:3;)"#,
    r#"alert tcp-stream any any -> any any (pcre:"/n.{1,5}e[^d]/i"; sid:4;)"#,
    r#"alert tcp-stream any any -> any any (content:"d"; pcre:"/^l?e/R"; sid:5;)"#,
    r#"alert tcp-stream any any -> any any (pcre:"/\bneed/"; content:"n"; distance:1; sid:6;)"#,
    r#"alert tcp-stream any any -> any any (pcre:"/le$/m"; isdataat:2,relative; sid:7;)"#,
    r#"alert tcp-stream any 1000 <> any 80 (flow:to_server,established; content:"|6e 65|"; startswith; sid:8;)"#,
    r#"alert udp any any -> any any (content:"x"; flowbits:set,a; threshold:type limit, track by_src, count 1, seconds 1; sid:9;)"#,
];

#[test]
fn rules_match_in_pieces_as_in_the_whole() {
    let mut random = Random::new(5);
    for _ in 0..300 {
        let mut input = Vec::new();
        for _ in 0..1 + random.below(4) {
            input.extend(RULES[random.below(RULES.len())].bytes());
            input.push(b'\n');
        }
        input.extend([0, random.below(256) as u8]);
        let words = ["needle", "ne", "Ed", "le\n", "edle ", "n", "d"];
        (0..random.below(40)).for_each(|_| input.extend(words[random.below(words.len())].bytes()));
        // Half of them have an error somewhere.
        for _ in 0..random.below(4) / 2 {
            let at = random.below(input.len());
            input[at] = random.below(128) as u8;
        }
        exercise::signatures(&input);
    }
}
