//! Reading JSON that a stranger sent.

use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::{Code, Place, Problem};

/// Reads a JSON document.
///
/// # Errors
/// [`Code::BadRequest`] with the place of the first fault.
pub fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(json).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let whole = error.to_string();
        // The place has a field of its own.
        let message = whole.split(" at line ").next().unwrap_or(&whole).to_owned();
        let kind = match error.classify() {
            Category::Data => "the JSON body does not fit",
            _ if json.is_empty() => "there is no body; JSON is expected",
            _ => "the body is no JSON",
        };
        let mut problem =
            Problem::new(Code::BadRequest, format!("{kind}: line {line}, column {column}: {message}"));
        problem.places.push(Place { line, column, message });
        problem
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::CallArgument;

    #[test]
    fn faults_have_a_place() {
        let problem = read::<CallArgument>(b"{\n \"value\": 1}").expect_err("no string");
        assert_eq!(problem.code, Code::BadRequest);
        assert_eq!((problem.places[0].line, problem.places[0].column), (2, 11));
        assert!(problem.detail.contains("expected a string"), "{problem}");
        for wrong in ["", "{", "[]", "{\"value\":\"\",\"more\":1}", "\u{0}", "{\"value\":\"\"} x"] {
            assert!(read::<CallArgument>(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
