//! Handlers of scripts that compute: `add`, `eq`, `if`, `sprintf`, `get` and similar ones.

use std::cmp::Ordering;

use crate::command::system_message;
use crate::handler::{Answer, Handlers};
use crate::handler_call::HandlerCall;
use crate::language::text::{self, next_word};
use crate::router::At;
use crate::value::{boolean, integer, write_number, write_time};

use super::run::unquoted;
use super::{Script, format};

/// A number as scripts have them: exact where it is an integer.
#[derive(Clone, Copy)]
enum Number {
    Integer(i64),
    Real(f64),
}

impl Number {
    fn read(word: &str) -> Option<Self> {
        if let Some(value) = integer(word).and_then(|value| i64::try_from(value).ok()) {
            return Some(Self::Integer(value));
        }
        word.parse().ok().map(Self::Real)
    }
    fn real(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Real(value) => value,
        }
    }
    fn write(self) -> String {
        match self {
            Self::Integer(value) => value.to_string(),
            Self::Real(value) => write_number(value),
        }
    }
}

type Exact = fn(i64, i64) -> i64;
type Inexact = fn(f64, f64) -> f64;

/// Applies an operation to all numbers of a list, from the left.
fn fold(list: &str, exact: Option<Exact>, inexact: Inexact, empty: i64) -> Result<Number, String> {
    let mut numbers = Vec::new();
    for word in text::split_words(list) {
        numbers.push(Number::read(&word).ok_or("expected list of numbers")?);
    }
    let Some((first, rest)) = numbers.split_first() else { return Ok(Number::Integer(empty)) };
    let mut result = *first;
    if exact.is_none() {
        result = Number::Real(result.real());
    }
    for number in rest {
        result = match (result, number, exact) {
            (Number::Integer(left), Number::Integer(right), Some(exact)) => {
                Number::Integer(exact(left, *right))
            }
            (left, right, _) => Number::Real(inexact(left.real(), right.real())),
        };
    }
    Ok(result)
}

fn two_numbers(list: &str) -> Result<(String, String), String> {
    let words = text::split_words(list);
    match &words[..] {
        [one, other] => Ok((one.clone(), other.clone())),
        _ => Err("expected two numbers".into()),
    }
}

fn remainder(list: &str, reals: bool) -> Answer {
    let (one, other) = two_numbers(list)?;
    match (Number::read(&one), Number::read(&other)) {
        (Some(Number::Integer(_)), Some(Number::Integer(0))) => Err("division by zero".into()),
        (Some(Number::Integer(one)), Some(Number::Integer(other))) => Ok(one.wrapping_rem(other).to_string()),
        (Some(one), Some(other)) if reals => Ok(write_number(one.real() % other.real())),
        _ => Err("expected two numbers".into()),
    }
}

fn compare(list: &str, fits: fn(Ordering) -> bool) -> Answer {
    let (one, other) = two_numbers(list)?;
    let order = match (Number::read(&one), Number::read(&other)) {
        (Some(Number::Integer(one)), Some(Number::Integer(other))) => one.cmp(&other),
        (Some(one), Some(other)) => one.real().partial_cmp(&other.real()).unwrap_or(Ordering::Greater),
        _ => text::unquote(&one).cmp(&text::unquote(&other)),
    };
    Ok(fits(order).to_string())
}

/// Whether all words are true (`any`: one of them); words behind the first that decides are not looked at.
fn logic(list: &str, any: bool, negated: bool) -> Answer {
    let mut value = !any;
    for word in text::split_words(list) {
        let next = boolean(&word).ok_or("syntax error")?;
        value = next;
        if next == any {
            break;
        }
    }
    Ok((value != negated).to_string())
}

fn condition(list: &str) -> Answer {
    let words = text::split_words(list);
    let first = words.first().and_then(|word| boolean(word)).ok_or("syntax error")?;
    Ok(words.get(if first { 1 } else { 2 }).cloned().unwrap_or_default())
}

fn is_in(list: &str) -> Answer {
    let words: Vec<Vec<u8>> = text::split_words(list).iter().map(|word| text::unquote(word)).collect();
    Ok(words.split_first().is_some_and(|(word, rest)| rest.contains(word)).to_string())
}

fn random(at: At<'_>, list: &str) -> Answer {
    let words = text::split_words(list);
    let numbers: Option<Vec<u32>> =
        words.iter().map(|word| integer(word).and_then(|number| u32::try_from(number).ok())).collect();
    match numbers.as_deref() {
        Some([]) => Ok((at.router.random() >> 1).to_string()),
        Some([0]) => Err("bad N".into()),
        Some([bound]) => Ok(at.router.random_below(*bound).to_string()),
        Some([least, most]) if least <= most => {
            let span = most.wrapping_sub(*least).wrapping_add(1);
            let drawn = if span == 0 { at.router.random() } else { at.router.random_below(span) };
            Ok(least.wrapping_add(drawn).to_string())
        }
        Some([_, _]) => Err("bad N".into()),
        Some(_) => Err("too many arguments".into()),
        None => Err("N1: parse error".into()),
    }
}

fn swapped(value: &str, swap: fn(i64) -> i64) -> Answer {
    let number = integer(value.trim()).and_then(|number| i64::try_from(number).ok()).ok_or("syntax error")?;
    Ok(swap(number).to_string())
}

fn file(at: At<'_>, name: &str) -> Answer {
    if !at.capabilities().files {
        return Err("this instance may not read files (capability files)".into());
    }
    let name = unquoted(name.trim());
    if name.is_empty() {
        return Err("bad FILE".into());
    }
    std::fs::read(&name)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .map_err(|error| format!("{name}: {}", system_message(&error)))
}

fn kill(at: At<'_>, list: &str) -> Answer {
    if !at.capabilities().process {
        return Err("this instance may not send signals (capability process)".into());
    }
    let words = text::split_words(list);
    let (signal, processes) = words.split_first().ok_or("bad SIGNO")?;
    let signal =
        super::signal(signal).and_then(rustix::process::Signal::from_named_raw).ok_or("bad SIGNO")?;
    for process in processes {
        let number = integer(process).and_then(|number| i32::try_from(number).ok());
        let process = number.and_then(rustix::process::Pid::from_raw).ok_or("bad PID")?;
        rustix::process::kill_process(process, signal)
            .map_err(|error| format!("kill({}, {}): {error}", process.as_raw_nonzero(), signal.as_raw()))?;
    }
    Ok(String::new())
}

fn exists(at: At<'_>, list: &str, write: bool) -> Answer {
    let all = text::split_words(list)
        .iter()
        .all(|word| HandlerCall::parse(word, at).is_ok_and(|call| call.check(at.router, write).is_ok()));
    Ok(all.to_string())
}

impl Script {
    /// Calls `change` with the value of a variable that a handler names, which may be the arguments of the run.
    fn with_variable(&self, name: &str, make: bool, change: impl FnOnce(&mut String) -> String) -> Answer {
        if name.is_empty() {
            return Err("no variable".into());
        }
        if name == "args" {
            return Ok(change(&mut self.run_arguments.borrow_mut()));
        }
        if self.variable(name).is_none() {
            if !make {
                return Err(format!("undefined variable '{name}'"));
            }
            self.set_variable(name, String::new());
        }
        let mut variables = self.variables.borrow_mut();
        let value = variables.iter_mut().find(|(known, _)| known == name);
        Ok(value.map(|(_, value)| change(value)).unwrap_or_default())
    }
}

fn declare_variables(handlers: &mut Handlers) {
    handlers.ask("get", |this: &Script, _, line| {
        let (name, more) = next_word(line);
        if !more.is_empty() {
            return Err("too many arguments".into());
        }
        this.with_variable(&name, false, |value| value.clone())
    });
    handlers.write("set", |this: &Script, _, line| {
        let (name, new) = next_word(line);
        this.with_variable(&name, true, |value| {
            new.clone_into(value);
            String::new()
        })
    });
    handlers.ask("shift", |this: &Script, _, line| {
        let (name, more) = next_word(line);
        if !more.is_empty() {
            return Err("too many arguments".into());
        }
        this.with_variable(if name.is_empty() { "args" } else { &name }, false, |value| {
            let (first, rest) = next_word(value);
            let rest = rest.to_owned();
            *value = rest;
            first
        })
    });
}

/// Declares the handlers.
pub(super) fn declare(handlers: &mut Handlers) {
    let mut ask = |name: &str, answer: fn(At<'_>, &str) -> Answer| {
        handlers.ask(name, move |_: &Script, at, value| answer(at, value));
    };
    ask("add", |_, list| fold(list, Some(i64::wrapping_add), |a, b| a + b, 0).map(Number::write));
    ask("sub", |_, list| fold(list, Some(i64::wrapping_sub), |a, b| a - b, 0).map(Number::write));
    ask("min", |_, list| fold(list, Some(i64::min), f64::min, 1).map(Number::write));
    ask("max", |_, list| fold(list, Some(i64::max), f64::max, 1).map(Number::write));
    ask("mul", |_, list| fold(list, Some(i64::wrapping_mul), |a, b| a * b, 1).map(Number::write));
    ask("div", |_, list| fold(list, None, |a, b| a / b, 1).map(Number::write));
    ask("idiv", |_, list| {
        fold(list, None, |a, b| a / b, 1).map(|number| Number::Integer(number.real() as i64).write())
    });
    ask("mod", |_, list| remainder(list, false));
    ask("rem", |_, list| remainder(list, true));
    ask("neg", |_, value| match Number::read(value.trim()) {
        Some(Number::Integer(number)) => Ok(number.wrapping_neg().to_string()),
        Some(Number::Real(number)) => Ok(write_number(-number)),
        None => Err("expected one number".into()),
    });
    ask("abs", |_, value| match Number::read(value.trim()) {
        Some(Number::Integer(number)) => Ok(number.wrapping_abs().to_string()),
        Some(Number::Real(number)) => Ok(write_number(number.abs())),
        None => Err("expected one number".into()),
    });
    ask("eq", |_, list| compare(list, Ordering::is_eq));
    ask("ne", |_, list| compare(list, Ordering::is_ne));
    ask("gt", |_, list| compare(list, Ordering::is_gt));
    ask("ge", |_, list| compare(list, Ordering::is_ge));
    ask("lt", |_, list| compare(list, Ordering::is_lt));
    ask("le", |_, list| compare(list, Ordering::is_le));
    ask("not", |_, value| {
        boolean(value.trim()).map(|value| (!value).to_string()).ok_or("syntax error".into())
    });
    ask("sprintf", |_, line| format::sprintf(line));
    ask("first", |_, list| Ok(next_word(list).0));
    ask("random", random);
    ask("and", |_, list| logic(list, false, false));
    ask("or", |_, list| logic(list, true, false));
    ask("nand", |_, list| logic(list, false, true));
    ask("nor", |_, list| logic(list, true, true));
    ask("if", |_, list| condition(list));
    ask("in", |_, list| is_in(list));
    ask("readable", |at, list| exists(at, list, false));
    ask("writable", |at, list| exists(at, list, true));
    ask("length", |_, value| Ok(value.len().to_string()));
    ask("unquote", |_, value| Ok(unquoted(value)));
    ask("htons", |_, value| swapped(value, |number| i64::from((number as u16).to_be())));
    ask("ntohs", |_, value| swapped(value, |number| i64::from(u16::from_be(number as u16))));
    ask("htonl", |_, value| swapped(value, |number| i64::from((number as u32).to_be())));
    ask("ntohl", |_, value| swapped(value, |number| i64::from(u32::from_be(number as u32))));
    handlers.read("now", |_: &Script, at| write_time(at.now()));
    handlers.ask("cat", |_: &Script, at, name| file(at, name)).private_read = true;
    let quoted =
        |_: &Script, at: At<'_>, name: &str| file(at, name).map(|text| text::quote(text.as_bytes(), false));
    handlers.ask("catq", quoted).private_read = true;
    handlers.ask("kill", |_: &Script, at, list| kill(at, list)).private_read = true;
    declare_variables(handlers);
}
