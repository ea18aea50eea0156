//! The grammar of pcap-filter(7): primitives, `and`, `or`, `not`, parentheses and comparisons.
//!
//! `and` and `or` bind equally and from left to right. An identifier without keywords takes the qualifiers of
//! the primitive before it: `port 80 or 443`.

mod computation;
mod primitive;

use std::ops::Range;

use self::computation::{operator, relation};
use super::arithmetic::Value;
use super::error::{Fault, FilterError};
use super::generator::{Condition, Decided, Generator};
use super::lexer::{self, Kind, Symbol, Token};
use super::names::{self, Keyword};
use super::program::Operation;
use super::qualifier::{Identifier, Qualifiers};

/// Parentheses, brackets, negations and operators that may enclose each other.
const MOST_DEPTH: usize = 64;

/// The program of a text, which has a condition.
pub(super) fn compile(text: &str) -> Result<Box<[Operation]>, FilterError> {
    let tokens = lexer::tokens(text)?;
    let mut parser = Parser { text, tokens, next: 0, depth: 0, generator: Generator::default() };
    let condition = if parser.peek() == Kind::End {
        parser.generator.always()
    } else {
        let parsed = parser.expression(Context::TERM)?;
        let condition = parser.condition(parsed)?.condition;
        if parser.peek() != Kind::End {
            return Err(parser.unexpected("`and` or `or`", "join conditions by `and` or `or`"));
        }
        condition
    };
    Ok(parser.generator.finish(condition))
}

/// The things that may stand at a place.
#[derive(Clone, Copy)]
struct Context {
    /// The qualifiers for an identifier alone, if one may stand here.
    carried: Option<Qualifiers>,
    /// Whether primitives and comparisons may stand here.
    terms: bool,
}

impl Context {
    const TERM: Self = Self { carried: None, terms: true };
}

/// A condition with what it passes on.
struct Part {
    condition: Condition,
    /// The qualifiers for identifiers that follow.
    qualifiers: Option<Qualifiers>,
    /// Whether it was made of identifiers alone.
    bare: bool,
}

impl Part {
    /// A condition of which identifiers cannot take qualifiers.
    fn closed(condition: Condition) -> Self {
        Self { condition, qualifiers: None, bare: false }
    }
}

enum Parsed {
    Part(Part),
    Value(Value),
    /// A number that may become an identifier or part of a comparison.
    Number(u32, Range<usize>),
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    next: usize,
    depth: usize,
    generator: Generator,
}

type Result<T, E = FilterError> = std::result::Result<T, E>;

impl<'a> Parser<'a> {
    fn peek(&self) -> Kind<'a> {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Kind<'a> {
        self.tokens.get(self.next + ahead).map_or(Kind::End, |token| token.kind)
    }

    /// The bytes of the next token.
    fn range(&self) -> Range<usize> {
        let end = self.text.len();
        self.tokens.get(self.next).map_or(end..end, |token| token.range.clone())
    }

    fn advance(&mut self) {
        self.next += 1;
    }

    fn take(&mut self, kind: Kind<'_>) -> bool {
        let found = self.peek() == kind;
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, symbol: Symbol, name: &str, help: &str) -> Result<()> {
        if self.take(Kind::Symbol(symbol)) { Ok(()) } else { Err(self.unexpected(name, help)) }
    }

    /// The error of the next token.
    fn unexpected(&self, expected: &str, help: &str) -> FilterError {
        let mut fault = Fault::new(expected, help);
        match self.peek() {
            Kind::Name(name) => fault.nearest = names::nearest_keyword(name),
            Kind::Keyword(Keyword::Refused(reason)) => fault.help = reason.into(),
            _ => {}
        }
        fault.at(self.text, self.range())
    }

    /// The error of a fault from `start` up to the last token that was read.
    fn fault(&self, start: usize, fault: Fault) -> FilterError {
        let last = self.next.checked_sub(1).and_then(|last| self.tokens.get(last));
        let end = last.map_or(start, |token| token.range.end.max(start));
        fault.at(self.text, start..end)
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MOST_DEPTH {
            let expected = format!("at most {MOST_DEPTH} levels of nesting");
            return Err(Fault::new(expected, "remove parentheses").at(self.text, self.range()));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// `term and term or term …`, or a number that its parentheses enclose.
    fn expression(&mut self, context: Context) -> Result<Parsed> {
        let first = match self.term(context)? {
            Parsed::Part(part) => part,
            number => return Ok(number),
        };
        let terms = context.terms && !first.bare;
        let mut all = first;
        loop {
            let and = match self.peek() {
                Kind::Keyword(Keyword::And) => true,
                Kind::Keyword(Keyword::Or) => false,
                _ => return Ok(Parsed::Part(all)),
            };
            self.advance();
            if and {
                self.generator.begin_and(&mut all.condition);
            } else {
                self.generator.begin_or(&mut all.condition);
            }
            let start = self.range().start;
            let parsed = self.term(Context { carried: all.qualifiers, terms })?;
            let next = match parsed {
                Parsed::Number(number, _) if all.qualifiers.is_some() => {
                    self.identifier(start, all.qualifiers, Identifier::Number(number))?
                }
                parsed => self.condition(parsed)?,
            };
            let join = if and { Generator::end_and } else { Generator::end_or };
            all.condition = join(all.condition, next.condition);
            all.qualifiers = next.qualifiers;
        }
    }

    /// The condition, or an error where there is only a number.
    fn condition(&self, parsed: Parsed) -> Result<Part> {
        match parsed {
            Parsed::Part(part) => Ok(part),
            Parsed::Number(_, range) if self.peek() == Kind::End => Err(Fault::new(
                "a condition",
                "put a keyword before the number, such as `port`, or compare it",
            )
            .at(self.text, range)),
            _ => {
                Err(self
                    .unexpected("a comparison with `=`, `!=`, `<`, `<=`, `>` or `>=`", "compare the number"))
            }
        }
    }

    /// A primitive, a comparison, an identifier, or a number before a closing parenthesis.
    fn term(&mut self, context: Context) -> Result<Parsed> {
        let start = self.range().start;
        self.generator.check_length().map_err(|fault| fault.at(self.text, self.range()))?;
        if self.take(Kind::Keyword(Keyword::Not)) {
            return self.negated(start, context);
        }
        let left = match self.primary(context)? {
            Parsed::Part(part) => return Ok(Parsed::Part(part)),
            left => left,
        };
        let arithmetic =
            context.terms && (operator(self.peek()).is_some() || relation(self.peek()).is_some());
        let value = match left {
            Parsed::Number(number, range) if !arithmetic => {
                return match context.carried {
                    Some(_) if self.peek() != Kind::Symbol(Symbol::Close) => {
                        let part = self.identifier(start, context.carried, Identifier::Number(number))?;
                        Ok(Parsed::Part(part))
                    }
                    _ => Ok(Parsed::Number(number, range)),
                };
            }
            Parsed::Number(number, _) => Value::number(number),
            Parsed::Value(value) => value,
            Parsed::Part(part) => return Ok(Parsed::Part(part)),
        };
        let value = self.computation(value)?;
        let Some(relation) = relation(self.peek()) else { return Ok(Parsed::Value(value)) };
        self.advance();
        let right = self.operand()?;
        let right = self.computation(right)?;
        let related = self.generator.relate(value, relation, right);
        self.part(start, related).map(|condition| Parsed::Part(Part::closed(condition)))
    }

    fn negated(&mut self, start: usize, context: Context) -> Result<Parsed> {
        let parsed = self.nested(|parser| parser.term(context))?;
        let part = match parsed {
            Parsed::Number(number, _) if context.carried.is_some() => {
                self.identifier(start, context.carried, Identifier::Number(number))?
            }
            parsed => self.condition(parsed)?,
        };
        Ok(Parsed::Part(Part { condition: part.condition.negated(), ..part }))
    }

    fn part(&self, start: usize, decided: Decided) -> Result<Condition> {
        decided.map_err(|fault| self.fault(start, fault))
    }

    fn identifier(
        &mut self,
        start: usize,
        qualifiers: Option<Qualifiers>,
        identifier: Identifier<'_>,
    ) -> Result<Part> {
        let Some(qualifiers) = qualifiers else {
            let fault = Fault {
                nearest: match identifier {
                    Identifier::Name(name) => names::nearest_keyword(name),
                    _ => None,
                },
                ..Fault::new(
                    "a primitive",
                    "put a keyword before it, such as `host`, `net`, `port` or `proto`",
                )
            };
            return Err(self.fault(start, fault));
        };
        let decided = qualifiers.apply(&mut self.generator, identifier);
        let condition = self.part(start, decided)?;
        Ok(Part { condition, qualifiers: Some(qualifiers), bare: true })
    }

    /// The start of a term, as far as its first token decides it.
    fn primary(&mut self, context: Context) -> Result<Parsed> {
        let start = self.range().start;
        match self.peek() {
            Kind::Symbol(Symbol::Open) => {
                self.advance();
                let inner = self.nested(|parser| parser.expression(context))?;
                self.expect(Symbol::Close, "`)`", "close the parenthesis")?;
                Ok(match inner {
                    Parsed::Number(number, _) => Parsed::Number(number, start..self.range().start),
                    // Only a group of identifiers alone passes its qualifiers on.
                    Parsed::Part(part) if !part.bare => Parsed::Part(Part::closed(part.condition)),
                    inner => inner,
                })
            }
            Kind::Number(number) => {
                let range = self.range();
                self.advance();
                Ok(Parsed::Number(number, range))
            }
            Kind::Name(_) | Kind::Dotted(_) | Kind::Ethernet(_) | Kind::Ipv6(_) => {
                if context.carried.is_none() {
                    return Err(self.unexpected(
                        "a primitive",
                        "put a keyword before it, such as `host`, `net`, `port` or `proto`",
                    ));
                }
                let identifier = self.read_identifier()?;
                self.identifier(start, context.carried, identifier).map(Parsed::Part)
            }
            _ if !context.terms => {
                let expected = context.carried.map_or("an identifier", |carried| carried.address.expects());
                Err(self.unexpected(expected, "write it here; close the parentheses before another keyword"))
            }
            Kind::Keyword(Keyword::Number(_) | Keyword::Length) | Kind::Symbol(Symbol::Minus) => {
                match (self.peek(), self.operand()?) {
                    (Kind::Keyword(Keyword::Number(number)), _) => {
                        Ok(Parsed::Number(number, start..self.range().start))
                    }
                    (_, value) => Ok(Parsed::Value(value)),
                }
            }
            Kind::Keyword(Keyword::Protocol(protocol))
                if self.peek_at(1) == Kind::Symbol(Symbol::OpenBracket) =>
            {
                self.advance();
                self.fetch(start, protocol).map(Parsed::Value)
            }
            Kind::Keyword(_) => self.primitive().map(Parsed::Part),
            _ => Err(self.unexpected("a primitive or a comparison", "write a condition here")),
        }
    }

    fn number(&mut self) -> Result<u32> {
        match self.peek() {
            Kind::Number(number) | Kind::Keyword(Keyword::Number(number)) => {
                self.advance();
                Ok(number)
            }
            _ => Err(self.unexpected("a number", "write a number")),
        }
    }

    /// A number, maybe in parentheses, if one follows.
    fn optional_number(&mut self) -> Result<Option<u32>> {
        let mut open = 0;
        while self.take(Kind::Symbol(Symbol::Open)) {
            open += 1;
        }
        let number = match self.peek() {
            Kind::Number(_) | Kind::Keyword(Keyword::Number(_)) => Some(self.number()?),
            _ if open == 0 => None,
            _ => return Err(self.unexpected("a number", "write a number in the parentheses")),
        };
        for _ in 0..open {
            self.expect(Symbol::Close, "`)`", "close the parenthesis")?;
        }
        Ok(number)
    }
}
