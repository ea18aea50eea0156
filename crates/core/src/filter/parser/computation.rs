//! Computations of numbers, and the precedence of their operators.

use super::{Parser, Result};
use crate::filter::arithmetic::{Relation, Value};
use crate::filter::lexer::{Kind, Symbol};
use crate::filter::names::Keyword;
use crate::filter::program::{Is, Operator, Width};
use crate::filter::protocol::Protocol;

impl Parser<'_> {
    /// A number, a length, a field, a negation, or a computation in parentheses.
    pub(super) fn operand(&mut self) -> Result<Value> {
        let start = self.range().start;
        match self.peek() {
            Kind::Number(number) | Kind::Keyword(Keyword::Number(number)) => {
                self.advance();
                Ok(Value::number(number))
            }
            Kind::Keyword(Keyword::Length) => {
                self.advance();
                Ok(Value::wire_length())
            }
            Kind::Symbol(Symbol::Minus) => {
                self.advance();
                self.nested(|parser| {
                    let value = parser.operand()?;
                    parser.arithmetic(value, Some(Pending::Negation)).map(Value::negated)
                })
            }
            Kind::Symbol(Symbol::Open) => {
                self.advance();
                self.nested(|parser| {
                    let value = parser.operand()?;
                    let value = parser.computation(value)?;
                    parser.expect(Symbol::Close, "`)` or an operator", "close the parenthesis")?;
                    Ok(value)
                })
            }
            Kind::Keyword(Keyword::Protocol(protocol)) => {
                self.advance();
                self.fetch(start, protocol)
            }
            _ => Err(self.unexpected("a number, `len` or a field such as `ip[9]`", "write one of them")),
        }
    }

    /// The whole computation that starts with an operand.
    pub(super) fn computation(&mut self, first: Value) -> Result<Value> {
        self.arithmetic(first, None)
    }

    /// The operators after an operand, as far as they bind closer than the one before it.
    fn arithmetic(&mut self, left: Value, pending: Option<Pending>) -> Result<Value> {
        let mut left = left;
        while let Some((operator, binding)) = operator(self.peek()) {
            if !binds_closer(binding, pending) {
                break;
            }
            let start = self.range().start;
            self.advance();
            let right = self.nested(|parser| {
                let right = parser.operand()?;
                parser.arithmetic(right, Some(Pending::Operator(binding)))
            })?;
            left = left.operate(operator, right).map_err(|fault| self.fault(start, fault))?;
        }
        Ok(left)
    }

    /// `[index]` or `[index:width]` after a protocol.
    pub(super) fn fetch(&mut self, start: usize, protocol: Protocol) -> Result<Value> {
        self.expect(Symbol::OpenBracket, "`[`", "write for example `tcp[13]`")?;
        let index = self.nested(|parser| {
            let index = parser.operand()?;
            parser.computation(index)
        })?;
        let colon = self.take(Kind::Symbol(Symbol::Colon));
        let width = if colon { self.width()? } else { Width::One };
        self.expect(Symbol::CloseBracket, "`]`", "close the bracket")?;
        self.generator.fetch(protocol, index, width).map_err(|fault| self.fault(start, fault))
    }

    fn width(&mut self) -> Result<Width> {
        let width = match self.peek() {
            Kind::Number(1) => Width::One,
            Kind::Number(2) => Width::Two,
            Kind::Number(4) => Width::Four,
            _ => return Err(self.unexpected("1, 2 or 4", "a field has 1, 2 or 4 bytes")),
        };
        self.advance();
        Ok(width)
    }
}

/// The operator to the left of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Operator(Option<u8>),
    Negation,
}

/// Whether an operator takes the operand before another one does.
///
/// `%` and `^` have no precedence in tcpdump's grammar: they, and what follows them, take the operand to
/// their left, so that `5 % 2 * 3` is `5 % (2 * 3)`.
fn binds_closer(binding: Option<u8>, pending: Option<Pending>) -> bool {
    match (binding, pending) {
        (_, None) | (None, _) | (_, Some(Pending::Operator(None))) => true,
        (Some(_), Some(Pending::Negation)) => false,
        (Some(binding), Some(Pending::Operator(Some(pending)))) => binding > pending,
    }
}

/// The operator of a symbol, with its precedence, if it has one.
pub(super) fn operator(kind: Kind<'_>) -> Option<(Operator, Option<u8>)> {
    let Kind::Symbol(symbol) = kind else { return None };
    Some(match symbol {
        Symbol::Bar => (Operator::Or, Some(0)),
        Symbol::Ampersand => (Operator::And, Some(1)),
        Symbol::ShiftLeft => (Operator::ShiftLeft, Some(2)),
        Symbol::ShiftRight => (Operator::ShiftRight, Some(2)),
        Symbol::Plus => (Operator::Add, Some(3)),
        Symbol::Minus => (Operator::Subtract, Some(3)),
        Symbol::Star => (Operator::Multiply, Some(4)),
        Symbol::Slash => (Operator::Divide, Some(4)),
        Symbol::Percent => (Operator::Remainder, None),
        Symbol::Caret => (Operator::Xor, None),
        _ => return None,
    })
}

pub(super) fn relation(kind: Kind<'_>) -> Option<Relation> {
    let Kind::Symbol(symbol) = kind else { return None };
    let (is, negated) = match symbol {
        Symbol::Equal => (Is::Equal, false),
        Symbol::NotEqual => (Is::Equal, true),
        Symbol::Greater => (Is::Greater, false),
        Symbol::GreaterOrEqual => (Is::GreaterOrEqual, false),
        Symbol::LessOrEqual => (Is::Greater, true),
        Symbol::Less => (Is::GreaterOrEqual, true),
        _ => return None,
    };
    Some(Relation { is, negated })
}
