//! The source as it is written: every name that could reach further, under every condition.
//!
//! Lints see the code of one configuration, after macros are expanded. This looks at the trees of all files instead, and
//! at the words inside macros, and refuses what it does not know.

mod check;
mod names;
mod sources;
mod words;

pub(crate) use names::{Names, Root};
pub(crate) use sources::Sources;

use std::path::Path;

use proc_macro2::Span;

use crate::Finding;

/// Everything that the sources of a crate break.
pub(crate) fn findings(folder: &Path, sources: &Sources, names: &Names) -> Vec<Finding> {
    let mut findings = sources.findings.clone();
    for (path, file) in &sources.files {
        let shown = path.strip_prefix(folder).unwrap_or(path);
        findings.append(&mut check::file(shown, file, names));
    }
    findings
}

/// The names of the macros that a crate defines by `macro_rules!`.
pub(crate) fn own_macros(sources: &Sources) -> Vec<String> {
    sources.files.iter().flat_map(|(_, file)| check::own_macros(file)).collect()
}

/// Line and column of a place, from 1.
fn line_column(span: Span) -> (usize, usize) {
    let start = span.start();
    (start.line, start.column + 1)
}

/// An identifier without the mark of a raw one, which changes nothing about what it names.
fn plain(name: &impl ToString) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").map(str::to_owned).unwrap_or(name)
}

/// The text of a string literal.
fn literal_text(value: &syn::Expr) -> Option<String> {
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// Whether an attribute leaves its item out of all builds but those of tests: `cfg(test)` or `cfg(all(test, …))`.
fn is_test_only(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("cfg")
        && syn::parse2::<syn::Meta>(list.tokens.clone()).is_ok_and(|meta| asks_for_test(&meta))
}

fn asks_for_test(meta: &syn::Meta) -> bool {
    match meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("all") => {
            let parser = syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
            let parts = syn::parse::Parser::parse2(parser, list.tokens.clone());
            parts.is_ok_and(|parts| parts.iter().any(asks_for_test))
        }
        _ => false,
    }
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    use syn::Item;
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
