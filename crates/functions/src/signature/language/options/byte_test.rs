//! The keyword `byte_test`: a number in the data is compared.

use super::super::{Reading, shown, unsupported, wrong};
use super::{MOST, number};

/// A comparison of a number that stands in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super::super) struct ByteTest {
    /// Bytes of the number.
    pub(in super::super::super) count: usize,
    form: Form,
    operator: Operator,
    negated: bool,
    value: u64,
    /// Where it begins: behind the part before it, or behind the beginning of the data.
    pub(in super::super::super) offset: i32,
    pub(in super::super::super) relative: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The first byte is the most significant one.
    Big,
    /// The first byte is the least significant one.
    Little,
    /// Digits of this base, behind spaces.
    Digits(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Below,
    AtMost,
    Equal,
    AtLeast,
    Above,
    /// They have a bit in common.
    And,
    /// They differ in a bit.
    Xor,
}

/// The most bytes of a number that is not in digits.
const MOST_BINARY: usize = 8;
/// The most bytes of digits: those of the largest number in base 8.
const MOST_DIGITS: usize = 23;

impl ByteTest {
    /// Reads `COUNT, [!]OPERATOR, VALUE, OFFSET` and what may follow.
    pub(super) fn read((at, text): (usize, &str)) -> Reading<Self> {
        let words: Vec<&str> = text.split(',').map(str::trim).collect();
        let [count, operator, value, offset, more @ ..] = &words[..] else {
            return wrong(
                at,
                format!("expected `COUNT,OPERATOR,VALUE,OFFSET` as `2,>,512,4`, found `{}`", shown(text)),
            );
        };
        let count = number(count, at, 1, MOST_DIGITS as i64)? as usize;
        let (negated, operator) =
            operator.strip_prefix('!').map_or((false, *operator), |operator| (true, operator.trim()));
        let operator = match operator {
            "<" => Operator::Below,
            "<=" => Operator::AtMost,
            "=" => Operator::Equal,
            ">=" => Operator::AtLeast,
            ">" => Operator::Above,
            "&" => Operator::And,
            "^" => Operator::Xor,
            // `!` alone is short for `!=`.
            "" if negated => Operator::Equal,
            other => {
                let known = "<, <=, =, >=, >, & or ^, with `!` before it or not";
                return wrong(at, format!("expected the operator {known}, found `{}`", shown(other)));
            }
        };
        let is_name =
            |word: &str| word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        if is_name(value) || is_name(offset) {
            return unsupported(at, "a variable of `byte_extract` in `byte_test` is not supported");
        }
        let parsed = match value.strip_prefix("0x").or(value.strip_prefix("0X")) {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => value.parse(),
        };
        let Ok(value) = parsed else {
            let form = "expected a number of at most 64 bits, decimal or hexadecimal as `0x1f`";
            return wrong(at, format!("{form}, found `{}`", shown(value)));
        };
        let mut test = Self { count, form: Form::Big, operator, negated, value, offset: 0, relative: false };
        test.options(at, more)?;
        let least = if test.relative { -i64::from(MOST) } else { 0 };
        test.offset = number(offset, at, least, i64::from(MOST))? as i32;
        if !matches!(test.form, Form::Digits(_)) && count > MOST_BINARY {
            return wrong(at, format!("{count} bytes: without `string`, a number has at most {MOST_BINARY}"));
        }
        Ok(test)
    }

    fn options(&mut self, at: usize, words: &[&str]) -> Reading<()> {
        let (mut base, mut endian, mut digits) = (None, None, false);
        for word in words {
            match *word {
                "relative" => self.relative = true,
                "string" => digits = true,
                "dec" => base = Some(10),
                "hex" => base = Some(16),
                "oct" => base = Some(8),
                "big" => endian = Some(Form::Big),
                "little" => endian = Some(Form::Little),
                word if word == "dce" || word.starts_with("bitmask") => {
                    return unsupported(at, format!("`{}` of `byte_test` is not supported", shown(word)));
                }
                word => {
                    let known = "relative, big, little, string, dec, hex or oct";
                    return wrong(at, format!("expected {known}, found `{}`", shown(word)));
                }
            }
        }
        self.form = match (digits, base, endian) {
            (true, base, None) => Form::Digits(base.unwrap_or(10)),
            (false, None, endian) => endian.unwrap_or(Form::Big),
            _ => {
                let rule = "`dec`, `hex` and `oct` go with `string`, `big` and `little` without it";
                return wrong(at, format!("{rule}: take one out"));
            }
        };
        Ok(())
    }

    /// Whether the number in these bytes, which are as many as it has, holds.
    pub(in super::super::super) fn holds(&self, bytes: &[u8]) -> bool {
        let fold = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        let number = match self.form {
            Form::Big => Some(bytes.iter().fold(0, fold)),
            Form::Little => Some(bytes.iter().rev().fold(0, fold)),
            Form::Digits(base) => digits(bytes, base),
        };
        let Some(number) = number else { return false };
        let holds = match self.operator {
            Operator::Below => number < self.value,
            Operator::AtMost => number <= self.value,
            Operator::Equal => number == self.value,
            Operator::AtLeast => number >= self.value,
            Operator::Above => number > self.value,
            Operator::And => number & self.value != 0,
            Operator::Xor => number ^ self.value != 0,
        };
        holds != self.negated
    }
}

/// The number whose digits stand first, behind spaces and, in base 16, `0x`; `None` without a digit.
///
/// It is at most that of 64 bits, as by `strtoull` of C.
fn digits(bytes: &[u8], base: u32) -> Option<u64> {
    let bytes = bytes.trim_ascii_start();
    let bytes = match bytes {
        [b'0', b'x' | b'X', rest @ ..] if base == 16 && rest.first().is_some_and(u8::is_ascii_hexdigit) => {
            rest
        }
        _ => bytes,
    };
    let mut number = None;
    for digit in bytes.iter().map_while(|byte| char::from(*byte).to_digit(base)) {
        let so_far = number.unwrap_or(0u64);
        number = Some(so_far.saturating_mul(u64::from(base)).saturating_add(u64::from(digit)));
    }
    number
}
