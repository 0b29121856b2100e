//! Constraints on generated text, compiled by llguidance: the trie of a vocabulary's tokens, grammars over it, and matchers that walk a
//! grammar token by token. All work is bounded by counts (LIMITS, MAX_…), never by time, so that what is refused is the same on every
//! machine.

use crate::bounded::{BoundedText, MAX_CHARS, PLAIN};
use crate::schema::{Checked, Style};
use llguidance::api::{GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::earley::BiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher as Inner, ParserFactory};
use serde::Deserialize;
use serde_json::Value as Json;
use std::sync::{Arc, Mutex};

#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Ok = 0,
    Invalid = 1, // a constraint that cannot be honoured, or too large: the message says where and why
    Failed = 2,  // a matcher that gave up: a token that its mask forbids, or the work for one mask went over the limits
    Internal = 3,
}

#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    pub message: String,
}

pub fn failure(status: Status, message: impl Into<String>) -> Failure {
    Failure { status, message: message.into() }
}

pub fn invalid(message: impl Into<String>) -> Failure {
    failure(Status::Invalid, message)
}

/// Of a pattern, a grammar or a list of choices. A chain of rules this long is followed within COMPILE_STACK_BYTES.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// Of a grammar around schemas: that of many tools, made by the server, whose rules do not chain.
const MAX_FRAME_BYTES: usize = 1 << 20;
const MAX_CHOICES: usize = 4096;
/// Parentheses and brackets in a grammar.
const MAX_NESTING: usize = 128;
/// Levels of a description's JSON: more than schemas are honoured with (schema.rs), so that what is too deep is named with its place.
const MAX_JSON_DEPTH: usize = 1024;
/// The compilers of schemas and grammars recurse; this is address space, of which only what they reach is ever touched.
const COMPILE_STACK_BYTES: usize = 256 << 20;

fn limits() -> ParserLimits {
    // An object may have MAX_PROPERTIES (schema.rs) that may each come next, some items of a row each.
    ParserLimits { verbose_errors: false, max_items_in_row: 20_000, ..ParserLimits::default() }
}

/// What a constraint is, as JSON: {"kind": "json_schema", "schema": {…}}.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Spec {
    JsonSchema {
        schema: Json,
        #[serde(default)]
        compact: bool, // no space after ',' and ':', where else one may stand
    },
    Regex {
        pattern: String,
    },
    Choice {
        choices: Vec<String>,
    },
    /// llguidance's variant of Lark. Rules name schemas as @NAME.
    Lark {
        grammar: String,
        #[serde(default)]
        schemas: Vec<NamedSchema>,
        #[serde(default)]
        compact: bool,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedSchema {
    name: String,
    schema: Json,
    /// What messages call it.
    #[serde(default)]
    label: String,
}

/// The tokens of a model as a trie, and what speeds up the walk over it.
pub struct Vocabulary {
    factory: ParserFactory,
    masks: Arc<dyn BiasComputer>,
    special: SimpleVob, // control tokens but for end tokens
}

/// Parts of the vocabulary whose tokens a constraint takes or leaves as a whole, if it can: white space, and text inside a string by its length,
/// since strings have bounds. Every other mask walks the vocabulary's trie, but for those that bounded.rs puts together.
fn slices() -> Vec<String> {
    let lengths = ["{1,3}", "{1,6}", "{1,10}", "+"].map(|length| format!("{PLAIN}{length}"));
    [format!("{PLAIN}{{1,{MAX_CHARS}}}"), r"[\x20\x0A\x0D\x09]+".to_string()].into_iter().chain(lengths).collect()
}
const LONG_SLICE: usize = 0;

impl Vocabulary {
    /// tokens[id]: the bytes that a token stands for; empty: none, it is never allowed. special[id]: a control token, which a grammar
    /// can only name by number, <[id]>. end_tokens: what may follow where a grammar may end.
    pub fn new(tokens: &[&[u8]], special: impl Fn(usize) -> bool, end_tokens: &[u32]) -> Result<Vocabulary, Failure> {
        if end_tokens.is_empty() || end_tokens.iter().any(|&t| t as usize >= tokens.len()) {
            return Err(failure(Status::Internal, "end tokens out of range"));
        }
        let words: Vec<Vec<u8>> = tokens
            .iter()
            .enumerate()
            .map(|(id, bytes)| match special(id) {
                true => [&[TokTrie::SPECIAL_TOKEN_MARKER], *bytes].concat(),
                // The marker's byte occurs in no UTF-8 text, so no text needs a token that holds it.
                false if bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) => Vec::new(),
                false => bytes.to_vec(),
            })
            .collect();
        let info = TokRxInfo::new(words.len() as u32, end_tokens[0]);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(end_tokens);
        let mut control = trie.alloc_token_set();
        (0..words.len()).filter(|&id| special(id) && !end_tokens.contains(&(id as u32))).for_each(|id| control.allow_token(id as u32));
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices())
            .map_err(|e| failure(Status::Internal, first_line(&e.to_string())))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        let masks = BoundedText::over(factory.slicer(), LONG_SLICE);
        Ok(Vocabulary { factory, masks, special: control })
    }

    pub fn size(&self) -> usize {
        self.factory.tok_env().tok_trie().vocab_size()
    }

    /// spec: see Spec. Borrows a thread with a deep stack for as long as it takes.
    pub fn compile(&self, spec: &str) -> Result<Grammar, Failure> {
        on_deep_stack(|| {
            let mut schemas = vec![];
            let grammar = read_spec(parse_spec(spec)?, &mut schemas)?;
            // Whole it is compiled once; what was wrong with which schema is looked for when something was.
            self.compile_grammar(grammar).map_err(|f| schemas.iter().find_map(Checked::refusal).unwrap_or(f))
        })
    }

    fn compile_grammar(&self, grammar: TopLevelGrammar) -> Result<Grammar, Failure> {
        let mut hidden = self.special.clone();
        for lark in grammar.grammars.iter().filter_map(|g| g.lark_grammar.as_deref()) {
            self.named_tokens(lark).for_each(|id| hidden.disallow_token(id));
        }
        let mut parser = self.factory.create_parser(grammar).map_err(|e| invalid(first_line(&e.to_string())))?;
        parser.bias_computer = self.masks.clone();
        let mut matcher = Inner::new(Ok(parser));
        // What can never begin is said now, not at the first token.
        matcher.compute_mask_or_eos().map_err(|e| match first_line(&e.to_string()).as_str() {
            "NoExtensionBias" => invalid("no text of this model's tokens satisfies it"),
            other => invalid(other),
        })?;
        Ok(Grammar { pristine: Mutex::new(matcher), hidden: Arc::new(hidden) })
    }

    /// The tokens that a grammar names, as <[5]>, <[5-7,9]> or <spelling>. What stands for tokens that it does not name (<[^5]>, <[*]>)
    /// stands for text alone.
    fn named_tokens<'a>(&'a self, lark: &'a str) -> impl Iterator<Item = u32> + 'a {
        let last = self.size().saturating_sub(1) as u32;
        let names = lark.match_indices('<').filter_map(|(begin, _)| lark[begin..].find('>').map(|end| &lark[begin..=begin + end]));
        names.flat_map(move |name| -> Vec<u32> {
            let Some(list) = name.strip_prefix("<[").and_then(|rest| rest.strip_suffix("]>")) else {
                return self.factory.tok_env().tok_trie().get_special_token(name).into_iter().collect();
            };
            let number = |text: &str| text.parse::<u32>().ok();
            let range = |part: &str| match part.split_once('-') {
                Some((first, end)) => Some(number(first)?..=number(end)?.min(last)),
                None => number(part).filter(|&id| id <= last).map(|id| id..=id),
            };
            list.split(',').filter_map(range).flatten().collect()
        })
    }
}

fn on_deep_stack<T: Send>(work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(COMPILE_STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|e| failure(Status::Internal, format!("no thread to compile on: {e}")))?;
        thread.join().unwrap_or_else(|_| Err(failure(Status::Internal, "the grammar compiler panicked")))
    })
}

fn parse_spec(spec: &str) -> Result<Spec, Failure> {
    check_json_depth(spec)?;
    let mut parser = serde_json::Deserializer::from_str(spec);
    parser.disable_recursion_limit();
    let parsed = Spec::deserialize(&mut parser).and_then(|parsed| parser.end().map(|()| parsed));
    parsed.map_err(|e| invalid(format!("constraint: {e}")))
}

fn check_json_depth(text: &str) -> Result<(), Failure> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_JSON_DEPTH {
            return Err(invalid(format!("constraint: nested more than {MAX_JSON_DEPTH} deep")));
        }
    }
    Ok(())
}

fn read_spec(spec: Spec, schemas: &mut Vec<Checked>) -> Result<TopLevelGrammar, Failure> {
    match spec {
        Spec::JsonSchema { schema, compact } => {
            schemas.push(Checked::new(schema, String::new())?);
            Ok(TopLevelGrammar::from_json_schema(schemas[0].styled(style(compact))))
        }
        Spec::Regex { pattern } => {
            check_size("pattern", pattern.len(), MAX_TEXT_BYTES)?;
            Ok(TopLevelGrammar::from_regex(unanchored(&pattern)))
        }
        Spec::Choice { choices } => {
            check_size("choices", choices.iter().map(String::len).sum(), MAX_TEXT_BYTES)?;
            if choices.is_empty() || choices.len() > MAX_CHOICES {
                return Err(invalid(format!("there must be between 1 and {MAX_CHOICES} choices")));
            }
            // One terminal, however many they are: of rules the parser would follow each, and gives up at 2000.
            let quoted: Vec<String> = choices.iter().filter(|c| !c.is_empty()).map(|c| lark_string(c)).collect();
            let or_nothing = if quoted.len() < choices.len() { "?" } else { "" };
            Ok(TopLevelGrammar::from_lark(match quoted.is_empty() {
                true => "start: \"\"".to_owned(),
                false => format!("start: CHOICE{or_nothing}\nCHOICE: {}", quoted.join(" | ")),
            }))
        }
        Spec::Lark { grammar, schemas: named, compact } => {
            check_lark(&grammar, if named.is_empty() { MAX_TEXT_BYTES } else { MAX_FRAME_BYTES })?;
            let mut grammars = vec![GrammarWithLexer::from_lark(grammar)];
            for NamedSchema { name, schema, label } in named {
                let checked = Checked::new(schema, label)?;
                grammars.push(GrammarWithLexer { name: Some(name), json_schema: Some(checked.styled(style(compact))), ..Default::default() });
                schemas.push(checked);
            }
            Ok(TopLevelGrammar { grammars, max_tokens: None })
        }
    }
}

fn style(compact: bool) -> Style {
    if compact {
        Style::Compact
    } else {
        Style::Spaced
    }
}

fn check_size(what: &str, size: usize, most: usize) -> Result<(), Failure> {
    if size > most {
        return Err(invalid(format!("{what}: {size} bytes; at most {most}")));
    }
    Ok(())
}

fn check_lark(grammar: &str, most: usize) -> Result<(), Failure> {
    check_size("grammar", grammar.len(), most)?;
    let mut depth = 0usize;
    for byte in grammar.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_NESTING {
            return Err(invalid(format!("grammar: nested more than {MAX_NESTING} deep")));
        }
    }
    Ok(())
}

/// A pattern matches the whole text, so what binds it to the text's ends says nothing; the compiler knows no anchors.
fn unanchored(pattern: &str) -> &str {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    match pattern.strip_suffix('$') {
        Some(rest) if rest.bytes().rev().take_while(|&b| b == b'\\').count() % 2 == 0 => rest,
        _ => pattern,
    }
}

fn lark_string(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default().replace('\x7f', "\\u007f")
}

/// Messages of the engine go on with dumps of its state.
pub fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or("").trim_end().to_owned()
}

/// A compiled constraint. Any thread may take matchers from it.
pub struct Grammar {
    pristine: Mutex<Inner>,
    hidden: Arc<SimpleVob>, // control tokens that it does not name
}

impl Grammar {
    /// Independent of all others: what one matcher has cached changes neither time nor limits of another.
    pub fn matcher(&self) -> Result<Matcher, Failure> {
        let pristine = self.pristine.lock().map_err(|_| failure(Status::Internal, "a panic while cloning"))?;
        Ok(Matcher { inner: pristine.deep_clone(), hidden: self.hidden.clone() })
    }
}

/// A position in a grammar. One thread at a time.
pub struct Matcher {
    inner: Inner,
    hidden: Arc<SimpleVob>,
}

impl Matcher {
    /// The tokens that may come next; where nothing may but the end, the end tokens. A control token begins with a byte that no text has,
    /// but patterns can be written that any byte matches ("~/a/").
    pub fn mask(&mut self) -> Result<SimpleVob, Failure> {
        let mut mask = self.inner.compute_mask_or_eos().map_err(failed)?;
        mask.sub(&self.hidden);
        Ok(mask)
    }

    pub fn accept(&mut self, token: u32) -> Result<(), Failure> {
        self.inner.consume_token(token).map_err(failed)
    }

    /// Takes back the last `count` tokens that were accepted.
    pub fn rollback(&mut self, count: usize) -> Result<(), Failure> {
        self.inner.rollback(count).map_err(failed)
    }

    /// The text so far satisfies the constraint.
    pub fn accepting(&mut self) -> Result<bool, Failure> {
        if self.inner.stop_reason().is_ok() && self.inner.is_stopped() {
            return Ok(true);
        }
        self.inner.is_accepting().map_err(failed)
    }

    /// Nothing can follow but an end token.
    pub fn complete(&self) -> bool {
        self.inner.is_stopped() && !self.inner.is_error()
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    failure(Status::Failed, first_line(&error.to_string()))
}
