//! A file with another list in the place of one that a function's table has.

use super::document::parse;
use crate::diagnostic::Diagnostics;

/// Characters of a list that stands on one line; a longer one has a line for each item.
const ON_ONE_LINE: usize = 80;

/// The text with this list as a key of a function.
///
/// `None` where the function has no table of its own.
pub(crate) fn with_list(text: &str, function: &str, key: &str, items: &[String]) -> Option<String> {
    let document = parse(text, &mut Diagnostics::default());
    let entry = document.functions.iter().find(|entry| entry.name.get_ref() == function)?;
    let items: Vec<String> = items.iter().map(|item| toml::Value::from(item.as_str()).to_string()).collect();
    let one = items.join(", ");
    let list = match one.chars().count() > ON_ONE_LINE {
        true => format!("[\n    {},\n]", items.join(",\n    ")),
        false => format!("[{one}]"),
    };
    if let Some(known) = entry.settings.get_ref().get(key) {
        let span = known.span();
        return Some(format!("{}{list}{}", text.get(..span.start)?, text.get(span.end..)?));
    }
    let header = entry.settings.span();
    // An inline table has its keys within braces.
    let is_header = text.get(header.clone())?.starts_with('[');
    let end = header.end + text.get(header.end..)?.find('\n')? + 1;
    is_header.then(|| format!("{}{key} = {list}\n{}", &text[..end], &text[end..]))
}

/// The text with this key of a function as a comment, where the function has it.
///
/// `None` where it has no line of its own.
pub(crate) fn without(text: &str, function: &str, key: &str) -> Option<String> {
    let document = parse(text, &mut Diagnostics::default());
    let entry = document.functions.iter().find(|entry| entry.name.get_ref() == function)?;
    let Some(known) = entry.settings.get_ref().get(key) else { return Some(text.to_owned()) };
    let value = known.span();
    let start = text.get(..value.start)?.rfind('\n').map_or(0, |end| end + 1);
    let (before, rest) = (text.get(start..value.start)?, text.get(value.clone())?);
    let is_its = before.split('=').next().is_some_and(|name| name.trim() == key) && !rest.contains('\n');
    is_its.then(|| format!("{}# {}", &text[..start], &text[start..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    #[test]
    fn a_list_comes_in_the_place_of_another_and_all_else_stays() {
        let text = "# edge\n[function.fib] # routes\nuse = \"lpm\"\nroutes = [ # two\n \"10.0.0.0/8 1\", \"11.0.0.0/8 2\" ] # end\n\
                    count = true\n[function.other]\nuse = \"lpm\"\n";
        let expected = text.replace("[ # two\n \"10.0.0.0/8 1\", \"11.0.0.0/8 2\" ]", "[\"12.0.0.0/8 3\"]");
        assert_eq!(with_list(text, "fib", "routes", &list(&["12.0.0.0/8 3"])), Some(expected));
        let long = (0..20).map(|route| format!("10.{route}.0.0/16 7")).collect::<Vec<_>>();
        let other = with_list(text, "other", "routes", &long).unwrap();
        assert!(other.contains("[function.other]\nroutes = [\n    \"10.0.0.0/16 7\",\n"), "{other}");
        let again = with_list(&other, "other", "routes", &list(&[])).unwrap();
        assert_eq!(again, text.replace("[function.other]\n", "[function.other]\nroutes = []\n"));
        assert_eq!(with_list(text, "none", "routes", &long), None);
        let other = without(text, "fib", "count").unwrap();
        assert_eq!(other, text.replace("count = true", "# count = true"));
        assert_eq!(without(text, "other", "count").as_deref(), Some(text));
        assert_eq!(without(text, "fib", "routes"), None, "it has several lines");
        assert_eq!(without("function = { fib = { use = \"lpm\", count = true } }\n", "fib", "count"), None);
        assert_eq!(with_list("function = { fib = { use = \"lpm\" } }\n", "fib", "routes", &long), None);
    }
}
