//! The words, texts and signs of what `nft list ruleset` prints.

/// A token with the number of its line, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) text: String,
    /// Whether it stood in quotes.
    pub(super) is_text: bool,
}

impl Token {
    /// Whether it is this word or sign.
    pub(super) fn is(&self, text: &str) -> bool {
        !self.is_text && self.text == text
    }
    /// Whether a rule ends here.
    pub(super) fn is_end(&self) -> bool {
        self.is(";") || self.is("\n")
    }
}

/// The tokens of a text. The end of a line is a token; remarks are none.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut add = |text: &str, is_text| {
            tokens.push(Token { line: index + 1, text: text.to_owned(), is_text });
        };
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '#' => break,
                '"' => {
                    let inner = rest.get(1..).unwrap_or_default();
                    let end = inner.find('"').unwrap_or(inner.len());
                    add(inner.get(..end).unwrap_or_default(), true);
                    end + 2
                }
                '!' | '=' | '<' | '>' if rest.get(1..2) == Some("=") => {
                    add(rest.get(..2).unwrap_or_default(), false);
                    2
                }
                '{' | '}' | '(' | ')' | ',' | ';' | '=' | '<' | '>' | '!' | '|' | '&' => {
                    add(rest.get(..1).unwrap_or_default(), false);
                    1
                }
                _ => {
                    let end = rest.find(is_separator).unwrap_or(rest.len()).max(first.len_utf8());
                    add(rest.get(..end).unwrap_or_default(), false);
                    end
                }
            };
            rest = rest.get(length..).unwrap_or_default().trim_start();
        }
        add("\n", false);
    }
    tokens
}

fn is_separator(character: char) -> bool {
    character.is_whitespace() || "{}(),;=<>!|&\"#".contains(character)
}
