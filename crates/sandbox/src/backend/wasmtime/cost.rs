//! Bounds on what compiling a module costs, checked before it is compiled.
//!
//! The compiler cannot be stopped. Its memory and time grow with the values that live at each place where control parts or
//! joins. A few hundred KiB of nested loops around many locals would take many GiB.

use wasmparser::{
    FuncToValidate, FuncValidatorAllocations, FunctionBody, Operator, OperatorsReader, Parser, Payload,
    ValidPayload, Validator, ValidatorResources, WasmFeatures,
};

use super::check::explained;
use crate::backend::Refused;

/// Functions that a module may have.
const MOST_FUNCTIONS: u32 = 10_000;
/// Types of functions that a module may have.
const MOST_TYPES: u32 = 1_000;
/// Bytes of a function's code.
const MOST_BODY: usize = 256 << 10;
/// Values that live at the branches and calls of one function, added up over these.
pub(super) const MOST_LIVE: u64 = 1 << 20;
/// The same for all functions together.
pub(super) const MOST_LIVE_IN_ALL: u64 = 1 << 22;

/// Refuses a module that is not valid, or that would take the compiler too much memory and time.
///
/// # Errors
/// The first function that is too large, with its number, or what is not valid.
pub(super) fn check(module: &[u8]) -> Result<(), Refused> {
    let invalid = |error: wasmparser::BinaryReaderError| Refused::new(explained(&error.to_string()));
    // What the engine has not, it refuses itself.
    let mut validator = Validator::new_with_features(WasmFeatures::all());
    let mut spare = FuncValidatorAllocations::default();
    let mut all = 0_u64;
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.map_err(invalid)?;
        match &payload {
            Payload::FunctionSection(functions) => few("functions", functions.count(), MOST_FUNCTIONS)?,
            Payload::TypeSection(types) => few("types", types.count(), MOST_TYPES)?,
            _ => {}
        }
        if let ValidPayload::Func(function, body) = validator.payload(&payload).map_err(invalid)? {
            let (live, allocations) = live(function, &body, spare)?;
            spare = allocations;
            all = all.saturating_add(live);
        }
    }
    if all > MOST_LIVE_IN_ALL {
        return Err(Refused::new(format!(
            "its functions have {all} values at all branches and calls together, expected at most {MOST_LIVE_IN_ALL}: split it \
             into several modules, or compile it with `-Os`"
        )));
    }
    Ok(())
}

fn few(what: &str, found: u32, most: u32) -> Result<(), Refused> {
    if found <= most {
        return Ok(());
    }
    Err(Refused::new(format!("it has {found} {what}, expected at most {most}: link it with `--gc-sections`")))
}

/// The values that live at the branches and calls of a function, added up.
fn live(
    function: FuncToValidate<ValidatorResources>,
    body: &FunctionBody<'_>,
    spare: FuncValidatorAllocations,
) -> Result<(u64, FuncValidatorAllocations), Refused> {
    let number = function.index;
    let invalid = |error: wasmparser::BinaryReaderError| Refused::new(explained(&error.to_string()));
    let bytes = body.range().len();
    if bytes > MOST_BODY {
        return Err(Refused::new(format!(
            "its function {number} has {bytes} bytes, expected at most {MOST_BODY}: split it, or compile it with `-Os`"
        )));
    }
    let mut validator = function.into_validator(spare);
    let mut reader = body.get_binary_reader();
    validator.read_locals(&mut reader).map_err(invalid)?;
    let locals = u64::from(validator.len_locals());
    let mut operators = OperatorsReader::new(reader);
    let mut live = 0_u64;
    while !operators.eof() {
        let (operator, offset) = operators.read_with_offset().map_err(invalid)?;
        let before = validator.operand_stack_height();
        validator.op(offset, &operator).map_err(invalid)?;
        let values = locals + u64::from(before.max(validator.operand_stack_height()));
        live = live.saturating_add(values.saturating_mul(ways(&operator)));
        if live > MOST_LIVE {
            return Err(Refused::new(format!(
                "its function {number} has more than {MOST_LIVE} values at its branches and calls together ({locals} locals, \
                 and those on its stack): split it, or compile it with `-Os`"
            )));
        }
    }
    operators.finish().map_err(invalid)?;
    Ok((live, validator.into_allocations()))
}

/// The number of places at which an operator has the compiler look at all living values.
fn ways(operator: &Operator<'_>) -> u64 {
    use Operator as Op;
    match operator {
        Op::BrTable { targets } => u64::from(targets.len()) + 1,
        Op::Block { .. }
        | Op::Loop { .. }
        | Op::If { .. }
        | Op::Else
        | Op::End
        | Op::Br { .. }
        | Op::BrIf { .. }
        | Op::Return
        | Op::Call { .. }
        | Op::CallIndirect { .. }
        | Op::ReturnCall { .. }
        | Op::ReturnCallIndirect { .. }
        | Op::MemoryGrow { .. }
        | Op::MemoryInit { .. }
        | Op::MemoryCopy { .. }
        | Op::MemoryFill { .. }
        | Op::DataDrop { .. }
        | Op::TableGet { .. }
        | Op::TableSet { .. }
        | Op::TableGrow { .. }
        | Op::TableFill { .. }
        | Op::TableInit { .. }
        | Op::TableCopy { .. }
        | Op::ElemDrop { .. }
        | Op::RefFunc { .. } => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Result<(), String> {
        let module = wat::parse_str(text).expect("text of a module");
        check(&module).map_err(|refused| refused.problem)
    }

    fn refused(text: &str, expected: &str) {
        let said = said(text).expect_err("it is refused");
        assert!(said.contains(expected), "{said}");
    }

    /// A function with so many locals, each read in the innermost of so many loops.
    fn nested(locals: usize, loops: usize) -> String {
        let names: String = (0..locals).map(|number| format!("(local $v{number} i32)")).collect();
        let reads: String = (0..locals).map(|number| format!("(drop (local.get $v{number}))")).collect();
        format!("(func {names} {} {reads} {})", "(loop ".repeat(loops), ")".repeat(loops))
    }

    #[test]
    fn locals_around_many_loops_are_refused_and_few_are_not() {
        assert_eq!(said(&format!("(module {})", nested(500, 500))), Ok(()));
        refused(
            &format!("(module {})", nested(1_000, 1_000)),
            "function 0 has more than 1048576 values at its branches",
        );
        // Many functions that are allowed alone.
        let many = nested(500, 500).repeat(9);
        refused(&format!("(module {many})"), "values at all branches and calls together");
    }

    #[test]
    fn values_on_the_stack_count_as_locals_do() {
        let held = |values: usize, branches: usize| {
            let pushed = "(local.get 0)".repeat(values);
            let branched = "(if (local.get 0) (then))".repeat(branches);
            format!("(module (func (param i32) {pushed} {branched} {}))", "drop ".repeat(values))
        };
        assert_eq!(said(&held(100, 1_000)), Ok(()));
        refused(&held(2_000, 1_000), "values at its branches");
        let table = format!("(block (br_table {} (local.get 0)))", "0 ".repeat(60_000));
        let wide = format!(
            "(module (func (param i32) {} {table} {}))",
            "(local.get 0) ".repeat(100),
            "drop ".repeat(100)
        );
        refused(&wide, "values at its branches");
        // A call of two bytes with a thousand values each way.
        let many = "i32 ".repeat(1_000);
        let calls = "(call $f)".repeat(3_000);
        refused(
            &format!(
                "(module (func $f (param {many}) (result {many}) unreachable) (func (param {many}) (result {many}) {} {calls}))",
                (0..1_000).map(|number| format!("(local.get {number})")).collect::<String>()
            ),
            "function 1 has more than",
        );
    }

    #[test]
    fn functions_that_are_too_large_or_too_many_are_refused() {
        refused(
            &format!("(module (func {}))", "nop ".repeat(MOST_BODY + 1)),
            "bytes, expected at most 262144",
        );
        refused(
            &format!("(module {})", "(func)".repeat(MOST_FUNCTIONS as usize + 1)),
            "10001 functions, expected",
        );
        assert_eq!(said(&format!("(module {})", "(func)".repeat(MOST_FUNCTIONS as usize))), Ok(()));
    }
}
