//! The C interface of grammar.rs. No panic crosses it.

use crate::ffi::{panic_text, text, DiBuffer};
use crate::grammar::{failure, Failure, Grammar, Matcher, Status, Vocabulary};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

pub struct DiVocabulary(Vocabulary);
pub struct DiGrammar(Grammar);
pub struct DiMatcher {
    matcher: Matcher,
    vocab_size: usize,
}

fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(failure(Status::Internal, format!("the grammar engine panicked: {}", panic_text(panic)))))
}

unsafe fn give<T>(made: Result<T, Failure>, out: *mut *mut T, error: *mut DiBuffer) -> i32 {
    match made {
        Ok(value) => {
            *out = Box::into_raw(Box::new(value));
            Status::Ok as i32
        }
        Err(f) => refuse(f, error),
    }
}

unsafe fn refuse(f: Failure, error: *mut DiBuffer) -> i32 {
    *error = DiBuffer::new(f.message.into_bytes());
    f.status as i32
}

unsafe fn done(result: Result<(), Failure>, error: *mut DiBuffer) -> i32 {
    result.map_or_else(|f| refuse(f, error), |()| Status::Ok as i32)
}

unsafe fn free<T>(value: *mut T) {
    if !value.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(value))));
    }
}

/// # Safety
/// As deepinfer_rust.h says.
#[no_mangle]
pub unsafe extern "C" fn di_vocabulary_new(
    bytes: *const u8,
    ends: *const u64,
    special: *const u8,
    num_tokens: u32,
    end_tokens: *const u32,
    num_end_tokens: u32,
    out: *mut *mut DiVocabulary,
    error: *mut DiBuffer,
) -> i32 {
    let made = guarded(|| {
        let ends = slice::from_raw_parts(ends, num_tokens as usize);
        let special = slice::from_raw_parts(special, num_tokens as usize);
        let all = slice::from_raw_parts(bytes, ends.last().map_or(0, |&end| end as usize));
        let begin = |id: usize| if id == 0 { 0 } else { ends[id - 1] as usize };
        let tokens: Vec<&[u8]> = (0..ends.len()).map(|id| &all[begin(id)..ends[id] as usize]).collect();
        let end_tokens = slice::from_raw_parts(end_tokens, num_end_tokens as usize);
        Vocabulary::new(&tokens, |id| special[id] != 0, end_tokens).map(DiVocabulary)
    });
    give(made, out, error)
}

/// # Safety
/// As deepinfer_rust.h says.
#[no_mangle]
pub unsafe extern "C" fn di_grammar_new(
    vocabulary: *const DiVocabulary,
    spec: *const u8,
    spec_size: usize,
    out: *mut *mut DiGrammar,
    error: *mut DiBuffer,
) -> i32 {
    let made = guarded(|| {
        let spec = text(spec, spec_size).map_err(|e| failure(Status::Invalid, e.message))?;
        (*vocabulary).0.compile(spec).map(DiGrammar)
    });
    give(made, out, error)
}

/// # Safety
/// As deepinfer_rust.h says.
#[no_mangle]
pub unsafe extern "C" fn di_matcher_new(
    vocabulary: *const DiVocabulary,
    grammar: *const DiGrammar,
    out: *mut *mut DiMatcher,
    error: *mut DiBuffer,
) -> i32 {
    let made = guarded(|| Ok(DiMatcher { matcher: (*grammar).0.matcher()?, vocab_size: (*vocabulary).0.size() }));
    give(made, out, error)
}

/// # Safety
/// As deepinfer_rust.h says.
#[no_mangle]
pub unsafe extern "C" fn di_matcher_mask(matcher: *mut DiMatcher, bits: *mut u32, error: *mut DiBuffer) -> i32 {
    let result = guarded(|| {
        let matcher = &mut *matcher;
        let mask = matcher.matcher.mask()?;
        let out = slice::from_raw_parts_mut(bits, matcher.vocab_size.div_ceil(32));
        out.copy_from_slice(&mask.as_slice()[..out.len()]);
        Ok(())
    });
    done(result, error)
}

/// # Safety
/// As deepinfer_rust.h says.
#[no_mangle]
pub unsafe extern "C" fn di_matcher_accept(matcher: *mut DiMatcher, token: u32, error: *mut DiBuffer) -> i32 {
    done(guarded(|| (*matcher).matcher.accept(token)), error)
}

/// # Safety
/// As deepinfer_rust.h says.
#[no_mangle]
pub unsafe extern "C" fn di_matcher_rollback(matcher: *mut DiMatcher, count: u32, error: *mut DiBuffer) -> i32 {
    done(guarded(|| (*matcher).matcher.rollback(count as usize)), error)
}

/// # Safety
/// As deepinfer_rust.h says.
#[no_mangle]
pub unsafe extern "C" fn di_matcher_is_accepting(matcher: *mut DiMatcher) -> i32 {
    guarded(|| (*matcher).matcher.accepting()).is_ok_and(|yes| yes) as i32
}

/// # Safety
/// As deepinfer_rust.h says.
#[no_mangle]
pub unsafe extern "C" fn di_matcher_is_complete(matcher: *const DiMatcher) -> i32 {
    guarded(|| Ok((*matcher).matcher.complete())).is_ok_and(|yes| yes) as i32
}

/// # Safety
/// Made by this library and not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn di_vocabulary_free(vocabulary: *mut DiVocabulary) {
    free(vocabulary);
}

/// # Safety
/// Made by this library and not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn di_grammar_free(grammar: *mut DiGrammar) {
    free(grammar);
}

/// # Safety
/// Made by this library and not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn di_matcher_free(matcher: *mut DiMatcher) {
    free(matcher);
}
