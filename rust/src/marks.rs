//! Characters that carry provenance. A control token that the template wrote is one character of plane 16 from the moment the
//! template is compiled until the rendered prompt is cut into pieces; whatever the template does with its strings in between, the
//! character stays what it is, and no text of a client can become one: a client's own characters of planes 15 and 16 are escaped
//! before rendering and restored after it.
//!
//! U+100000 + i            control token i
//! U+0F0000 + c            the template's own character c < U+10000 (Mode::Characters only; white space stays itself, so that
//!                         trimming and splitting lines see it)
//! U+10FFFE, U+10FFFF + p  a client's character of plane 15, 16, with p = U+100000 + its low 16 bits

use std::collections::HashMap;

/// How much of the template's own text is marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Nothing: the rendering that all others must agree with.
    Reference,
    /// Whole spellings of control tokens.
    Tokens,
    /// Every character, for templates that compose control tokens from pieces.
    Characters,
}

const TOKEN_BASE: u32 = 0x10_0000;
const CHARACTER_BASE: u32 = 0x0F_0000;
const ESCAPE_15: char = '\u{10FFFE}';
const ESCAPE_16: char = '\u{10FFFF}';
pub const MAX_TOKENS: usize = 0xFF00;

/// The spellings of control tokens and how to find them: leftmost, then longest.
pub struct Marks {
    spellings: Vec<String>,
    by_first_byte: HashMap<u8, Vec<usize>>, // longest first
    has_first_byte: [bool; 256],
}

/// A piece of marked text.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    Token(usize),
    Own(char),      // a character of the template's
    Text(&'a str),  // as it is
    Restored(char), // a client's character that had been escaped
}

impl Marks {
    pub fn new(spellings: Vec<String>) -> Result<Marks, String> {
        if spellings.len() > MAX_TOKENS {
            return Err(format!("{} control tokens, more than {MAX_TOKENS}", spellings.len()));
        }
        let mut by_first_byte: HashMap<u8, Vec<usize>> = HashMap::new();
        let mut has_first_byte = [false; 256];
        for (i, spelling) in spellings.iter().enumerate() {
            let first = *spelling.as_bytes().first().ok_or("a control token with an empty spelling")?;
            has_first_byte[first as usize] = true;
            by_first_byte.entry(first).or_default().push(i);
        }
        for list in by_first_byte.values_mut() {
            list.sort_by_key(|&i| std::cmp::Reverse(spellings[i].len()));
        }
        Ok(Marks { spellings, by_first_byte, has_first_byte })
    }

    pub fn spelling(&self, token: usize) -> &str {
        &self.spellings[token]
    }
    pub fn token(&self, spelling: &str) -> Option<usize> {
        let list = self.by_first_byte.get(spelling.as_bytes().first()?)?;
        list.iter().copied().find(|&i| self.spellings[i] == spelling)
    }

    /// The token whose spelling begins at `text`'s start.
    fn at(&self, text: &[u8]) -> Option<usize> {
        if !self.has_first_byte[*text.first()? as usize] {
            return None;
        }
        self.by_first_byte[&text[0]].iter().copied().find(|&i| text.starts_with(self.spellings[i].as_bytes()))
    }

    /// Calls `plain` and `token` for the pieces of `text`, in order.
    pub fn scan<'t>(&self, text: &'t str, mut each: impl FnMut(Result<usize, &'t str>)) {
        let bytes = text.as_bytes();
        let (mut start, mut i) = (0, 0);
        while i < bytes.len() {
            match self.at(&bytes[i..]) {
                Some(token) => {
                    if start < i {
                        each(Err(&text[start..i]));
                    }
                    each(Ok(token));
                    i += self.spellings[token].len();
                    start = i;
                }
                None => i += 1,
            }
        }
        if start < bytes.len() {
            each(Err(&text[start..]));
        }
    }

    /// Text that the template wrote, marked.
    pub fn mark_own(&self, text: &str, mode: Mode) -> String {
        if mode == Mode::Reference {
            return escape(text);
        }
        let mut out = String::with_capacity(text.len());
        self.scan(text, |piece| match piece {
            Ok(token) => out.push(token_mark(token)),
            Err(plain) => {
                for c in plain.chars() {
                    if mode == Mode::Characters && (c as u32) < 0x1_0000 && !c.is_whitespace() {
                        out.push(character_mark(c));
                    } else {
                        push_escaped(&mut out, c);
                    }
                }
            }
        });
        out
    }

    /// Marked text as the reference rendering has it.
    pub fn unmark(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        cut(text, |found| match found {
            Found::Token(token) => out.push_str(self.spellings.get(token).map_or("", String::as_str)),
            Found::Own(c) | Found::Restored(c) => out.push(c),
            Found::Text(plain) => out.push_str(plain),
        });
        out
    }
}

pub fn token_mark(token: usize) -> char {
    char::from_u32(TOKEN_BASE + token as u32).expect("at most MAX_TOKENS")
}
pub fn character_mark(c: char) -> char {
    char::from_u32(CHARACTER_BASE + c as u32).expect("below U+10000")
}

/// Could `text` hold a mark or an escape? Planes 15 and 16 are F3 B0..F4 8F in UTF-8; a plane-14 text is a harmless yes.
pub fn may_be_marked(text: &str) -> bool {
    text.as_bytes().iter().any(|&b| b == 0xF3 || b == 0xF4)
}

fn push_escaped(out: &mut String, c: char) {
    let low = c as u32 & 0xFFFF;
    match c as u32 >> 16 {
        15 => out.extend([ESCAPE_15, char::from_u32(TOKEN_BASE + low).expect("plane 16")]),
        16 => out.extend([ESCAPE_16, char::from_u32(TOKEN_BASE + low).expect("plane 16")]),
        _ => out.push(c),
    }
}

/// A client's text with its characters of planes 15 and 16 escaped.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| push_escaped(&mut out, c));
    out
}

/// Takes marked text apart. The payload of an escape is never looked at as a mark.
pub fn cut<'t>(text: &'t str, mut each: impl FnMut(Found<'t>)) {
    let mut start = 0;
    let mut chars = text.char_indices();
    if !may_be_marked(text) {
        chars = "".char_indices();
    }
    while let Some((i, c)) = chars.next() {
        let code = c as u32;
        if code < CHARACTER_BASE {
            continue;
        }
        if start < i {
            each(Found::Text(&text[start..i]));
        }
        each(match c {
            ESCAPE_15 | ESCAPE_16 => match chars.next() {
                Some((_, payload)) if payload as u32 >= TOKEN_BASE => {
                    let plane = if c == ESCAPE_15 { CHARACTER_BASE } else { TOKEN_BASE };
                    Found::Restored(char::from_u32(plane + (payload as u32 & 0xFFFF)).expect("planes 15 and 16 are all scalar values"))
                }
                Some((_, other)) => Found::Restored(other), // torn apart by the template: the comparison with the reference finds it
                None => Found::Restored(c),
            },
            _ if code >= TOKEN_BASE => Found::Token((code - TOKEN_BASE) as usize),
            _ => match char::from_u32(code - CHARACTER_BASE) {
                Some(own) => Found::Own(own),
                None => Found::Restored(c),
            },
        });
        start = chars.offset();
    }
    if start < text.len() {
        each(Found::Text(&text[start..]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks() -> Marks {
        Marks::new(["<|im_start|>", "<|im", "<think>", "｜é"].map(String::from).to_vec()).unwrap()
    }

    #[test]
    fn longest_spelling_wins() {
        let mut found = Vec::new();
        marks().scan("a<|im_start|><|im_b<think", |p| found.push(p));
        assert_eq!(found, [Err("a"), Ok(0), Ok(1), Err("_b<think")]);
    }

    #[test]
    fn marked_text_comes_back() {
        let text = "x <|im_start|>\n<|im ｜é \u{F0041} \u{100000}\u{10FFFF}\u{10FFFE} \u{1F600} end";
        for mode in [Mode::Tokens, Mode::Characters] {
            let marked = marks().mark_own(text, mode);
            assert!(!marked.contains("<|im"));
            assert_eq!(marks().unmark(&marked), text);
        }
        assert_eq!(marks().unmark(&escape(text)), text);
    }

    #[test]
    fn escaped_text_holds_no_mark() {
        let all: String = (0x0F_0000..=0x10_FFFF).filter_map(char::from_u32).collect();
        cut(&escape(&all), |found| assert!(matches!(found, Found::Restored(_))));
    }
}
