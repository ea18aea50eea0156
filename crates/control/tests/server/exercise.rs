//! Bodies of requests, compared with what a naive reader finds in them.

use netbricks_control::api::{CallArgument, Code, Problem, Source, read};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// The outcome of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is a file.
    File(Source),
    /// It is the argument of a handler.
    Argument(CallArgument),
    /// It is refused.
    Refused,
}

/// Reads a body as a file, or, where its first byte is odd, as the argument of a handler.
///
/// # Panics
/// When the reader differs from the naive one, or a refusal does not say where the fault is.
pub fn api_body(bytes: &[u8]) -> Outcome {
    let Some((choice, json)) = bytes.split_first() else { return Outcome::Refused };
    // The reader also takes members in their order, without names; the naive one does not.
    let known = serde_json::from_slice(json).ok();
    if choice % 2 == 0 {
        judge(json, read(json), known.map(|members| file(&members))).map_or(Outcome::Refused, Outcome::File)
    } else {
        judge(json, read(json), known.map(|members| argument(&members)))
            .map_or(Outcome::Refused, Outcome::Argument)
    }
}

fn judge<T: PartialEq + std::fmt::Debug>(
    json: &[u8],
    result: Result<T, Problem>,
    known: Option<Option<T>>,
) -> Option<T> {
    let read = result.map_err(|problem| {
        assert_eq!((problem.code, problem.places.len()), (Code::BadRequest, 1));
        let lines = json.iter().filter(|byte| **byte == b'\n').count() + 1;
        assert!(problem.places[0].line <= lines, "{problem}");
        assert!(problem.places[0].column <= json.len(), "{problem}");
    });
    if let Some(known) = known {
        assert_eq!(read.as_ref().ok(), known.as_ref());
    }
    read.ok()
}

/// The members of an object, in their order.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Collect)
    }
}

struct Collect;

impl<'de> Visitor<'de> for Collect {
    type Value = Members;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

impl Members {
    /// The only member of this name.
    fn only(&self, name: &str) -> Option<&Value> {
        let mut found = self.0.iter().filter(|(known, _)| known == name);
        found.next().filter(|_| found.next().is_none()).map(|(_, value)| value)
    }
    fn text(&self, name: &str) -> Option<String> {
        self.only(name)?.as_str().map(Into::into)
    }
}

fn file(members: &Members) -> Option<Source> {
    let (text, name, directory) = (members.text("text")?, members.text("name")?, members.text("directory")?);
    (members.0.len() == 3).then_some(Source { text, name, directory })
}

fn argument(members: &Members) -> Option<CallArgument> {
    let value = members.text("value")?;
    let worker = match members.only("worker") {
        None if members.0.len() == 1 => return Some(CallArgument { value, worker: None }),
        None => return None,
        Some(Value::Null) => None,
        Some(number) => Some(usize::try_from(number.as_u64()?).ok()?),
    };
    (members.0.len() == 2).then_some(CallArgument { value, worker })
}
