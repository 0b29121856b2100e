//! The C interface of chat templates, and what all of the C interface shares. No panic crosses it; strings are (pointer, length) and UTF-8.

use crate::marks::Mode;
use crate::template::{ChatTemplate, Failure, Options, Piece, Status};
use serde_json::Value as Json;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

pub struct DiTemplate(ChatTemplate);

/// Bytes that this library allocated; di_buffer_free() takes them back.
#[repr(C)]
pub struct DiBuffer {
    data: *mut u8,
    size: usize,
    capacity: usize,
}

impl DiBuffer {
    pub(crate) fn new(bytes: Vec<u8>) -> DiBuffer {
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        DiBuffer { data: bytes.as_mut_ptr(), size: bytes.len(), capacity: bytes.capacity() }
    }
}

pub(crate) unsafe fn text<'a>(data: *const u8, size: usize) -> Result<&'a str, Failure> {
    let bytes = if size == 0 { &[] } else { slice::from_raw_parts(data, size) };
    std::str::from_utf8(bytes).map_err(|e| Failure { status: Status::Failed, message: format!("not UTF-8: {e}") })
}

pub(crate) fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    let what = panic.downcast_ref::<&str>().map(|s| s.to_string()).or_else(|| panic.downcast_ref::<String>().cloned());
    what.unwrap_or_default()
}

fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Failure { status: Status::Internal, message: format!("the template engine panicked: {}", panic_text(panic)) })
    })
}

fn parse_options(json: &str) -> Result<Options, Failure> {
    let bad = |message: &str| Failure { status: Status::Internal, message: format!("template options: {message}") };
    let json: Json = serde_json::from_str(json).map_err(|e| bad(&e.to_string()))?;
    let strings = |v: &Json| v.as_array().map(|a| a.iter().filter_map(|s| s.as_str().map(String::from)).collect::<Vec<_>>());
    Ok(Options {
        spellings: strings(&json["spellings"]).ok_or_else(|| bad("spellings"))?,
        mode: match json["mode"].as_str() {
            Some("tokens") => Mode::Tokens,
            Some("characters") => Mode::Characters,
            _ => return Err(bad("mode")),
        },
        variables: json["variables"]
            .as_object()
            .ok_or_else(|| bad("variables"))?
            .iter()
            .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
            .collect(),
    })
}

// i32 token (-1: text) | u32 size | bytes, little-endian, again and again.
fn encode(pieces: &[Piece]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        let (token, text) = match piece {
            Piece::Token(token) => (*token as i32, ""),
            Piece::Text(text) => (-1, text.as_str()),
        };
        out.extend(token.to_le_bytes());
        out.extend((text.len() as u32).to_le_bytes());
        out.extend(text.as_bytes());
    }
    out
}

/// # Safety
/// As deepinfer_rust.h says.
#[no_mangle]
pub unsafe extern "C" fn di_template_new(
    source: *const u8,
    source_size: usize,
    options: *const u8,
    options_size: usize,
    out: *mut *mut DiTemplate,
    error: *mut DiBuffer,
) -> i32 {
    let made = guarded(|| ChatTemplate::new(text(source, source_size)?, parse_options(text(options, options_size)?)?));
    match made {
        Ok(template) => {
            *out = Box::into_raw(Box::new(DiTemplate(template)));
            Status::Ok as i32
        }
        Err(failure) => {
            *error = DiBuffer::new(failure.message.into_bytes());
            failure.status as i32
        }
    }
}

/// # Safety
/// As deepinfer_rust.h says.
#[no_mangle]
pub unsafe extern "C" fn di_template_render(
    template: *const DiTemplate,
    context: *const u8,
    context_size: usize,
    now_unix_s: i64,
    out: *mut DiBuffer,
) -> i32 {
    let rendered = guarded(|| (*template).0.render(text(context, context_size)?, now_unix_s));
    let (status, bytes) = match rendered {
        Ok(pieces) => (Status::Ok, encode(&pieces)),
        Err(failure) => (failure.status, failure.message.into_bytes()),
    };
    *out = DiBuffer::new(bytes);
    status as i32
}

/// # Safety
/// `template` comes from di_template_new() and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn di_template_free(template: *mut DiTemplate) {
    if !template.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(template))));
    }
}

/// # Safety
/// `buffer` was filled by this library and not freed yet.
#[no_mangle]
pub unsafe extern "C" fn di_buffer_free(buffer: DiBuffer) {
    if !buffer.data.is_null() {
        drop(Vec::from_raw_parts(buffer.data, buffer.size, buffer.capacity));
    }
}
