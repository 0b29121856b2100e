//! Masks inside a string with a bound on its length. The compiler's walk over the vocabulary's trie goes through nearly all of it there: every
//! token is tried up to the bound. But while a string goes on, which character comes changes nothing, only how many: so the tokens of plain
//! text are taken by their length, and only the others are walked.
//!
//! That characters do not differ is shown anew for every mask, by trying all of them, so a grammar of which it is not true (a pattern, a key)
//! gets the compiler's own mask. It takes some 4 us for each character up to the bound, whatever the vocabulary.

use llguidance::derivre::StateID;
use llguidance::earley::{BiasComputer, ParserRecognizer, SlicedBiasComputer};
use llguidance::toktrie::{Recognizer, SimpleVob, TokTrie};
use std::sync::Arc;

/// Text inside a string that needs no escape: white space apart, what most tokens are.
pub const PLAIN: &str = r#"[^"\\\x00-\x1F\x7F]"#;
/// Longer bounds hardly matter to tokens: what is not longer than this is a slice of the vocabulary (grammar.rs).
pub const MAX_CHARS: usize = 30;

/// Of a smaller vocabulary the trie is walked sooner than characters are tried.
const MIN_TOKENS: usize = 16384;

/// The characters of PLAIN as bytes: a range for each byte of a form.
const FORMS: [&[(u8, u8)]; 11] = [
    &[(0x20, 0x21)],
    &[(0x23, 0x5b)],
    &[(0x5d, 0x7e)],
    &[(0xc2, 0xdf), (0x80, 0xbf)],
    &[(0xe0, 0xe0), (0xa0, 0xbf), (0x80, 0xbf)],
    &[(0xe1, 0xec), (0x80, 0xbf), (0x80, 0xbf)],
    &[(0xed, 0xed), (0x80, 0x9f), (0x80, 0xbf)],
    &[(0xee, 0xef), (0x80, 0xbf), (0x80, 0xbf)],
    &[(0xf0, 0xf0), (0x90, 0xbf), (0x80, 0xbf), (0x80, 0xbf)],
    &[(0xf1, 0xf3), (0x80, 0xbf), (0x80, 0xbf), (0x80, 0xbf)],
    &[(0xf4, 0xf4), (0x80, 0x8f), (0x80, 0xbf), (0x80, 0xbf)],
];

fn is_plain(c: char) -> bool {
    c >= ' ' && !matches!(c, '"' | '\\' | '\x7f')
}

pub struct BoundedText {
    slices: Arc<SlicedBiasComputer>,
    long_slice: usize,      // of `slices`: plain text of up to MAX_CHARS characters
    up_to: Vec<SimpleVob>,  // [n]: the tokens of 1 to n plain characters, n <= MAX_CHARS
    rest: TokTrie,          // the tokens that are not plain text
}

impl BoundedText {
    /// What computes masks over the vocabulary of `slices`.
    pub fn over(slices: Arc<SlicedBiasComputer>, long_slice: usize) -> Arc<dyn BiasComputer> {
        if slices.trie().vocab_size() < MIN_TOKENS {
            return slices;
        }
        let trie = slices.trie();
        let mut up_to = vec![trie.alloc_token_set(); MAX_CHARS + 1];
        let mut rest = trie.alloc_token_set();
        for id in 0..trie.vocab_size() as u32 {
            let text = std::str::from_utf8(trie.token(id)).unwrap_or("");
            let num_chars = text.chars().count();
            if num_chars == 0 || !text.chars().all(is_plain) {
                rest.allow_token(id);
            } else {
                up_to.iter_mut().skip(num_chars).for_each(|set| set.allow_token(id));
            }
        }
        let rest = trie.filter(&rest);
        Arc::new(BoundedText { slices, long_slice, up_to, rest })
    }

    /// How many plain characters more the text takes at this place, if it is at least one, at most MAX_CHARS, and the same for all characters.
    fn room(&self, rec: &mut ParserRecognizer<'_>) -> Option<usize> {
        let here = rec.lexer_state();
        if !rec.lexer_mut().subsume_possible(here) {
            return None;
        }
        let bounded = speculate(rec, |rec| rec.try_push_byte(b'a') && rec.lexer_state() != here);
        if !bounded || rec.lexer_mut().check_subsume(here, self.long_slice, SUBSUME_BUDGET, None).unwrap_or(true) {
            return None;
        }
        speculate(rec, |rec| {
            let rows = num_rows(rec);
            (0..=MAX_CHARS).find_map(|room| match after_any(rec) {
                After::Nothing => Some(Some(room)),
                After::State(state) if rec.try_push_byte(b'a') && rec.lexer_state() == state && num_rows(rec) == rows => None,
                _ => Some(None), // characters differ, or one has ended the text
            })
        })
        .flatten()
        .filter(|&room| room > 0)
    }
}

/// As the slices are tried (llguidance's slicer.rs).
const SUBSUME_BUDGET: u64 = 1000;

impl BiasComputer for BoundedText {
    fn compute_bias(&self, rec: &mut ParserRecognizer<'_>, start: &[u8]) -> SimpleVob {
        let room = if start.is_empty() { self.room(rec) } else { None };
        let Some(room) = room else { return self.slices.compute_bias(rec, start) };
        let mut set = self.trie().alloc_token_set();
        set.or(&self.up_to[room]);
        self.rest.add_bias(rec, &mut set, &[]);
        set
    }

    fn trie(&self) -> &TokTrie {
        self.slices.trie()
    }
}

/// What is pushed in it is taken back.
fn speculate<T>(rec: &mut ParserRecognizer<'_>, look: impl FnOnce(&mut ParserRecognizer<'_>) -> T) -> T {
    rec.trie_started("bounded");
    let seen = look(rec);
    rec.trie_finished();
    seen
}

/// Grows whenever a lexeme ends: then more than the lexer's state has changed.
fn num_rows(rec: &mut ParserRecognizer<'_>) -> usize {
    let stats = rec.stats_mut();
    stats.rows + stats.cached_rows
}

#[derive(Clone, Copy, PartialEq)]
enum After {
    Nothing, // no such character may come
    State(StateID),
    Mixed,
}

/// Where all plain characters lead from here, one as the other.
fn after_any(rec: &mut ParserRecognizer<'_>) -> After {
    let mut known = Vec::new();
    common(FORMS.iter().map(|form| after_form(rec, form, &mut known)))
}

/// known: bytes into a character several leave the text in one state, where the same must follow.
type Known<'a> = Vec<(StateID, &'a [(u8, u8)], After)>;

fn after_form<'a>(rec: &mut ParserRecognizer<'_>, form: &'a [(u8, u8)], known: &mut Known<'a>) -> After {
    let [(first, last), rest @ ..] = form else { return After::State(rec.lexer_state()) };
    common((*first..=*last).map(|byte| {
        if !rec.try_push_byte(byte) {
            return After::Nothing;
        }
        let state = rec.lexer_state();
        let after = match known.iter().find(|(s, f, _)| *s == state && *f == rest) {
            Some((_, _, after)) => *after,
            None => {
                let after = after_form(rec, rest, known);
                if !rest.is_empty() {
                    known.push((state, rest, after));
                }
                after
            }
        };
        rec.pop_bytes(1);
        after
    }))
}

fn common(all: impl Iterator<Item = After>) -> After {
    let mut all = all;
    let first = all.next().unwrap_or(After::Nothing);
    if first == After::Mixed || all.any(|after| after != first) {
        return After::Mixed;
    }
    first
}
