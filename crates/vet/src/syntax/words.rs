//! The words inside macros, which have no tree: what they could become is refused by the words themselves.

use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};

use super::{Names, plain};
use crate::{Rule, standard};

/// A place, the rule that is broken there, and what it says.
pub(super) type Found = (Span, Rule, String);

/// How the words of a macro become code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// As expressions, types and items of a macro that is known.
    Known,
    /// In any way: a macro of the crate itself, or its definition.
    Own,
}

/// Everything that these words break.
pub(super) fn findings(words: TokenStream, names: &Names, how: Use, found: &mut Vec<Found>) {
    let words: Vec<TokenTree> = words.into_iter().collect();
    for (at, word) in words.iter().enumerate() {
        match word {
            TokenTree::Group(group) => findings(group.stream(), names, how, found),
            TokenTree::Ident(ident) => {
                let name = plain(ident);
                let before = at.checked_sub(1).map(|before| &words[before]);
                // `'static` is a lifetime.
                if !is_punct(before, '\'') {
                    keyword(ident.span(), &ident.to_string(), how, found);
                }
                if names.is_root(&name) {
                    path(before, &words[at..], ident.span(), names, how, found);
                }
                if is_punct(words.get(at + 1), '!') && matches!(words.get(at + 2), Some(TokenTree::Group(_)))
                {
                    invocation(before, &words[at..], names, how, found);
                }
            }
            TokenTree::Punct(punct) if how == Use::Own && punct.as_char() == '!' => {
                let before = at.checked_sub(1).map(|before| &words[before]);
                // `$($word)* !(…)` and `$word !(…)`: the macro's name comes from outside.
                let repeated = ['*', '+', '?'].iter().any(|mark| is_punct(before, *mark));
                let after_repetition = repeated
                    && matches!(at.checked_sub(2).map(|group| &words[group]), Some(TokenTree::Group(group))
                        if group.delimiter() == Delimiter::Parenthesis)
                    && is_punct(at.checked_sub(3).map(|dollar| &words[dollar]), '$');
                if after_repetition && matches!(words.get(at + 1), Some(TokenTree::Group(_))) {
                    let text = "the name of a macro is an argument of another: it cannot be followed";
                    found.push((punct.span(), Rule::Macro, text.to_owned()));
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => (),
        }
    }
}

/// Words that a macro could turn into what the tree would have shown.
fn keyword(span: Span, name: &str, how: Use, found: &mut Vec<Found>) {
    let (rule, text) = match name {
        "unsafe" => (Rule::Unsafe, "`unsafe` inside a macro"),
        "extern" => (Rule::ForeignCode, "`extern` inside a macro"),
        "static" => (Rule::Static, "a static inside a macro"),
        "mod" if how == Use::Own => (Rule::OutsideFile, "a module that a macro declares cannot be followed"),
        "no_mangle" | "export_name" | "link_section" | "link" if how == Use::Own => {
            (Rule::ForeignCode, "a symbol that a macro names")
        }
        _ => return,
    };
    found.push((span, rule, text.to_owned()));
}

/// A macro that is called inside a macro.
fn invocation(
    before: Option<&TokenTree>,
    words: &[TokenTree],
    names: &Names,
    how: Use,
    found: &mut Vec<Found>,
) {
    let TokenTree::Ident(ident) = &words[0] else { return };
    let name = plain(ident);
    // `return !(…)` and the like negate.
    if ["return", "in", "if", "while", "match", "else", "break", "move", "as", "mut", "let"]
        .contains(&name.as_str())
    {
        return;
    }
    if is_punct(before, '$') {
        if how == Use::Own && name != "crate" {
            let text =
                format!("the name of the macro `${name}!` is an argument of another: it cannot be followed");
            found.push((ident.span(), Rule::Macro, text));
        }
        return;
    }
    // Behind `::` the path decides, and `$crate::` is the crate that defines the macro.
    let refused = match is_colon(before) {
        true => standard::refused_macro(&name)
            .map(|rule| (rule, format!("`{name}!` reaches further than the crate"))),
        false => names.refused_macro(&name),
    };
    found.extend(refused.map(|(rule, text)| (ident.span(), rule, text)));
}

/// A path from the name of a crate.
///
/// It may stand behind `::`, where two arguments of a macro meet.
fn path(
    before: Option<&TokenTree>,
    words: &[TokenTree],
    span: Span,
    names: &Names,
    how: Use,
    found: &mut Vec<Found>,
) {
    let TokenTree::Ident(root) = &words[0] else { return };
    let root = plain(root);
    if !(is_punct(words.get(1), ':') && is_punct(words.get(2), ':')) {
        // An attribute of a derive has its crate's name: `#[serde(…)]`.
        let is_attribute = matches!(words.get(1), Some(TokenTree::Group(_)));
        let is_system = standard::SYSTEM_CRATES.contains(&root.as_str());
        if is_punct(before, '.') || is_colon(before) {
            return;
        }
        if how == Use::Own && (is_system || !is_attribute) || root == "std" {
            let text = format!("`{root}` alone inside a macro: what it begins cannot be followed");
            found.push((span, Rule::Macro, text));
        }
        return;
    }
    below(&mut vec![root], &words[3..], span, names, found);
}

/// The rest of a path, behind `::`, with every branch of a `use`.
fn below(path: &mut Vec<String>, words: &[TokenTree], span: Span, names: &Names, found: &mut Vec<Found>) {
    let depth = path.len();
    let mut at = 0;
    loop {
        match words.get(at) {
            Some(TokenTree::Ident(ident)) => path.push(plain(ident)),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for branch in
                    inner.split(|word| matches!(word, TokenTree::Punct(punct) if punct.as_char() == ','))
                {
                    if !branch.is_empty() {
                        below(path, branch, span, names, found);
                    }
                }
                path.truncate(depth);
                return;
            }
            Some(TokenTree::Punct(punct)) if punct.as_char() == '$' => path.push("$".to_owned()),
            // A glob names everything in the module; generics name nothing that matters here.
            _ => break,
        }
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
            break;
        }
        if !(is_punct(words.get(at + 1), ':') && is_punct(words.get(at + 2), ':')) {
            break;
        }
        at += 3;
    }
    found.extend(names.refused(path).map(|(rule, text)| (span, rule, text)));
    path.truncate(depth);
}

fn is_punct(word: Option<&TokenTree>, mark: char) -> bool {
    matches!(word, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

/// Whether this may be the end of `::`.
fn is_colon(word: Option<&TokenTree>) -> bool {
    matches!(word, Some(TokenTree::Punct(punct)) if punct.as_char() == ':' && punct.spacing() == Spacing::Alone)
}
