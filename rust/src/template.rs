//! A chat template, compiled twice: as it is (the reference) and with its control tokens marked. A conversation is rendered with both;
//! if the marked rendering without its marks is not the reference, byte for byte, the two kinds of text cannot be told apart for this
//! conversation and it is refused. So the marks decide which text is a control token, and never what the text is.

use crate::limits;
use crate::marks::{cut, escape, may_be_marked, Found, Marks, Mode};
use crate::methods;
use crate::rewrite::rewrite;
use minijinja::machinery::{parse, tokenize, Token, WhitespaceConfig};
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Value as Json;
use std::fmt;
use std::sync::Arc;

#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Ok = 0,
    InvalidTemplate = 1, // its syntax, or something that this library does not do
    Refused = 2,         // the template raised an error of its own
    Failed = 3,          // the template cannot be applied to this conversation
    Limit = 4,
    Ambiguous = 5, // control tokens and text cannot be told apart
    Internal = 6,
}

#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    pub message: String,
}

fn failure(status: Status, message: impl Into<String>) -> Failure {
    Failure { status, message: message.into() }
}

/// The source of an error that raise_exception() made.
#[derive(Debug)]
pub struct Raised;
impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("raised by the template")
    }
}
impl std::error::Error for Raised {}

#[derive(Clone)]
pub struct Options {
    pub spellings: Vec<String>,
    pub mode: Mode,
    /// Variables that hold control tokens, as bos_token.
    pub variables: Vec<(String, String)>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    Token(usize),
    Text(String),
}

pub struct ChatTemplate {
    env: Environment<'static>,
    marks: Arc<Marks>,
    options: Options,
}

const WHITESPACE: WhitespaceConfig = WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };
const MAX_TAG_TOKENS: usize = 4096; // bounds the depth of an expression's tree: a chain of operators nests to the left
const MAX_BRANCHES: usize = 512; // elif nests to the right
const COMPILE_STACK: usize = 64 << 20; // for trees of that depth

impl ChatTemplate {
    pub fn new(source: &str, options: Options) -> Result<ChatTemplate, Failure> {
        let invalid = |message: String| failure(Status::InvalidTemplate, message);
        if source.len() > limits::MAX_SOURCE {
            return Err(invalid(format!("the template has {} bytes, more than {}", source.len(), limits::MAX_SOURCE)));
        }
        let marks = Arc::new(Marks::new(options.spellings.clone()).map_err(invalid)?);
        let source = without_generation_tags(source);
        let mode = options.mode;
        let shared = marks.clone();
        let env = std::thread::Builder::new()
            .stack_size(COMPILE_STACK)
            .spawn(move || compile(&source, &shared, mode))
            .map_err(|e| failure(Status::Internal, format!("no thread to compile the template: {e}")))?
            .join()
            .map_err(|_| failure(Status::Internal, "compiling the template panicked"))??;
        Ok(ChatTemplate { env, marks, options })
    }

    /// context: the variables of the template, an object. now_unix_s: for strftime_now().
    pub fn render(&self, context: &str, now_unix_s: i64) -> Result<Vec<Piece>, Failure> {
        limits::start(context.len());
        let json: Json = serde_json::from_str(context).map_err(|e| failure(Status::Failed, format!("conversation: {e}")))?;
        let Json::Object(mut object) = json else { return Err(failure(Status::Failed, "conversation: not an object")) };
        object.insert("__now".into(), now_unix_s.into());

        if may_be_marked(context) || context.contains("\\u") {
            object.values_mut().for_each(escape_all);
        }
        let reference = self.run("reference", &object, Mode::Reference)?;
        limits::start(context.len());
        if self.options.mode == Mode::Characters {
            self.mark_roles(&mut object);
        }
        let marked = self.run("marked", &object, self.options.mode).map_err(|e| match e.status {
            Status::Limit => e,
            _ => ambiguous(), // what the reference rendering did without complaint
        })?;
        if self.marks.unmark(&marked) != self.marks.unmark(&reference) {
            return Err(ambiguous());
        }
        Ok(self.pieces(&marked))
    }

    fn run(&self, name: &str, object: &serde_json::Map<String, Json>, mode: Mode) -> Result<String, Failure> {
        let mut variables: Vec<(String, Value)> = object.iter().map(|(k, v)| (k.clone(), Value::from_serialize(v))).collect();
        for (name, text) in &self.options.variables {
            variables.push((name.clone(), Value::from(self.marks.mark_own(text, mode))));
        }
        let template = self.env.get_template(name).map_err(|e| describe(&e))?;
        template.render(variables.into_iter().collect::<Value>()).map_err(|e| describe(&e))
    }

    // Roles are the server's words, not a client's: a token composed around one is the template's.
    fn mark_roles(&self, object: &mut serde_json::Map<String, Json>) {
        let Some(Json::Array(messages)) = object.get_mut("messages") else { return };
        for message in messages {
            if let Some(Json::String(role)) = message.get_mut("role") {
                *role = self.marks.mark_own(role, self.options.mode);
            }
        }
    }

    fn pieces(&self, marked: &str) -> Vec<Piece> {
        let mut out = Vec::new();
        let mut own = String::new(); // a run of the template's characters, which may compose tokens
        let flush = |own: &mut String, out: &mut Vec<Piece>| {
            self.marks.scan(own, |piece| match piece {
                Ok(token) => out.push(Piece::Token(token)),
                Err(plain) => push_text(out, plain),
            });
            own.clear();
        };
        cut(marked, |found| match found {
            Found::Own(c) => own.push(c),
            Found::Token(token) => {
                flush(&mut own, &mut out);
                out.push(Piece::Token(token));
            }
            Found::Text(text) => {
                flush(&mut own, &mut out);
                push_text(&mut out, text);
            }
            Found::Restored(c) => {
                flush(&mut own, &mut out);
                push_text(&mut out, c.encode_utf8(&mut [0; 4]));
            }
        });
        flush(&mut own, &mut out);
        out
    }
}

fn push_text(out: &mut Vec<Piece>, text: &str) {
    match out.last_mut() {
        Some(Piece::Text(last)) => last.push_str(text),
        _ => out.push(Piece::Text(text.to_owned())),
    }
}

fn ambiguous() -> Failure {
    failure(
        Status::Ambiguous,
        "the chat template handles a control token that it writes itself and text of the conversation that spells one as one text, so they cannot be told apart",
    )
}

fn escape_all(value: &mut Json) {
    match value {
        Json::String(text) if may_be_marked(text) => *text = escape(text),
        Json::Array(items) => items.iter_mut().for_each(escape_all),
        Json::Object(map) => {
            if map.keys().any(|k| may_be_marked(k)) {
                *map = std::mem::take(map).into_iter().map(|(k, v)| (escape(&k), v)).collect();
            }
            map.values_mut().for_each(escape_all);
        }
        _ => {}
    }
}

fn compile(source: &str, marks: &Arc<Marks>, mode: Mode) -> Result<Environment<'static>, Failure> {
    let invalid = |e: Error| failure(Status::InvalidTemplate, describe(&e).message);
    check_shape(source).map_err(|e| failure(Status::InvalidTemplate, e))?;
    let tree = parse(source, "chat template", Default::default(), WHITESPACE).map_err(invalid)?;
    let mut env = methods::environment(marks);
    for (name, mode) in [("reference", Mode::Reference), ("marked", mode)] {
        let twin = rewrite(&tree, marks, mode).map_err(|e| failure(Status::InvalidTemplate, e))?;
        env.add_template_owned(name, twin).map_err(invalid)?;
    }
    Ok(env)
}

// Bounds what the parser and the code generator recurse over.
fn check_shape(source: &str) -> Result<(), String> {
    let (mut in_tag, mut branches) = (0, 0);
    for token in tokenize(source, false, Default::default(), WHITESPACE) {
        let Ok((token, span)) = token else { return Ok(()) }; // the parser says it better
        match token {
            Token::TemplateData(_) | Token::BlockStart | Token::VariableStart => in_tag = 0,
            Token::Ident("elif") => branches += 1,
            _ => in_tag += 1,
        }
        if in_tag > MAX_TAG_TOKENS || branches > MAX_BRANCHES {
            return Err(format!("line {}: the template is nested too deeply", span.start_line));
        }
    }
    Ok(())
}

fn describe(error: &Error) -> Failure {
    let text = error.detail().map_or_else(|| error.kind().to_string(), |d| d.to_owned());
    let raised = std::error::Error::source(error).is_some_and(|s| s.is::<Raised>());
    if raised {
        return failure(Status::Refused, text);
    }
    if error.kind() == ErrorKind::OutOfFuel {
        let text = if error.detail().is_some() { text } else { "the template ran too long".to_owned() };
        return failure(Status::Limit, text);
    }
    let message = match error.line() {
        Some(line) if line > 0 => format!("line {line}: {}: {text}", error.kind()),
        _ => format!("{}: {text}", error.kind()),
    };
    failure(Status::Failed, message)
}

/// {% generation %} … {% endgeneration %} marks what to train on; for rendering it is nothing.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let Some(length) = rest[at + 2..].find("%}") else { break };
        let tag = &rest[at..at + length + 4];
        let word = tag[2..tag.len() - 2].trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        out.push_str(&rest[..at]);
        match word {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = &rest[at + length + 4..];
    }
    out + rest
}
