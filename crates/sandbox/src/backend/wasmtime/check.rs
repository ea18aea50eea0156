//! The checks of a module: its header, imports, exports, memory and tables.

use wasmparser::{Operator, Parser, Payload};
use wasmtime::{ExternType, FuncType, Module};

use super::link::{CALLS, MODULE};
use crate::backend::{Contents, Limits, Refused};

/// The functions that a module must export, with their types.
const EXPORTS: [(&str, &str); 5] = [
    ("nb_abi", "() -> i32"),
    ("nb_reads", "() -> i32"),
    ("nb_writes", "() -> i32"),
    ("nb_setup", "(i32, i32) -> i32"),
    ("nb_process", "(i32)"),
];

/// Exports that a module may have.
const MOST_EXPORTS: usize = 1_024;
/// Bytes of `memory` up to which a module may have bulk operations: no clock ends one before it is through.
const MOST_BULK: usize = 16 << 20;
/// Bytes of a page of memory, in which modules count.
const PAGE: u64 = 64 << 10;

/// Refuses what is no module, before it is read any further.
///
/// # Errors
/// What it is instead.
pub(super) fn header(module: &[u8], limits: Limits) -> Result<(), Refused> {
    if module.len() > limits.size {
        return Err(Refused::new(format!(
            "it has {} bytes, more than the {} that `size` allows: strip it, or raise `size`",
            module.len(),
            limits.size
        )));
    }
    match module {
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => Ok(()),
        [0, b'a', b's', b'm', _, 0, 1, 0, ..] => Err(Refused::new(
            "it is a WebAssembly component, expected a core module: link it without an adapter for components",
        )),
        [0, b'a', b's', b'm', version @ ..] => Err(Refused::new(format!(
            "its WebAssembly version is {:02x?}, expected [01, 00, 00, 00]",
            &version[..version.len().min(4)]
        ))),
        [0x7f, b'E', b'L', b'F', ..] => Err(Refused::new(
            "it is native code (ELF), perhaps a precompiled module: only WebAssembly is taken, and is compiled here",
        )),
        _ if module.trim_ascii_start().starts_with(b"(module") => Err(Refused::new(
            "it is WebAssembly's text format: assemble it first, for example with `wat2wasm`",
        )),
        _ => Err(Refused::new(format!(
            "it is no WebAssembly module: expected it to begin with [00, 61, 73, 6d], found {:02x?}",
            &module[..module.len().min(4)]
        ))),
    }
}

/// A message of validation, with what to do about it.
pub(super) fn explained(problem: &str) -> String {
    let hints = [
        ("threads", "atomics and shared memory are refused: compile without `-pthread` and `-matomics`"),
        (
            "shared memories",
            "atomics and shared memory are refused: compile without `-pthread` and `-matomics`",
        ),
        ("memory64", "memory has 32-bit addresses: compile for wasm32"),
        ("multi-memory", "a module has one memory"),
        ("multiple memories", "a module has one memory"),
        ("exceptions", "exceptions are refused: compile with `-fno-exceptions`"),
        ("relaxed", "relaxed SIMD is refused: its results differ between machines"),
    ];
    // It may quote names of the module.
    let problem = crate::backend::shown(problem);
    let hint = hints.iter().find(|(word, _)| problem.contains(word));
    hint.map_or_else(
        || format!("it is not valid: {problem}"),
        |(_, hint)| format!("it is not valid: {problem}; {hint}"),
    )
}

fn type_of(function: &FuncType) -> String {
    let parameters: Vec<String> = function.params().map(|kind| kind.to_string()).collect();
    let results: Vec<String> = function.results().map(|kind| kind.to_string()).collect();
    let parameters = format!("({})", parameters.join(", "));
    if results.is_empty() { parameters } else { format!("{parameters} -> {}", results.join(", ")) }
}

fn shown(kind: &ExternType) -> String {
    match kind {
        ExternType::Func(function) => type_of(function),
        ExternType::Global(_) => "global".into(),
        ExternType::Table(_) => "table".into(),
        ExternType::Memory(_) => "memory".into(),
        _ => "tag".into(),
    }
}

/// The contents of a module, but for its sizes in bytes.
pub(super) fn contents(module: &Module) -> Contents {
    let resources = module.resources_required();
    let memory = module.exports().find_map(|export| export.ty().memory().cloned());
    Contents {
        bytes: 0,
        code: 0,
        exports: module
            .exports()
            .map(|export| format!("{}{}", export.name(), spaced(&export.ty())))
            .collect(),
        imports: module
            .imports()
            .map(|import| format!("{}.{}{}", import.module(), import.name(), spaced(&import.ty())))
            .collect(),
        memory: resources.max_initial_memory_size.unwrap_or(0).saturating_mul(PAGE),
        memory_limit: memory.and_then(|memory| memory.maximum()).map(|pages| pages.saturating_mul(PAGE)),
        table: resources.max_initial_table_size.unwrap_or(0),
    }
}

fn spaced(kind: &ExternType) -> String {
    format!(" {}", shown(kind))
}

/// Whether a valid module has operations on as much memory as it says when it runs.
pub(super) fn has_bulk(module: &[u8]) -> bool {
    let is_bulk = |operator: wasmparser::Result<Operator<'_>>| {
        use Operator::{MemoryCopy, MemoryFill, MemoryInit};
        matches!(operator, Err(_) | Ok(MemoryFill { .. } | MemoryCopy { .. } | MemoryInit { .. }))
    };
    Parser::new(0).parse_all(module).any(|payload| match payload {
        Ok(Payload::CodeSectionEntry(body)) => {
            body.get_operators_reader().map_or(true, |operators| operators.into_iter().any(is_bulk))
        }
        Ok(_) => false,
        Err(_) => true,
    })
}

/// Checks what a module needs and has. `bulk` says whether it has bulk operations on memory.
///
/// # Errors
/// Every problem, one a line.
pub(super) fn module(
    module: &Module,
    contents: &Contents,
    bulk: bool,
    limits: Limits,
) -> Result<(), Refused> {
    let mut problems = interface(module);
    if contents.memory > limits.memory as u64 {
        problems.push(format!(
            "it begins with {} bytes of memory, more than the {} that `memory` allows: raise `memory`, or make its tables smaller",
            contents.memory, limits.memory
        ));
    }
    if bulk && limits.memory > MOST_BULK {
        problems.push(format!(
            "it has `memory.fill`, `memory.copy` or `memory.init`, which no clock can end, and `memory` is {} bytes, expected at \
             most {MOST_BULK}: lower `memory`, or compile it without them (`-mno-bulk-memory`)",
            limits.memory
        ));
    }
    if contents.table > limits.table as u64 {
        problems.push(format!(
            "its tables begin with {} elements, more than the {} that `table` allows",
            contents.table, limits.table
        ));
    }
    let resources = module.resources_required();
    if resources.num_tables > 1 {
        problems.push(format!("it has {} tables, more than one", resources.num_tables));
    }
    if problems.is_empty() { Ok(()) } else { Err(Refused::new(problems.join("\n"))) }
}

/// A name of a module in a message.
fn shown_name(name: &str) -> String {
    crate::backend::shown(name)
}

/// The problems of a module's imports and exports.
fn interface(module: &Module) -> Vec<String> {
    let mut problems = Vec::new();
    for import in module.imports() {
        let (from, name, kind) = (shown_name(import.module()), shown_name(import.name()), import.ty());
        let known = CALLS.iter().find(|(call, _)| import.module() == MODULE && *call == import.name());
        match known {
            Some((_, expected)) if *expected == shown(&kind) => {}
            Some((_, expected)) => {
                problems.push(format!("it imports `{from}.{name}` as {}, expected {expected}", shown(&kind)))
            }
            None => {
                let calls = CALLS.map(|(call, _)| format!("{MODULE}.{call}")).join(", ");
                problems.push(format!(
                    "it imports `{from}.{name}`, which is unknown: a module may import {calls}"
                ));
            }
        }
    }
    for (name, expected) in EXPORTS {
        match module.get_export(name) {
            Some(kind) if shown(&kind) == expected => {}
            Some(kind) => {
                problems.push(format!("it exports `{name}` as {}, expected {expected}", shown(&kind)));
            }
            None => problems.push(format!("it does not export the function `{name}`: {expected}")),
        }
    }
    match module.get_export("memory") {
        Some(ExternType::Memory(_)) => {}
        _ => problems.push("it does not export its memory as `memory`".into()),
    }
    if module.exports().len() > MOST_EXPORTS {
        problems.push(format!("it has {} exports, more than {MOST_EXPORTS}", module.exports().len()));
    }
    problems
}
