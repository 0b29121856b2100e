//! Chat templates of foreign models, and constraints on generated text, behind a C interface (ffi.rs, grammar_ffi.rs,
//! include/deepinfer_rust.h).
//!
//! marks.rs    characters that carry where a text came from
//! rewrite.rs  a template's syntax tree, written back as source with marks and guards
//! limits.rs   what a rendering may cost
//! python.rs   how Python prints values: str(), repr(), json.dumps(), strftime()
//! methods.rs  filters, tests and string methods that know marks
//! template.rs compile and render, twice, and compare
//!
//! schema.rs   JSON schemas, checked before they are compiled
//! ecma.rs     regular expressions and formats of JSON Schema, as the compiler says them
//! bounded.rs  masks inside strings with a bound
//! grammar.rs  constraints to token masks, with llguidance

mod bounded;
mod ecma;
mod ffi;
mod grammar;
mod grammar_ffi;
mod limits;
mod marks;
mod methods;
mod python;
mod rewrite;
mod schema;
mod template;

pub use grammar::{Failure as GrammarFailure, Grammar, Matcher, Status as GrammarStatus, Vocabulary};
pub use marks::{Marks, Mode};
pub use template::{ChatTemplate, Failure, Options, Piece, Status};
