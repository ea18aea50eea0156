//! `sprintf` for scripts: numbers and texts in a format of C's.

use crate::handler::Answer;
use crate::language::text::next_word;
use crate::value::integer;

use super::run::unquoted;

/// The widest field and the highest precision that a format may ask for.
const MAX_WIDTH: usize = 4096;

/// One conversion of a format, such as `%-08.3x`.
#[derive(Default)]
struct Conversion {
    left: bool,
    zeros: bool,
    plus: bool,
    space: bool,
    alternative: bool,
    width: usize,
    precision: Option<usize>,
}

impl Conversion {
    fn pad(&self, sign: &str, digits: &str, numeric: bool) -> String {
        let length = sign.len() + digits.chars().count();
        let fill = self.width.saturating_sub(length);
        if self.left {
            format!("{sign}{digits}{}", " ".repeat(fill))
        } else if self.zeros && numeric && self.precision.is_none() {
            format!("{sign}{}{digits}", "0".repeat(fill))
        } else {
            format!("{}{sign}{digits}", " ".repeat(fill))
        }
    }

    fn digits(&self, digits: String) -> String {
        let missing = self.precision.unwrap_or(0).saturating_sub(digits.len());
        format!("{}{digits}", "0".repeat(missing))
    }

    fn signed(&self, value: i64) -> String {
        let sign = match value {
            ..0 => "-",
            _ if self.plus => "+",
            _ if self.space => " ",
            _ => "",
        };
        self.pad(sign, &self.digits(value.unsigned_abs().to_string()), true)
    }

    fn unsigned(&self, value: u64, letter: char) -> String {
        let digits = match letter {
            'o' => format!("{value:o}"),
            'x' => format!("{value:x}"),
            'X' => format!("{value:X}"),
            _ => value.to_string(),
        };
        let prefix = match letter {
            'o' if self.alternative && !digits.starts_with('0') => "0",
            'x' if self.alternative && value != 0 => "0x",
            'X' if self.alternative && value != 0 => "0X",
            _ => "",
        };
        self.pad(prefix, &self.digits(digits), true)
    }

    fn text(&self, value: &str) -> String {
        let shown: String = value.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
        self.pad("", &shown, false)
    }
}

/// Takes the digits at a place of a format.
fn number(letters: &[char], place: &mut usize) -> usize {
    let mut value = 0_usize;
    while let Some(digit) = letters.get(*place).and_then(|letter| letter.to_digit(10)) {
        value = value.saturating_mul(10).saturating_add(digit as usize).min(MAX_WIDTH);
        *place += 1;
    }
    value
}

fn argument<'l>(rest: &mut &'l str) -> String {
    let (word, more): (String, &'l str) = next_word(rest);
    *rest = more;
    word
}

fn wanted(word: &str) -> Result<i128, String> {
    integer(word).ok_or_else(|| "syntax error".to_owned())
}

/// Formats the words of a line by its first word.
///
/// # Errors
/// `syntax error`: the format has another form, or a word is not of its kind.
pub(super) fn sprintf(line: &str) -> Answer {
    let mut rest = line;
    let letters: Vec<char> = unquoted(&argument(&mut rest)).chars().collect();
    let (mut shown, mut place) = (String::new(), 0);
    while place < letters.len() {
        if letters[place] != '%' {
            shown.push(letters[place]);
            place += 1;
            continue;
        }
        place += 1;
        let mut conversion = Conversion::default();
        while let Some(flag) = letters.get(place) {
            match flag {
                '-' => conversion.left = true,
                '0' => conversion.zeros = true,
                '+' => conversion.plus = true,
                ' ' => conversion.space = true,
                '#' => conversion.alternative = true,
                _ => break,
            }
            place += 1;
        }
        if letters.get(place) == Some(&'*') {
            place += 1;
            let width = wanted(&argument(&mut rest))?;
            conversion.left |= width < 0;
            conversion.width = usize::try_from(width.unsigned_abs()).unwrap_or(MAX_WIDTH).min(MAX_WIDTH);
        } else {
            conversion.width = number(&letters, &mut place);
        }
        if letters.get(place) == Some(&'.') {
            place += 1;
            conversion.precision = Some(if letters.get(place) == Some(&'*') {
                place += 1;
                usize::try_from(wanted(&argument(&mut rest))?).map_err(|_| "syntax error")?.min(MAX_WIDTH)
            } else {
                number(&letters, &mut place)
            });
        }
        let begin = place;
        while letters.get(place).is_some_and(|letter| matches!(letter, 'h' | 'l' | 'L' | 'q')) {
            place += 1;
        }
        let short = letters[begin..place].contains(&'h');
        let letter = letters.get(place).copied().ok_or("syntax error")?;
        place += 1;
        match letter {
            'd' | 'i' => {
                let value = i64::try_from(wanted(&argument(&mut rest))?).map_err(|_| "syntax error")?;
                shown.push_str(&conversion.signed(if short { i64::from(value as i16) } else { value }));
            }
            'o' | 'x' | 'X' | 'u' => {
                let value = u64::try_from(wanted(&argument(&mut rest))?).map_err(|_| "syntax error")?;
                shown.push_str(
                    &conversion.unsigned(if short { u64::from(value as u16) } else { value }, letter),
                );
            }
            's' => shown.push_str(&conversion.text(&unquoted(&argument(&mut rest)))),
            '%' => shown.push('%'),
            _ => return Err("syntax error".into()),
        }
    }
    if rest.trim().is_empty() { Ok(shown) } else { Err("syntax error".into()) }
}

#[cfg(test)]
mod tests {
    use super::sprintf;

    #[test]
    fn formats_are_those_of_c() {
        for (line, shown) in [
            ("%d 5", "5"),
            ("'%05d|%-5d|%+d' -7 7 7", "-0007|7    |+7"),
            ("%x/%X/%#o 255 255 8", "ff/FF/010"),
            ("%.3s abcdef", "abc"),
            ("%*d 4 7", "   7"),
            ("%hd 65537", "1"),
            ("100%% ", "100%"),
        ] {
            assert_eq!(sprintf(line), Ok(shown.to_owned()), "{line}");
        }
        for line in ["%d x", "%d", "%z 1", "%d 1 2", "%"] {
            assert_eq!(sprintf(line), Err("syntax error".to_owned()), "{line}");
        }
    }
}
