//! One file's tree: each item, path, macro and attribute in it.

use std::path::Path;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::words::{self, Use};
use super::{Names, attributes_of, is_test_only, line_column, literal_text, plain};
use crate::{Finding, Rule, standard};

/// Everything that a file breaks.
pub(super) fn file(shown: &Path, file: &syn::File, names: &Names) -> Vec<Finding> {
    let mut check = Check { shown, names, findings: Vec::new() };
    check.visit_file(file);
    check.findings
}

/// The names of the macros that a file defines.
pub(super) fn own_macros(file: &syn::File) -> Vec<String> {
    struct Defined(Vec<String>);
    impl<'ast> Visit<'ast> for Defined {
        fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
            self.0.extend(item.ident.as_ref().map(plain));
        }
    }
    let mut defined = Defined(Vec::new());
    defined.visit_file(file);
    defined.0
}

struct Check<'a> {
    shown: &'a Path,
    names: &'a Names,
    findings: Vec<Finding>,
}

impl Check<'_> {
    fn find(&mut self, span: Span, rule: Rule, text: impl Into<String>) {
        self.findings.push(Finding::new(rule, self.shown, line_column(span), text));
    }

    fn words(&mut self, words: TokenStream, how: Use) {
        let mut found = Vec::new();
        words::findings(words, self.names, how, &mut found);
        found.into_iter().for_each(|(span, rule, text)| self.find(span, rule, text));
    }

    /// A path by its segments, where the first may be a crate.
    fn path(&mut self, span: Span, segments: &[String]) {
        if let Some((rule, text)) = self.names.refused(segments) {
            self.find(span, rule, text);
        }
    }

    /// Every branch of a `use`, from the crate's name on.
    fn use_tree(&mut self, tree: &syn::UseTree, path: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(part) => {
                path.push(plain(&part.ident));
                self.use_tree(&part.tree, path);
                path.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|branch| self.use_tree(branch, path)),
            syn::UseTree::Glob(_) => self.path(tree.span(), path),
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                if let syn::UseTree::Rename(syn::UseRename { ident, rename, .. }) = tree
                    && standard::refused_macro(&plain(ident)).is_some()
                {
                    let text =
                        format!("`{ident}` under the name of `{rename}` is a macro that cannot be followed");
                    self.find(tree.span(), Rule::Macro, text);
                }
                let whole = ident == "self";
                path.extend((!whole).then(|| plain(ident)));
                self.path(tree.span(), path);
                path.truncate(path.len() - usize::from(!whole));
            }
        }
    }

    fn signature(&mut self, signature: &syn::Signature) {
        if let Some(word) = &signature.unsafety {
            self.find(word.span(), Rule::Unsafe, "an `unsafe` function");
        }
        if let Some(abi) = &signature.abi {
            self.find(
                abi.span(),
                Rule::ForeignCode,
                "a function for foreign code, in which a panic ends the process",
            );
        }
    }

    /// One attribute, by its path and arguments.
    fn attribute(&mut self, meta: &syn::Meta) {
        let path: Vec<String> = meta.path().segments.iter().map(|segment| plain(&segment.ident)).collect();
        let (span, name) = (meta.span(), path.join("::"));
        match (name.as_str(), meta) {
            ("cfg", syn::Meta::List(list)) => self.condition(list),
            ("cfg_attr", syn::Meta::List(list)) => self.conditional(list),
            ("derive", syn::Meta::List(list)) => self.derive(list),
            // Where it leads is looked at beside the files.
            ("path", syn::Meta::NameValue(pair)) if literal_text(&pair.value).is_some() => (),
            ("unsafe", _) => self.find(span, Rule::Unsafe, "an `unsafe` attribute"),
            ("no_mangle" | "export_name" | "link_section" | "link" | "link_name" | "used" | "no_main", _) => {
                self.find(
                    span,
                    Rule::ForeignCode,
                    format!("`{name}` changes what the linker makes of the crate"),
                );
            }
            _ if path.len() > 1 && standard::TOOLS.contains(&path[0].as_str()) => (),
            _ if standard::ATTRIBUTES.contains(&name.as_str()) => {
                if let syn::Meta::NameValue(pair) = meta {
                    // `#[doc = include_str!(…)]`
                    self.visit_expr(&pair.value);
                }
            }
            _ if self.names.attributes.contains(&name) => self.read_by_derive(&name, meta),
            _ => self.find(
                span,
                Rule::Attribute,
                format!("the attribute `{name}` is not among those that are known"),
            ),
        }
    }

    /// A derive may make paths of what it reads: words, and texts such as `default = "path::to::function"`.
    fn read_by_derive(&mut self, name: &str, meta: &syn::Meta) {
        self.words(meta.to_token_stream(), Use::Known);
        // The text of an error is a format, not a path.
        if name == "error" {
            return;
        }
        let mut texts = Vec::new();
        literals(meta.to_token_stream(), &mut texts);
        for literal in texts {
            let Ok(syn::Lit::Str(text)) = syn::parse2::<syn::Lit>(literal.to_token_stream()) else {
                continue;
            };
            let Ok(words) = text.value().parse::<TokenStream>() else { continue };
            let mut found = Vec::new();
            words::findings(words, self.names, Use::Known, &mut found);
            for (_, rule, text) in found {
                self.find(literal.span(), rule, text);
            }
        }
    }

    fn derive(&mut self, list: &syn::MetaList) {
        let parser = syn::punctuated::Punctuated::<syn::Path, syn::Token![,]>::parse_terminated;
        let Ok(paths) = syn::parse::Parser::parse2(parser, list.tokens.clone()) else {
            return self.find(list.span(), Rule::Attribute, "a `derive` that cannot be read");
        };
        for path in paths {
            let Some(last) = path.segments.last().map(|segment| plain(&segment.ident)) else { continue };
            if !standard::DERIVES.contains(&last.as_str()) && !self.names.derives.contains(&last) {
                self.find(
                    path.span(),
                    Rule::Attribute,
                    format!("the derive `{last}` is not among those that are known"),
                );
            }
        }
    }

    fn condition(&mut self, list: &syn::MetaList) {
        match syn::parse2::<syn::Meta>(list.tokens.clone()) {
            Ok(meta) => self.predicate(&meta),
            // `cfg(true)` is no meta item.
            Err(_) if matches!(list.tokens.to_string().as_str(), "true" | "false") => (),
            Err(_) => self.find(list.span(), Rule::Condition, "a condition that cannot be read"),
        }
    }

    fn predicate(&mut self, meta: &syn::Meta) {
        let name = meta.path().get_ident().map(plain).unwrap_or_default();
        if !standard::CONDITIONS.contains(&name.as_str()) {
            let text = format!("a condition on `{}`", meta.path().to_token_stream());
            return self.find(meta.span(), Rule::Condition, text);
        }
        if let (syn::Meta::List(list), "all" | "any" | "not") = (meta, name.as_str()) {
            let parser = syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
            match syn::parse::Parser::parse2(parser, list.tokens.clone()) {
                Ok(parts) => parts.iter().for_each(|part| self.predicate(part)),
                Err(_) => self.find(list.span(), Rule::Condition, "a condition that cannot be read"),
            }
        }
    }

    fn conditional(&mut self, list: &syn::MetaList) {
        let parser = syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
        let Ok(parts) = syn::parse::Parser::parse2(parser, list.tokens.clone()) else {
            return self.find(list.span(), Rule::Attribute, "a `cfg_attr` that cannot be read");
        };
        let mut parts = parts.iter();
        if let Some(predicate) = parts.next() {
            self.predicate(predicate);
        }
        for part in parts {
            if part.path().is_ident("path") {
                self.find(part.span(), Rule::OutsideFile, "a `path` under a condition cannot be followed");
            } else {
                self.attribute(part);
            }
        }
    }
}

/// The literals in a stream.
fn literals(words: TokenStream, found: &mut Vec<proc_macro2::Literal>) {
    for word in words {
        match word {
            proc_macro2::TokenTree::Group(group) => literals(group.stream(), found),
            proc_macro2::TokenTree::Literal(literal) => found.push(literal),
            _ => (),
        }
    }
}

/// Whether nothing in a static of this type can change.
fn is_plain(ty: &syn::Type) -> bool {
    match ty {
        syn::Type::Array(array) => is_plain(&array.elem),
        syn::Type::Slice(slice) => is_plain(&slice.elem),
        syn::Type::Paren(inner) => is_plain(&inner.elem),
        syn::Type::Group(inner) => is_plain(&inner.elem),
        syn::Type::Tuple(tuple) => tuple.elems.iter().all(is_plain),
        syn::Type::Reference(reference) => reference.mutability.is_none() && is_plain(&reference.elem),
        syn::Type::Path(path) => {
            path.qself.is_none()
                && path
                    .path
                    .get_ident()
                    .is_some_and(|name| standard::PLAIN_TYPES.contains(&name.to_string().as_str()))
        }
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Check<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if attributes_of(item).iter().any(is_test_only) {
            return;
        }
        if let syn::Item::Verbatim(words) = item {
            self.find(words.span(), Rule::Uncompilable, "an item that the parser does not know");
            self.words(words.clone(), Use::Own);
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Fn(item) => &item.attrs[..],
            syn::ImplItem::Const(item) => &item.attrs,
            _ => &[],
        };
        if let syn::ImplItem::Verbatim(words) = item {
            self.find(words.span(), Rule::Uncompilable, "an item that the parser does not know");
            self.words(words.clone(), Use::Own);
        }
        if !attributes.iter().any(is_test_only) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        if let syn::TraitItem::Verbatim(words) = item {
            self.find(words.span(), Rule::Uncompilable, "an item that the parser does not know");
            self.words(words.clone(), Use::Own);
        }
        visit::visit_trait_item(self, item);
    }

    fn visit_expr(&mut self, expr: &'ast syn::Expr) {
        match expr {
            syn::Expr::Unsafe(block) => {
                self.find(block.unsafe_token.span(), Rule::Unsafe, "an `unsafe` block")
            }
            syn::Expr::Verbatim(words) => {
                self.find(words.span(), Rule::Uncompilable, "an expression that the parser does not know");
                self.words(words.clone(), Use::Own);
            }
            _ => (),
        }
        visit::visit_expr(self, expr);
    }

    fn visit_type(&mut self, ty: &'ast syn::Type) {
        if let syn::Type::Verbatim(words) = ty {
            self.find(words.span(), Rule::Uncompilable, "a type that the parser does not know");
            self.words(words.clone(), Use::Own);
        }
        visit::visit_type(self, ty);
    }

    fn visit_pat(&mut self, pattern: &'ast syn::Pat) {
        if let syn::Pat::Verbatim(words) = pattern {
            self.find(words.span(), Rule::Uncompilable, "a pattern that the parser does not know");
            self.words(words.clone(), Use::Own);
        }
        visit::visit_pat(self, pattern);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.signature(signature);
        visit::visit_signature(self, signature);
    }

    fn visit_type_bare_fn(&mut self, pointer: &'ast syn::TypeBareFn) {
        if let Some(word) = &pointer.unsafety {
            self.find(word.span(), Rule::Unsafe, "a pointer to an `unsafe` function");
        }
        if let Some(abi) = &pointer.abi {
            self.find(abi.span(), Rule::ForeignCode, "a pointer to a foreign function");
        }
        visit::visit_type_bare_fn(self, pointer);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(word) = &item.unsafety {
            self.find(word.span(), Rule::Unsafe, "an `unsafe` implementation");
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if let Some(word) = &item.unsafety {
            self.find(word.span(), Rule::Unsafe, "an `unsafe` trait");
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if let Some(word) = &item.unsafety {
            self.find(word.span(), Rule::Unsafe, "an `unsafe` module");
        }
        visit::visit_item_mod(self, item);
    }

    fn visit_item_foreign_mod(&mut self, item: &'ast syn::ItemForeignMod) {
        self.find(item.abi.span(), Rule::ForeignCode, "a block of foreign functions");
        visit::visit_item_foreign_mod(self, item);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.find(item.union_token.span(), Rule::Unsafe, "a union, which only `unsafe` can read");
        visit::visit_item_union(self, item);
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        // It puts the crate below this module, and `crate::core::…` or `self::core::…` is no path that is followed.
        let text = format!("`extern crate {}`: write the path of what you use of it", item.ident);
        self.find(item.span(), Rule::StandardLibrary, text);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        if !matches!(item.mutability, syn::StaticMutability::None) {
            self.find(item.span(), Rule::Static, format!("`{}` can be written", item.ident));
        } else if !is_plain(&item.ty) {
            let text = format!(
                "nothing says that `{}` cannot change: its type is not made of plain values",
                item.ident
            );
            self.find(item.span(), Rule::Static, text);
        }
        visit::visit_item_static(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        item.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        self.use_tree(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| plain(&segment.ident)).collect();
        // One segment alone is a name of the crate's own or of the prelude.
        if segments.len() > 1 {
            self.path(path.span(), &segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        self.attribute(&attribute.meta);
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        let segments: Vec<String> =
            invoked.path.segments.iter().map(|segment| plain(&segment.ident)).collect();
        let Some(name) = segments.last() else { return };
        let refused = match segments.as_slice() {
            [_] => self.names.refused_macro(name),
            [root, ..] if self.names.is_root(root) && self.names.macros.contains(name) => None,
            _ => self.names.refused(&segments).or_else(|| self.names.refused_macro(name)),
        };
        if let Some((rule, text)) = refused {
            self.find(invoked.path.span(), rule, text);
        }
        let how = if self.names.is_own(name) || name == "macro_rules" { Use::Own } else { Use::Known };
        self.words(invoked.tokens.clone(), how);
    }
}
