//! How a script runs: step by step, until it waits or ends.

use std::fs::OpenOptions;
use std::io::Write as _;

use crate::command::system_message;
use crate::handler::Answer;
use crate::handler_call::HandlerCall;
use crate::language::errors::Errors;
use crate::language::text;
use crate::language::variables::{Form, Variables, expand};
use crate::router::work::INSTRUCTION;
use crate::router::{At, Router};
use crate::value::{boolean, integer, signed_seconds};

use super::program::{Op, Target, find_label};
use super::{Kind, Script};

/// Jumps that a script may make without a wait.
const MAX_JUMPS: u32 = 1_000_000;
/// Instructions that a script, and those that it calls, may run without a wait.
const MAX_INSTRUCTIONS: u32 = 4_000_000;
/// The same in a configuration that may not stop the process: others wait while its scripts run.
const FEW_INSTRUCTIONS: u32 = 100_000;
/// Bytes of a value.
const MAX_VALUE: usize = 1 << 16;
/// Calls of a script by its own instructions, one inside the other.
const MAX_DEPTH: usize = 64;

/// Why a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A handler asked for steps.
    Normal,
    /// The driver was asked to stop.
    Router,
    /// A wait is over.
    Timer,
    /// A handler had the script go to a place.
    Jump,
}

impl Router {
    /// Runs something whose errors are said as chatter, under a heading that names the element.
    pub(crate) fn told<T>(&self, at: At<'_>, run: impl FnOnce(&Errors) -> T) -> T {
        self.said_errors().within("", &format!("While executing '{}':", at.declaration()), run)
    }
    /// Errors that are said as chatter.
    pub(crate) fn said_errors(&self) -> Errors {
        let chatter = std::rc::Rc::clone(&self.surroundings().chatter);
        Errors::to(Box::new(move |line| chatter(line)))
    }
}

/// Instructions that are left to scripts that call each other.
#[derive(Clone, Copy, Default)]
pub(crate) struct ScriptBudget {
    depth: u32,
    instructions: u32,
}

impl Router {
    /// Begins the run of a script: the outermost has so many instructions for itself and those that it calls.
    ///
    /// Returns whether it is the outermost.
    fn begin_script(&self) -> bool {
        let ScriptBudget { depth, instructions: left } = self.script_budget.get();
        let most = if self.surroundings().capabilities.process { MAX_INSTRUCTIONS } else { FEW_INSTRUCTIONS };
        let instructions = if depth == 0 { most } else { left };
        self.script_budget.set(ScriptBudget { depth: depth + 1, instructions });
        depth == 0
    }
    fn end_script(&self, outermost: bool) {
        let ScriptBudget { depth, instructions } = self.script_budget.get();
        let depth = if outermost { 0 } else { depth.saturating_sub(1) };
        self.script_budget.set(ScriptBudget { depth, instructions });
    }
    /// Counts an instruction. `false` when none is left.
    fn script_step(&self) -> bool {
        let ScriptBudget { depth, instructions } = self.script_budget.get();
        self.script_budget.set(ScriptBudget { depth, instructions: instructions.saturating_sub(1) });
        self.spend(INSTRUCTION, 0);
        instructions > 0 && !self.is_spent()
    }
}

/// The variables of a script as its instructions see them.
struct Expander<'s> {
    script: &'s Script,
    at: At<'s>,
    errors: &'s Errors,
}

impl Variables for Expander<'_> {
    fn allows(&self, bytes: usize) -> bool {
        bytes <= MAX_VALUE && !self.at.router.is_spent()
    }
    fn value(&self, name: &str, form: Form, _depth: usize) -> Option<String> {
        if form == Form::Parentheses {
            return match HandlerCall::parse(name, self.at).and_then(|call| call.read(self.at.router)) {
                Ok(value) => Some(value),
                Err(message) => {
                    self.errors.error(&message);
                    None
                }
            };
        }
        if let Some(value) = self.script.variable(name) {
            return Some(value);
        }
        let arguments = || self.script.run_arguments.borrow().clone();
        match name {
            "?" => Some(self.script.write_status.get().to_string()),
            "args" => Some(arguments()),
            "$" if self.at.capabilities().process => Some(std::process::id().to_string()),
            "$" => Some(String::new()),
            "0" => Some(self.script.run_handler.borrow().clone()),
            "#" => Some(text::split_words(&arguments()).len().to_string()),
            "write" => Some(self.script.run_writes.get().to_string()),
            _ => {
                let number = name.parse::<usize>().ok().filter(|number| *number > 0)?;
                Some(text::split_words(&arguments()).get(number - 1).cloned().unwrap_or_default())
            }
        }
    }
}

/// A text with its quotes taken off.
pub(super) fn unquoted(value: &str) -> String {
    String::from_utf8_lossy(&text::unquote(value)).into_owned()
}

impl Script {
    /// A text with its variables and `$(...)` replaced.
    pub(super) fn expand(&self, at: At<'_>, line: &str, quoted: bool, errors: &Errors) -> String {
        let value = expand(line, &Expander { script: self, at, errors }, quoted);
        at.router.spend(0, line.len() + value.len());
        if value.len() > MAX_VALUE {
            errors.error(&format!("a value has more than {MAX_VALUE} bytes"));
            return String::new();
        }
        value
    }

    pub(super) fn initialize_variables(&self, at: At<'_>, errors: &Errors) {
        for instruction in &self.instructions {
            if let Op::Init { quoted } | Op::Export { quoted } = instruction.op {
                let value = self.expand(at, &instruction.text.borrow(), false, errors);
                self.set_variable(&instruction.name, if quoted { unquoted(&value) } else { value });
            }
        }
    }

    /// Whether the script stands at an instruction that stops the driver.
    pub(super) fn stopped(&self) -> bool {
        self.instructions
            .get(self.position.get())
            .is_some_and(|one| one.op == Op::Stop || one.op == Op::Goto && one.target == Target::Stop)
    }

    /// The script's value after steps; prepares it for the next.
    pub(super) fn completed(&self, at: At<'_>) -> Answer {
        let op = self.instructions.get(self.position.get()).map(|one| match (one.op, one.target) {
            (Op::Goto, Target::End) => Op::End,
            (Op::Goto, Target::Exit) => Op::Exit,
            (Op::Goto, Target::Stop) => Op::Stop,
            (Op::Goto, Target::Error) => Op::Error { quoted: false },
            (op, _) => op,
        });
        if op == Some(Op::End) && self.kind == Kind::Signal {
            self.signals.iter().for_each(|number| at.await_signal(*number));
        }
        match op {
            Some(Op::Return { .. }) => Ok(self.variable("_").unwrap_or_default()),
            Some(Op::End) if self.kind == Kind::Packet => Ok("0".into()),
            Some(Op::Error { .. }) => Err(String::new()),
            _ => Ok(String::new()),
        }
    }

    /// Takes steps: instructions up to the next wait, as often as there are steps. Returns the number of jumps.
    pub(super) fn step(&self, at: At<'_>, steps: i64, kind: Step, mut jumps: u32, errors: &Errors) -> u32 {
        let steps = steps.saturating_add(self.steps.get());
        let budget = at.router.begin_script();
        while steps >= self.steps.get() && self.position.get() < self.instructions.len() && jumps < MAX_JUMPS
        {
            let place = self.position.get();
            // The position is the next instruction's now: a call may have the script go elsewhere.
            self.position.set(place + 1);
            if !at.router.script_step() {
                jumps = MAX_JUMPS;
                break;
            }
            match self.execute(at, place, steps, kind, errors) {
                Next::Go => (),
                Next::Wait => break,
                Next::End => {
                    at.router.end_script(budget);
                    return jumps + 1;
                }
            }
            if self.position.get() != place + 1 {
                jumps += 1;
            }
        }
        at.router.end_script(budget);
        if jumps >= MAX_JUMPS {
            at.chatter(&format!("{}: too many jumps, giving up", at.declaration()));
            self.position.set(self.instructions.len());
            at.unschedule_timer(0);
        }
        if kind == Step::Router {
            at.router.adjust_run_count(1);
        }
        jumps + 1
    }

    fn execute(&self, at: At<'_>, place: usize, steps: i64, kind: Step, errors: &Errors) -> Next {
        let instruction = &self.instructions[place];
        let line = instruction.text.borrow().clone();
        match instruction.op {
            Op::Stop => {
                self.steps.set(self.steps.get().saturating_add(1));
                self.position.set(place);
                if kind != Step::Router {
                    at.router.adjust_run_count(-1);
                }
                return Next::End;
            }
            Op::WaitStep => return self.wait_step(place, steps),
            Op::WaitTime => {
                if self.steps.get() != steps {
                    self.steps.set(self.steps.get().saturating_add(1));
                    at.unschedule_timer(0);
                    return Next::Go;
                }
                match signed_seconds(&self.expand(at, &line, false, errors)) {
                    Some(span) => {
                        at.timer_after(0, u64::try_from(span).unwrap_or(0));
                        self.position.set(place);
                    }
                    None => errors.error("syntax error at 'wait'"),
                }
                return Next::Wait;
            }
            Op::Initial => {
                if instruction.count.replace(0) != 0 {
                    self.steps.set(self.steps.get().saturating_add(1));
                }
            }
            Op::Label | Op::Init { .. } | Op::Export { .. } => (),
            Op::Print { quoted, newline } => self.print(at, &line, quoted, newline, errors),
            Op::Save { append } => {
                let (handler, file) = text::next_word(&line);
                let file = if file.is_empty() { "-" } else { file };
                let redirected = format!("{}{file} {handler}", if append { ">>" } else { ">" });
                self.print(at, &redirected, false, true, errors);
            }
            Op::Read { quoted } => self.read(at, &line, quoted, errors),
            Op::Write { quoted } => {
                let good = self.call(at, &line, quoted, true, errors).is_some();
                self.write_status.set(if good { 0 } else { -1 });
            }
            Op::Set { quoted } | Op::Return { quoted } => {
                let value = self.expand(at, &line, false, errors);
                self.set_variable(&instruction.name, if quoted { unquoted(&value) } else { value });
                if matches!(instruction.op, Op::Return { .. }) && self.position.get() == place + 1 {
                    self.position.set(place);
                    return Next::Wait;
                }
            }
            Op::Goto => return self.goto(at, place, &line, errors),
            Op::Error { quoted } => {
                let message = self.expand(at, &line, false, errors);
                let message = if quoted { unquoted(&message) } else { message };
                if !message.is_empty() {
                    errors.error(&message);
                }
                self.position.set(place);
                return Next::End;
            }
            Op::End | Op::Exit => {
                self.position.set(place);
                return Next::End;
            }
        }
        Next::Go
    }

    fn wait_step(&self, place: usize, steps: i64) -> Next {
        let instruction = &self.instructions[place];
        let wanted = instruction.count.get() - instruction.taken.get();
        let taken = wanted.min(steps - self.steps.get()).max(0);
        instruction.taken.set(instruction.taken.get() + taken);
        self.steps.set(self.steps.get().saturating_add(taken));
        if self.steps.get() == steps && instruction.taken.get() < instruction.count.get() {
            self.position.set(place);
            return Next::Wait;
        }
        Next::Go
    }

    fn goto(&self, at: At<'_>, place: usize, line: &str, errors: &Errors) -> Next {
        let condition = self.expand(at, line, false, errors);
        let condition = condition.trim();
        match (condition.is_empty(), boolean(condition)) {
            (true, _) | (_, Some(true)) => {
                let Target::Place(target) = self.instructions[place].target else {
                    self.position.set(place);
                    return Next::End;
                };
                for instruction in self.instructions.iter().take(place).skip(target) {
                    instruction.taken.set(0);
                }
                self.position.set(target);
            }
            (_, Some(false)) => (),
            (_, None) => errors.error(&format!("bad condition '{condition}'")),
        }
        Next::Go
    }

    /// Calls a handler that a line names. `None` after an error was told.
    fn call(&self, at: At<'_>, line: &str, quoted: bool, write: bool, errors: &Errors) -> Option<String> {
        let line = self.expand(at, line, false, errors);
        let mut call = match HandlerCall::parse(&line, at) {
            Ok(call) => call,
            Err(message) => {
                errors.error(&message);
                return None;
            }
        };
        if quoted {
            call.value = unquoted(&call.value);
        }
        if let Err(message) = call.check(at.router, write) {
            errors.error(&message);
            return None;
        }
        let answer = if write { call.write(at.router) } else { call.read(at.router) };
        match answer {
            Ok(value) => Some(value),
            Err(message) => {
                let shown = format!("{} {}", call.full_name(at.router), call.value);
                errors.within("", &format!("While calling '{}':", shown.trim_end()), |errors| {
                    if !message.is_empty() {
                        errors.error(&message);
                    }
                });
                None
            }
        }
    }

    fn read(&self, at: At<'_>, line: &str, quoted: bool, errors: &Errors) {
        let expanded = self.expand(at, line, false, errors);
        let Some(value) = self.call(at, line, quoted, false, errors) else { return };
        if let Ok(call) = HandlerCall::parse(&expanded, at) {
            at.chatter(&format!("{}:\n{value}\n", call.full_name(at.router)));
        }
    }

    fn print(&self, at: At<'_>, line: &str, quoted: bool, newline: bool, errors: &Errors) {
        let (mut line, mut file, mut append) = (line.to_owned(), None, false);
        if let Some(rest) = line.strip_prefix('>') {
            append = rest.starts_with('>');
            let (name, value) = text::next_word(rest.strip_prefix('>').unwrap_or(rest));
            let name = unquoted(&self.expand(at, &name, false, errors));
            file = (!name.is_empty() && name != "-").then_some(name);
            line = value.to_owned();
        }
        let is_handler =
            line.starts_with(|first: char| first.is_ascii_alphabetic() || first == '@' || first == '_');
        let mut bytes = if is_handler {
            let Some(value) = self.call(at, &line, quoted, false, errors) else { return };
            value.into_bytes()
        } else {
            text::unquote(&self.expand(at, &line, true, errors))
        };
        if newline && !bytes.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        let capabilities = at.capabilities();
        let written = match &file {
            None if !capabilities.files && !capabilities.process => {
                at.chatter(String::from_utf8_lossy(&bytes).trim_end_matches('\n'));
                Ok(())
            }
            None => {
                let mut out = std::io::stdout().lock();
                out.write_all(&bytes).and_then(|()| out.flush())
            }
            Some(_) if !at.capabilities().files => {
                errors.error("this instance may not write files (capability files)");
                return;
            }
            Some(name) => OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(!append)
                .append(append)
                .open(name)
                .and_then(|mut file| file.write_all(&bytes)),
        };
        if let (Err(error), Some(name)) = (written, file) {
            errors.error(&format!("{name}: {}", system_message(&error)));
        }
    }

    /// The handlers `step`, `goto` and `run`, and those of a proxy.
    pub(super) fn run_handler_step(&self, at: At<'_>, handler: &str, value: &str, writes: bool) -> Answer {
        let data = text::uncomment(value);
        let data = data.trim();
        handler.clone_into(&mut self.run_handler.borrow_mut());
        self.run_writes.set(writes);
        let errors = Errors::collected();
        let (mut steps, mut kind) = (0, Step::Jump);
        match handler {
            "goto" => {
                let Some(Target::Place(place)) = find_label(&self.instructions, data) else {
                    return Err("jump to nonexistent label".into());
                };
                self.instructions[place..].iter().for_each(|instruction| instruction.taken.set(0));
                self.position.set(place);
            }
            "step" => {
                (steps, kind) = match (data, integer(data)) {
                    ("router", _) => (1, Step::Router),
                    ("", _) => (1, Step::Normal),
                    (_, Some(count)) => (i64::try_from(count).unwrap_or(i64::MAX >> 1), Step::Normal),
                    _ => return Err("syntax error".into()),
                };
            }
            _ => {
                self.position.set(0);
                value.clone_into(&mut self.run_arguments.borrow_mut());
            }
        }
        if let Some(added) = self.added_steps.get() {
            // A call from inside of the script's own run: it goes on from the new place.
            if handler == "step" {
                self.added_steps.set(Some(added.saturating_add(steps)));
            }
            return Ok(String::new());
        }
        let mut jumps = 0;
        for _ in 0..MAX_DEPTH {
            if steps < 0 {
                break;
            }
            self.added_steps.set(Some(-1));
            jumps = self.step(at, steps, kind, jumps, &errors);
            steps = self.added_steps.take().unwrap_or(-1);
            kind = Step::Normal;
        }
        self.added_steps.set(None);
        let answer = self.completed(at);
        self.run_handler.borrow_mut().clear();
        self.run_writes.set(false);
        if errors.count() > 0 {
            return Err(errors.lines().join("\n"));
        }
        errors.lines().iter().for_each(|line| at.chatter(line));
        answer
    }
}

enum Next {
    /// On to the next instruction.
    Go,
    /// The script waits.
    Wait,
    /// The script has ended.
    End,
}

#[cfg(test)]
mod tests {
    use crate::testing::run;

    #[test]
    fn a_value_is_bounded_while_it_is_made() {
        let long = "a".repeat(60_000);
        // Each `$(long.run)` says a line: the rest is not asked for when the value is as long as one can be.
        let many = "$(long.run)".repeat(500);
        let script = format!(
            "long :: Script(TYPE PASSIVE, print \"called\", return {long});
             Script(set value {many}, print \"done\", stop)"
        );
        let said = run(&script).said();
        assert_eq!(said.iter().filter(|line| *line == "called").count(), 2, "{said:.200?}");
        assert!(said.iter().any(|line| line.contains("a value has more than 65536 bytes")), "{said:.200?}");
        // The script goes on.
        assert_eq!(said.last().map(String::as_str), Some("done"));
    }
}
