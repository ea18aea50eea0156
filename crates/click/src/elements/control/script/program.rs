//! A script's instructions, from its configuration.

use std::cell::{Cell, RefCell};

use crate::language::errors::Errors;
use crate::language::text;
use crate::value::integer;

/// The operation of an instruction. `quoted` variants take the quotes off their value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Stands before a script that does not begin with a wait.
    Initial,
    /// Asks the driver to stop.
    Stop,
    WaitStep,
    WaitTime,
    Label,
    Goto,
    Print {
        quoted: bool,
        newline: bool,
    },
    /// Writes a handler's value to a file.
    Save {
        append: bool,
    },
    Read {
        quoted: bool,
    },
    Write {
        quoted: bool,
    },
    Set {
        quoted: bool,
    },
    Init {
        quoted: bool,
    },
    Export {
        quoted: bool,
    },
    Return {
        quoted: bool,
    },
    Error {
        quoted: bool,
    },
    End,
    Exit,
}

/// Where a `goto` leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Place(usize),
    End,
    Exit,
    Stop,
    Error,
}

/// An instruction.
#[derive(Debug)]
pub(super) struct Instruction {
    pub op: Op,
    /// The variable or label that it names.
    pub name: String,
    /// The text behind that.
    pub text: RefCell<String>,
    pub target: Target,
    /// Steps that a `wait_step` takes; 1 in an `Initial` that has not run.
    pub count: Cell<i64>,
    /// Steps of it that were taken.
    pub taken: Cell<i64>,
}

impl Instruction {
    fn new(op: Op, name: &str, rest: &str) -> Self {
        Self {
            op,
            name: name.to_owned(),
            text: RefCell::new(rest.to_owned()),
            target: Target::Place(0),
            count: Cell::new(0),
            taken: Cell::new(0),
        }
    }
}

fn op_of(word: &str) -> Option<Op> {
    Some(match word {
        "append" => Op::Save { append: true },
        "save" => Op::Save { append: false },
        "end" => Op::End,
        "error" => Op::Error { quoted: false },
        "errorq" => Op::Error { quoted: true },
        "exit" => Op::Exit,
        "export" => Op::Export { quoted: false },
        "exportq" => Op::Export { quoted: true },
        "goto" | "loop" => Op::Goto,
        "init" => Op::Init { quoted: false },
        "initq" => Op::Init { quoted: true },
        "label" => Op::Label,
        "pause" | "wait_step" | "wait_stop" => Op::WaitStep,
        "wait" | "wait_for" | "wait_time" => Op::WaitTime,
        "print" => Op::Print { quoted: false, newline: true },
        "printn" => Op::Print { quoted: false, newline: false },
        "printq" => Op::Print { quoted: true, newline: true },
        "printnq" => Op::Print { quoted: true, newline: false },
        "read" => Op::Read { quoted: false },
        "readq" => Op::Read { quoted: true },
        "return" => Op::Return { quoted: false },
        "returnq" => Op::Return { quoted: true },
        "set" => Op::Set { quoted: false },
        "setq" => Op::Set { quoted: true },
        "stop" => Op::Stop,
        "write" => Op::Write { quoted: false },
        "writeq" => Op::Write { quoted: true },
        _ => return None,
    })
}

/// Reads one instruction. `None`: its arguments have another form.
fn instruction(word: &str, rest: &str) -> Option<Instruction> {
    let op = op_of(word)?;
    Some(match op {
        Op::WaitTime if word == "wait" && rest.is_empty() => wait_step(1),
        Op::WaitStep if rest.is_empty() => wait_step(1),
        Op::WaitStep => wait_step(i64::try_from(integer(rest)?).ok().filter(|count| *count >= 0)?),
        Op::Return { .. } => Instruction::new(op, "_", rest),
        Op::Set { .. } | Op::Init { .. } | Op::Export { .. } => {
            let (name, value) = text::next_word(rest);
            if name.is_empty() || matches!(op, Op::Set { .. }) && value.is_empty() {
                return None;
            }
            Instruction::new(op, &name, value)
        }
        Op::Label => {
            let (name, more) = text::next_word(rest);
            if name.is_empty() || !more.is_empty() {
                return None;
            }
            Instruction::new(op, &name, "")
        }
        Op::End | Op::Exit | Op::Stop if !rest.is_empty() => return None,
        Op::Goto if word == "loop" => {
            if !rest.is_empty() {
                return None;
            }
            Instruction::new(op, "", "")
        }
        _ => Instruction::new(op, "", rest),
    })
}

fn wait_step(count: i64) -> Instruction {
    let instruction = Instruction::new(Op::WaitStep, "", "");
    instruction.count.set(count);
    instruction
}

/// The instructions of a script, and the names of its variables. Errors are told.
pub(super) fn read(
    arguments: &[String],
    is_driver: bool,
    errors: &Errors,
) -> (Vec<Instruction>, Vec<String>) {
    let mut instructions: Vec<Instruction> = Vec::new();
    let mut variables: Vec<String> = Vec::new();
    let add = |instructions: &mut Vec<Instruction>, instruction: Instruction| {
        // A script begins with a wait: where it does not, an instruction that runs at once stands for one.
        if instructions.is_empty() && !matches!(instruction.op, Op::WaitStep | Op::WaitTime) {
            instructions.push(Instruction::new(Op::Initial, "", ""));
        }
        instructions.push(instruction);
    };
    for argument in arguments {
        let (word, rest) = text::next_word(argument);
        if word.is_empty() {
            continue;
        }
        match instruction(&word, rest) {
            Some(instruction) => {
                let names = matches!(
                    instruction.op,
                    Op::Set { .. } | Op::Init { .. } | Op::Export { .. } | Op::Return { .. }
                );
                if names && !variables.contains(&instruction.name) {
                    variables.push(instruction.name.clone());
                }
                add(&mut instructions, instruction);
            }
            None => errors.error(&format!("syntax error at '{word}'")),
        }
    }
    resolve(&mut instructions, errors);
    if instructions.is_empty() && is_driver {
        instructions.push(wait_step(1));
    }
    let last = Instruction::new(if is_driver { Op::Stop } else { Op::End }, "", "");
    add(&mut instructions, last);
    (instructions, variables)
}

/// The place of a label.
pub(super) fn find_label(instructions: &[Instruction], label: &str) -> Option<Target> {
    let place = instructions.iter().position(|one| one.op == Op::Label && one.name == label);
    match (place, label) {
        (Some(place), _) => Some(Target::Place(place)),
        (None, "end") => Some(Target::End),
        (None, "exit") => Some(Target::Exit),
        (None, "stop") => Some(Target::Stop),
        (None, "error" | "errorq") => Some(Target::Error),
        (None, "begin" | "loop") => Some(Target::Place(0)),
        _ => None,
    }
}

fn resolve(instructions: &mut [Instruction], errors: &Errors) {
    for place in 0..instructions.len() {
        let line = instructions[place].text.borrow().clone();
        if instructions[place].op != Op::Goto || line.is_empty() {
            continue;
        }
        let (label, condition) = text::next_word(&line);
        match find_label(instructions, &label) {
            Some(target) => instructions[place].target = target,
            None => errors.error(&format!("no such label '{label}'")),
        }
        *instructions[place].text.borrow_mut() = condition.to_owned();
    }
}
