//! Chat templates of foreign models for DeepInfer, behind a C interface (ffi.rs, include/deepinfer_rust.h).
//!
//! marks.rs    characters that carry where a text came from
//! rewrite.rs  a template's syntax tree, written back as source with marks and guards
//! limits.rs   what a rendering may cost
//! python.rs   how Python prints values: str(), repr(), json.dumps(), strftime()
//! methods.rs  filters, tests and string methods that know marks
//! template.rs compile and render, twice, and compare

mod ffi;
mod limits;
mod marks;
mod methods;
mod python;
mod rewrite;
mod template;

pub use marks::{Marks, Mode};
pub use template::{ChatTemplate, Failure, Options, Piece, Status};
