//! `[instance.NAME]`: instances of the function `instances`, which become part of that function's settings.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::contents::Originals;
use super::document::{ChainEntry, Entry};
use super::fields::{Fields, named_tables};
use super::tenants::TenantEntry;
use crate::diagnostic::{Diagnostic, Diagnostics};

/// The function that has instances.
const FUNCTION: &str = "instances";
/// Its key that holds their tables, by name.
const KEY: &str = "instance";

/// Puts each table below the key `instance` of its function: the one that it names, or the only one.
///
/// A function of that name that only chains name gets a table of its own.
pub(super) fn attach<'t>(
    section: Option<Spanned<DeValue<'t>>>,
    functions: &mut Vec<Entry<'t>>,
    chains: &[ChainEntry],
    diagnostics: &mut Diagnostics,
) {
    let tables = named_tables(section, KEY, diagnostics);
    if tables.is_empty() {
        return;
    }
    if !functions.iter().any(is_host)
        && let Some(used) =
            chains.iter().flat_map(|chain| &chain.through).find(|name| name.get_ref() == FUNCTION)
    {
        functions.push(Entry {
            name: used.clone(),
            kind: None,
            workers: None,
            restart: None,
            settings: Spanned::new(used.span(), DeTable::new()),
            originals: Originals::new(),
        });
    }
    for (name, table) in tables {
        let mut fields = Fields::new(format!("instance `{}`", name.get_ref()), table, diagnostics);
        let function = fields.text("function");
        let table = fields.rest();
        match host(functions, function.as_ref(), &name) {
            Ok(entry) => {
                if let Err(fault) = add(entry, name, table) {
                    diagnostics.push(fault);
                }
            }
            Err(fault) => diagnostics.push(fault),
        }
    }
}

fn is_host(entry: &Entry<'_>) -> bool {
    entry.kind.as_ref().map_or(entry.name.get_ref(), Spanned::get_ref) == FUNCTION
}

/// The function to which an instance belongs.
fn host<'e, 't>(
    functions: &'e mut [Entry<'t>],
    named: Option<&Spanned<String>>,
    instance: &Spanned<String>,
) -> Result<&'e mut Entry<'t>, Diagnostic> {
    let known: Vec<String> =
        functions.iter().filter(|entry| is_host(entry)).map(|entry| entry.name.get_ref().clone()).collect();
    let what = || format!("instance `{}`", instance.get_ref());
    let wanted = match (named, &known[..]) {
        (Some(named), _) if known.contains(named.get_ref()) => named.get_ref(),
        (Some(named), _) => {
            return Err(Diagnostic::error(format!(
                "{} is of the function `{}`, which has no instances",
                what(),
                named.get_ref()
            ))
            .meant(named.span(), named.get_ref(), known.iter().map(String::as_str)));
        }
        (None, [only]) => only,
        (None, []) => {
            return Err(Diagnostic::error(format!("{} has no function that holds it", what())).at(
                instance.span(),
                "add `[function.host]` with `use = \"instances\"`, and put `host` into a chain",
            ));
        }
        (None, [first, ..]) => {
            let text = format!("{} could be of {} functions: `{}`", what(), known.len(), known.join("`, `"));
            return Err(Diagnostic::error(text)
                .at(instance.span(), format!("say which, as `function = \"{first}\"`")));
        }
    };
    let place = functions.iter_mut().find(|entry| is_host(entry) && entry.name.get_ref() == wanted);
    place.ok_or_else(|| Diagnostic::error(format!("{} has no function", what())))
}

/// Adds an instance to the settings of its function.
fn add<'t>(
    entry: &mut Entry<'t>,
    name: Spanned<String>,
    table: Spanned<DeTable<'t>>,
) -> Result<(), Diagnostic> {
    let settings = entry.settings.get_mut();
    if !settings.contains_key(KEY) {
        let key = Spanned::new(name.span(), KEY.into());
        settings.insert(key, Spanned::new(name.span(), DeValue::Table(DeTable::new())));
    }
    let Some(DeValue::Table(instances)) = settings.get_mut(KEY).map(Spanned::get_mut) else {
        // The function's own key of this name is no table, which is reported with its other settings.
        return Ok(());
    };
    if let Some((before, _)) = instances.get_key_value(name.get_ref().as_str()) {
        return Err(Diagnostic::error(format!("instance `{}` is declared twice", name.get_ref()))
            .at(name.span(), "the second of them")
            .at(before.span(), "the first"));
    }
    let (place, span) = (name.span(), table.span());
    instances.insert(
        Spanned::new(place, name.into_inner().into()),
        Spanned::new(span, DeValue::Table(table.into_inner())),
    );
    Ok(())
}

/// Reports owners of instances that are no tenants of the file.
pub(super) fn check_owners(functions: &[Entry<'_>], tenants: &[TenantEntry], diagnostics: &mut Diagnostics) {
    let known = || tenants.iter().map(|tenant| tenant.name.get_ref().as_str());
    for entry in functions.iter().filter(|entry| is_host(entry)) {
        let Some(DeValue::Table(instances)) = entry.settings.get_ref().get(KEY).map(Spanned::get_ref) else {
            continue;
        };
        for (name, instance) in instances {
            let Some(owner) = instance.get_ref().get("owner") else { continue };
            let Some(tenant) = owner.get_ref().as_str() else { continue };
            if !known().any(|known| known == tenant) {
                let text = format!("the owner of instance `{}` is no tenant", name.get_ref());
                diagnostics.push(Diagnostic::error(text).meant(owner.span(), tenant, known()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::parse;
    use super::*;

    fn faults(text: &str) -> String {
        let mut diagnostics = Diagnostics::default();
        parse(text, &mut diagnostics);
        format!("{diagnostics:?}")
    }

    const CHAIN: &str =
        "[port.a]\ndriver = \"null\"\n[[chain]]\nfrom = \"a\"\nthrough = [\"NAME\"]\nto = \"a\"\n";

    #[test]
    fn instances_are_settings_of_their_function() {
        let tables = "[instance.one]\nring = 64\n[instance.two]\nfile = \"x.click\"\n";
        let host = "[function.host]\nuse = \"instances\"\n";
        for (name, function) in [("host", host), ("instances", "")] {
            let text = format!("{}{function}{tables}", CHAIN.replace("NAME", name));
            let mut diagnostics = Diagnostics::default();
            let document = parse(&text, &mut diagnostics);
            assert!(!diagnostics.has_errors(), "{diagnostics:?}");
            let entry =
                document.functions.iter().find(|entry| entry.name.get_ref() == name).expect("it is there");
            let instances = entry.settings.get_ref()[KEY].get_ref();
            assert_eq!(
                instances["one"].get_ref()["ring"].get_ref().as_integer().map(|ring| ring.as_str()),
                Some("64")
            );
            assert_eq!(instances["two"].get_ref()["file"].get_ref().as_str(), Some("x.click"));
        }
    }

    #[test]
    fn an_owner_is_a_tenant_of_the_file() {
        let one = "[function.host]\nuse = \"instances\"\n[instance.one]\nowner = \"acne\"\n";
        let fault = faults(&format!("{one}[tenant.acme]\n"));
        assert!(
            fault.contains("the owner of instance `one` is no tenant") && fault.contains("acme"),
            "{fault}"
        );
        assert!(!faults(&format!("{one}[tenant.acne]\n")).contains("owner"));
    }

    #[test]
    fn an_instance_without_its_function_is_an_error() {
        let one = "[instance.one]\nring = 64\n";
        let two = "[function.left]\nuse = \"instances\"\n[function.right]\nuse = \"instances\"\n";
        for (text, fault) in [
            (one.to_owned(), "instance `one` has no function that holds it"),
            (format!("{two}{one}"), "instance `one` could be of 2 functions: `left`, `right`"),
            (format!("{two}{one}function = \"lift\"\n"), "which has no instances"),
            (
                format!(
                    "[function.left]\nuse = \"instances\"\n[function.left.instance.one]\nring = 64\n{one}"
                ),
                "instance `one` is declared twice",
            ),
            ("instance = 3\n".to_owned(), "`instance` is not a table of instances"),
        ] {
            let found = faults(&text);
            assert!(found.contains(fault), "{text}: {found}");
        }
        let right = format!("{two}{one}function = \"right\"\n");
        assert!(!faults(&right).contains("instance"), "{}", faults(&right));
    }
}
