//! Bodies of requests: random, mutated and right ones.

use netbricks_control::api::{CallArgument, Source};
use proptest::prelude::*;

use crate::exercise::{Outcome, api_body};

/// JSON that is a body, or nearly.
fn json() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        6 => prop::sample::select(vec!["text", "name", "directory", "value", "worker"]).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    let value = prop_oneof![
        4 => any::<String>().prop_map(serde_json::Value::from),
        1 => any::<u64>().prop_map(serde_json::Value::from),
        1 => any::<i8>().prop_map(serde_json::Value::from),
        1 => Just(serde_json::Value::Null),
    ];
    prop::collection::vec((name, value), 0..4).prop_map(|members| {
        let members: Vec<String> = members
            .into_iter()
            .map(|(name, value)| format!("{}:\n{value}", serde_json::Value::from(name)))
            .collect();
        format!("{{{}}}", members.join(",")).into_bytes()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn objects_with_any_members(choice in any::<u8>(), json in json()) {
        api_body(&[&[choice], &json[..]].concat());
    }

    #[test]
    fn right_bodies_are_taken_and_changed_ones_do_no_harm(
        text in any::<String>(), worker in any::<Option<usize>>(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let source = Source { text: text.clone(), name: "n".into(), directory: "/".into() };
        let argument = CallArgument { value: text, worker };
        let bodies = [
            (0, serde_json::to_vec(&source).expect("JSON"), Outcome::File(source)),
            (1, serde_json::to_vec(&argument).expect("JSON"), Outcome::Argument(argument)),
        ];
        for (choice, json, expected) in bodies {
            let mut body = [&[choice], &json[..]].concat();
            prop_assert_eq!(api_body(&body), expected);
            let place = at.index(body.len());
            body[place] = byte;
            api_body(&body);
            api_body(&body[..place]);
        }
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        api_body(&bytes);
    }
}
